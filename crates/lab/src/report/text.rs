//! A report as text: for the terminal, and as Markdown to paste into a ticket.

use super::answer::{caveat, headline, rows, trust};
use super::case::capital;
use super::table::{Points, Table, brief, findings, heaviest_side, tables};
use super::{Case, Held, Report};
use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use comfy_table::{ContentArrangement, TableStyle};
use std::fmt::Write as _;

/// Columns of a terminal that a table may take.
pub(crate) const WIDTH: u16 = 120;

/// For a terminal.
pub fn terminal(report: &Report) -> String {
    let mut out = format!("{}\n\n{}\n\n{}", report.title, headline(report), opening(report, ""));
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
    let mut out =
        format!("# {}\n\n**{}**\n\n{}", report.title, headline(report), opening(report, "- "));
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

/// What the answer stands for, and how far to trust it: lines that begin with `bullet`.
fn opening(report: &Report, bullet: &str) -> String {
    let mut out = caveat(report).map_or(String::new(), |caveat| format!("{caveat}\n\n"));
    for one in trust(report) {
        let _ = writeln!(out, "{bullet}{} {}: {}", mark(one.good), one.name, one.seen);
    }
    let _ = writeln!(out, "\n{}\n", report.bench.description);
    out
}

/// Every verdict, what the tables come to, and what to know before believing them.
fn summary(report: &Report) -> Vec<String> {
    let verdicts = rows(report).into_iter().map(|row| format!("{}.", row.words()));
    let thresholds = report.thresholds.iter().map(|held| {
        let Held { condition, load, met, seen } = held;
        format!("{} Fails if {condition} ({load}): {seen}", mark(!met))
    });
    let notes = report.notes.iter().cloned();
    verdicts.chain(remarks(report)).chain(thresholds).chain(notes).collect()
}

/// What the tables show beside the verdicts: stalls, losses, and of arms that are compared the side that was busiest.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    let cases = &report.cases;
    let several = Points::of(cases).is_none();
    let busiest = cases.iter().filter(|_| several).filter_map(busiest);
    findings(report).into_iter().chain(busiest).collect()
}

fn busiest(case: &Case) -> Option<String> {
    let side = if case.truth.is_none() { heaviest_side(case)? } else { return None };
    Some(format!("{}: {side}", capital(&case.setting.words())))
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
