//! Reads what a page of metrics exports, and which metrics documents and rules name. Tests of the
//! daemon and of the fleet's agent share this module.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The names that a page in the text format exports, as Prometheus stores them.
pub(crate) struct Exported {
    /// Type, labels and help by documented name.
    pub(crate) families: BTreeMap<String, [String; 3]>,
    /// All names that an expression may contain.
    pub(crate) series: BTreeSet<String>,
}

impl Exported {
    pub(crate) fn of(page: &str) -> Exported {
        let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
        let (mut families, mut series) = (BTreeMap::new(), BTreeSet::new());
        for line in page.lines() {
            if let Some((name, help)) =
                line.strip_prefix("# HELP ").and_then(|it| it.split_once(' '))
            {
                helps.insert(name, help.trim_end_matches('.'));
            }
            let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
            else {
                continue;
            };
            let suffixes: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            series.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
            let kind = if name.ends_with("_info") { "info" } else { kind };
            let told = [kind.to_owned(), labels(page, name), helps[name].to_owned()];
            families.insert(name.to_owned(), told);
        }
        Exported { families, series }
    }
}

/// Returns the labels of a family's first sample, except the bound of a histogram's bucket.
fn labels(page: &str, family: &str) -> String {
    let of_family = |line: &&str| {
        let rest = line.strip_prefix(family).unwrap_or_default();
        ["{", "_bucket{"].iter().any(|start| rest.starts_with(start))
    };
    let Some((_, rest)) = page.lines().find(of_family).and_then(|line| line.split_once('{')) else {
        return String::new();
    };
    let names = rest.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names
        .filter(|name| *name != "le")
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Returns type, labels and help of the metrics in a document's tables, by name.
pub(crate) fn rows(document: &str) -> BTreeMap<String, [String; 3]> {
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let rest = [cells[2], cells[3], cells[4]].map(str::to_owned);
        (cells[1].trim_matches('`').to_owned(), rest)
    })
    .collect()
}

/// Returns the names of metrics in an expression.
pub(crate) fn asked(expression: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_name(letter));
    let ours = words.filter(|word| ["millrace_", "process_"].iter().any(|it| word.starts_with(it)));
    ours.map(str::to_owned).collect()
}
