//! Checks that every recorded run in `measure/runs` says when, where and how it was measured, and
//! that each row of its tables has a cell for each column.
#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// The keys of a run that are text.
const TEXTS: [&str; 4] = ["commit", "machine", "command", "notes"];

#[test]
fn every_run_names_its_day_machine_command_and_samples() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/runs");
    let paths = fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path());
    let runs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    assert!(!runs.is_empty());
    for path in runs {
        let faults = faults(&fs::read_to_string(&path).unwrap());
        assert_eq!(faults, Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn a_run_without_its_command_or_with_a_short_row_is_found() {
    let run = "date = 2026-11-28\ncommit = 'a'\nmachine = 'b'\nnotes = ''\nn = 1\n\
               [[table]]\ncolumns = ['c', 'd']\nrows = [['1', '2'], ['3']]\n";
    assert_eq!(faults(run), ["no text: command", "no text: notes", "row of 1 cells, wanted: 2"]);
}

/// Returns what a run lacks.
fn faults(text: &str) -> Vec<String> {
    let run: Table = text.parse().unwrap();
    let is_text = |key: &str| run.get(key).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let missing = TEXTS.into_iter().filter(|key| !is_text(key));
    let mut faults: Vec<_> = missing.map(|key| format!("no text: {key}")).collect();
    if run.get("date").and_then(Value::as_datetime).is_none() {
        faults.push("no date".to_owned());
    }
    if run.get("n").and_then(Value::as_integer).is_none_or(|n| n < 1) {
        faults.push("no n".to_owned());
    }
    let tables = run.get("table").and_then(Value::as_array);
    for table in tables.into_iter().flatten() {
        let columns = table["columns"].as_array().unwrap().len();
        let rows =
            table["rows"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().len());
        let wrong = rows.filter(|cells| *cells != columns);
        faults.extend(wrong.map(|cells| format!("row of {cells} cells, wanted: {columns}")));
    }
    faults
}
