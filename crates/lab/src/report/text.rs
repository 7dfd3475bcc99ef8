//! A report as text: for the terminal, and as Markdown to paste into a ticket.

use super::Report;
use super::answer::{caveat, headline, rows, trust};
use super::case::capital;
use super::table::{Points, Table, brief, findings, heaviest_side, tables};
use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use comfy_table::{ContentArrangement, TableStyle};
use std::fmt::Write as _;

/// Columns of a terminal that a table may take.
const WIDTH: u16 = 120;

/// For a terminal.
pub fn terminal(report: &Report) -> String {
    let mut out = format!("{}\n\n{}\n\n", report.title, headline(report));
    if let Some(caveat) = caveat(report) {
        let _ = writeln!(out, "{caveat}\n");
    }
    for one in trust(report) {
        let _ = writeln!(out, "{} {}: {}", mark(one.good), one.name, one.seen);
    }
    let _ = writeln!(out, "\n{}\n", report.bench.description);
    for check in &report.checks {
        let _ = writeln!(out, "{} {}: {}", mark(check.passed), check.name, check.seen);
    }
    for mut table in tables(report, brief) {
        let drawn = fitted(&mut table);
        let _ = write!(out, "\n{}\n{drawn}\n", table.title);
    }
    out.push('\n');
    for line in summary(report) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// As Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n\n**{}**\n\n", report.title, headline(report));
    if let Some(caveat) = caveat(report) {
        let _ = writeln!(out, "{caveat}\n");
    }
    for one in trust(report) {
        let _ = writeln!(out, "- {} {}: {}", mark(one.good), one.name, one.seen);
    }
    let _ = writeln!(out, "\n{}\n", report.bench.description);
    let machine = &report.machine;
    let _ = writeln!(out, "{}, millrace {}, {}\n", report.date, report.millrace, machine.words());
    for check in &report.checks {
        let _ = writeln!(out, "- {} {}: {}", mark(check.passed), check.name, check.seen);
    }
    for table in tables(report, brief) {
        let _ = write!(out, "\n## {}\n\n{}\n", table.title, drawn(&table, ASCII_MARKDOWN));
    }
    out.push('\n');
    for line in summary(report) {
        let _ = writeln!(out, "- {line}");
    }
    out.push_str("\n## Commands\n\n```\n");
    for command in &report.commands {
        let _ = writeln!(out, "{}# {}", command.host, command.command);
    }
    out.push_str("```\n");
    out
}

/// What the tables come to, and what to know before believing them.
fn summary(report: &Report) -> Vec<String> {
    results(report).into_iter().chain(report.notes.iter().cloned()).collect()
}

/// What the tables come to.
pub(super) fn results(report: &Report) -> Vec<String> {
    let found = match (Points::of(report.all_cases()), report.measures.first()) {
        (Some(points), Some(measure)) => points.sentences(measure),
        _ => compared(report),
    };
    findings(report).into_iter().chain(found).collect()
}

/// Every verdict, and who was the busiest.
fn compared(report: &Report) -> Vec<String> {
    let cases = report.all_cases();
    let heaviest = cases.iter().filter(|case| case.truth.is_none()).filter_map(|case| {
        Some(format!("{}: {}", capital(&case.setting.words()), heaviest_side(case)?))
    });
    rows(report).iter().map(|row| format!("{}.", row.words())).chain(heaviest).collect()
}

fn mark(passed: bool) -> &'static str {
    if passed { "ok  " } else { "FAIL" }
}

/// For a terminal, no wider than [`WIDTH`]: where it would be, spreads stand below their medians.
fn fitted(table: &mut Table) -> comfy_table::Table {
    let natural = drawn(table, UTF8_HORIZONTAL_ONLY);
    let widest = natural.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if widest <= usize::from(WIDTH) {
        return natural;
    }
    for cell in table.rows.iter_mut().flat_map(|row| row.iter_mut().skip(1)) {
        *cell = cell.replacen(" (", "\n(", 1);
    }
    let mut narrow = drawn(table, UTF8_HORIZONTAL_ONLY);
    narrow.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    narrow
}

fn drawn(table: &Table, style: TableStyle) -> comfy_table::Table {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(style).set_header(&table.head);
    drawn.add_rows(&table.rows);
    for column in drawn.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    drawn
}
