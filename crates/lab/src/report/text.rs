//! A report as text: for the terminal, and as Markdown to paste into a ticket.

use super::Report;
use super::case::capital;
use super::table::{Points, Table, findings, heaviest_side, sentences, tables};
use comfy_table::TableStyle;
use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use std::fmt::Write as _;

/// For a terminal.
pub fn terminal(report: &Report) -> String {
    let mut out = format!("{}\n{}\n\n", report.title, report.bench.description);
    for check in &report.checks {
        let _ = writeln!(out, "{} {}: {}", mark(check.passed), check.name, check.seen);
    }
    for table in tables(report) {
        let _ = write!(out, "\n{}\n{}\n", table.title, drawn(&table, UTF8_HORIZONTAL_ONLY));
    }
    out.push('\n');
    for line in summary(report) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// As Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n\n{}\n\n", report.title, report.bench.description);
    let machine = &report.machine;
    let _ = writeln!(
        out,
        "{}, millrace {}, {}, {} x {}\n",
        report.date, report.millrace, machine.kernel, machine.processors, machine.processor
    );
    for check in &report.checks {
        let _ = writeln!(out, "- {} {}: {}", mark(check.passed), check.name, check.seen);
    }
    for table in tables(report) {
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

/// What the comparisons of each case come to.
fn compared(report: &Report) -> Vec<String> {
    let cases = report.all_cases();
    let mut lines = Vec::new();
    for case in cases {
        let words = case.setting.words();
        let own = sentences(case, report.measures).into_iter().chain(heaviest_side(case));
        lines.extend(own.map(|line| {
            if cases.len() > 1 { format!("{}: {line}", capital(&words)) } else { line }
        }));
    }
    lines
}

fn mark(passed: bool) -> &'static str {
    if passed { "ok  " } else { "FAIL" }
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
