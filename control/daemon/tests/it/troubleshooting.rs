//! Compares the table of drop reasons in docs/troubleshooting.md with those of the data path.

use datapath::DropReason;
use std::path::Path;

/// Returns the cells of each row of the table below this heading, without its header.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = text.split_once(heading).unwrap().1;
    let section = below.split_once("\n## ").map_or(below, |(section, _)| section);
    let table = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    table.skip(2).map(|row| row.split(" | ").collect()).collect()
}

#[test]
fn each_drop_reason_has_its_cause_and_its_remedy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = rows(&text, "\n## Drops by reason\n");
    let told: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    let counted: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(told, counted, "docs/troubleshooting.md has other reasons than the data path");
    for row in &rows {
        assert!(row.len() == 4 && row.iter().all(|cell| !cell.trim().is_empty()), "{row:?}");
    }
}
