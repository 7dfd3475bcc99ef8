//! The table of the specification's demands in `docs/cni.md`: each row names tests that exist.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::fs;
use std::path::Path;

/// Returns the text of all Rust files below a directory.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = entries.map(|path| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(kind) if kind == "rs" => fs::read_to_string(path).unwrap(),
        _ => String::new(),
    });
    text.collect()
}

#[test]
fn each_demand_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/cni.md")).unwrap();
    let all = sources(&root.join("hosts/cni")) + &sources(&root.join("millrace/tests/stories"));
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| MUST") || line.starts_with("| SHOULD"))
        .collect();
    assert!(rows.len() > 20, "{rows:#?}");
    for row in rows {
        let tests = row.rsplit('|').nth(1).unwrap();
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            assert!(all.contains(&format!("fn {name}(")), "{name}: {row}");
        }
    }
}
