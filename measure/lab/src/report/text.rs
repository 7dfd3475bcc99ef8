//! A report as text: for the terminal, and as Markdown to paste into a ticket.

use super::answer::{caveat, rows};
use super::case::capital;
use super::headline::{headline, worse};
use super::table::{Points, Table, findings, heaviest_side, tables};
use super::trust::{influences, light};
use super::verdict::brief;
use super::{Case, Check, Held, Report};
use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use comfy_table::{ContentArrangement, TableStyle};

/// Largest width of a table in a terminal, in columns.
pub(crate) const WIDTH: u16 = 120;

/// Returns the report for a terminal.
pub fn terminal(report: &Report) -> String {
    laid_out(report, false)
}

/// Returns the report as Markdown.
pub fn markdown(report: &Report) -> String {
    laid_out(report, true)
}

fn laid_out(report: &Report, marked: bool) -> String {
    let [title, bold, bullet, heading] = if marked { ["# ", "**", "- ", "## "] } else { [""; 4] };
    let mut lines = vec![format!("{title}{}\n\n{bold}{}{bold}\n", report.title, headline(report))];
    lines.extend(worse(report).iter().map(|worse| format!("{bullet}Worse: {worse}.")));
    lines.push(format!("{bullet}{}\n", light(report).words()));
    lines.extend(caveat(report).map(|caveat| format!("{caveat}\n")));
    let said = |mark: &str, name: &str, seen: &str| format!("{bullet}{mark} {name}: {seen}");
    let graded = influences(report);
    lines.extend(graded.iter().map(|one| said(one.grade.mark(), one.name, &one.seen)));
    lines.push(format!("\n{}\n", report.bench.description));
    if marked {
        let Report { date, millrace, machine, .. } = report;
        lines.push(format!("{date}, millrace {millrace}, {}\n", machine.words()));
    }
    let checked = |check: &Check| said(mark(check.passed), &check.name, &check.seen);
    lines.extend(report.checks.iter().map(checked));
    for mut table in tables(report, brief) {
        lines.push(format!("\n{heading}{}", table.title));
        lines.push(match marked {
            true => format!("\n{}", drawn(&table, ASCII_MARKDOWN)),
            false => fitted(&mut table).to_string(),
        });
    }
    lines.push(String::new());
    lines.extend(summary(report).iter().map(|line| format!("{bullet}{line}")));
    if marked {
        lines.push("\n## Commands\n\n```".to_owned());
        lines.extend(report.commands.iter().map(|line| format!("{}# {}", line.host, line.command)));
        lines.push("```".to_owned());
    }
    lines.join("\n") + "\n"
}

/// Returns every verdict, the conclusion from the tables, and the caveats.
fn summary(report: &Report) -> Vec<String> {
    let verdicts = rows(report).into_iter().map(|row| format!("{}.", row.words()));
    let thresholds = report.thresholds.iter().map(|held| {
        let Held { condition, load, met, seen } = held;
        format!("{} Fails if {condition} ({load}): {seen}", mark(!met))
    });
    let notes = report.notes.iter().cloned();
    verdicts.chain(remarks(report)).chain(thresholds).chain(notes).collect()
}

/// Returns what the tables show beside the verdicts: stalls, losses, and, if arms are compared, the
/// busiest side.
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

/// Fits a table into [`WIDTH`] columns of a terminal: if it is too wide, spreads go below their
/// medians.
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
