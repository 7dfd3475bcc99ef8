//! A comparison for people, as text and as an HTML page.

use super::{Change, Comparison, Difference};
use crate::LabError;
use crate::report::{self, Row, WIDTH, level};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement};
use statistics::{FEWEST_PAIRS, Verdict};

/// Returns the comparison as text for a terminal.
pub fn text(comparison: &Comparison) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(["Load", "Arm", "Figure", "Before", "After", "Change", ""]);
    table.add_rows(comparison.figures.iter().map(row));
    for place in 3..6 {
        if let Some(column) = table.column_mut(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let Comparison { before, after, experiment, .. } = comparison;
    let lines = said(comparison).concat().join("\n");
    format!(
        "{experiment}: {} ({}, millrace {}) against {} ({}, millrace {})\n\n{table}\n\n{lines}\n",
        before.file, before.date, before.millrace, after.file, after.date, after.millrace
    )
}

/// Returns the comparison as an HTML page.
///
/// # Errors
/// The page cannot be rendered.
pub fn page(comparison: &Comparison) -> Result<String, LabError> {
    let row = |change: &Change| {
        let [load, arm, figure, before, after, _, verdict] = row(change);
        let (load, question) = (load.replace('\n', " "), format!("{arm}: {figure}"));
        let answer = format!("{before} → {after}, {verdict}");
        Row { load, question, answer, found: change.found }
    };
    let rows: Vec<Row> = comparison.figures.iter().map(row).collect();
    report::comparison(comparison, &said(comparison), &rows)
        .map_err(|error| LabError::Compare(error.to_string()))
}

/// Returns the answer, and the other differences of the two reports.
fn said(comparison: &Comparison) -> [Vec<String>; 2] {
    let tolerance = comparison.tolerance * 100.0;
    let few = comparison.too_few_samples;
    let told = comparison.figures.len() - few;
    let mut answer = match comparison.regressions {
        0 if told == 0 => Vec::new(),
        0 => vec![format!("No regression beyond {tolerance} % in {told} figures.")],
        1 => vec![format!("1 regression beyond {tolerance} %.")],
        count => vec![format!("{count} regressions beyond {tolerance} %.")],
    };
    if few > 0 {
        answer.push(format!(
            "Too few samples to tell in {few} figures: run both with --repetitions {FEWEST_PAIRS} or more."
        ));
    }
    if !comparison.missing.is_empty() {
        answer.push(format!("Found in one of them only: {}.", comparison.missing.len()));
    }
    let missing = comparison.missing.iter().map(|what| format!("Not in both: {what}"));
    let known = |fact: &Option<String>| fact.clone().unwrap_or("not recorded".into());
    let differs = |Difference { what, before, after }: &Difference| {
        format!("{what} differs: {} before, {} after", known(before), known(after))
    };
    [answer, missing.chain(comparison.differences.iter().map(differs)).collect()]
}

fn row(change: &Change) -> [String; 7] {
    let Change { measure, found, .. } = change;
    let show = |value: f64| format!("{:.*}", measure.decimals, value * measure.scale);
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    let verdict = match found.verdict {
        _ if change.regression => "REGRESSION",
        Verdict::Improved => "better",
        Verdict::Worse => "worse, within the tolerance",
        Verdict::NoDifferenceSeen | Verdict::Equivalent => "no difference seen",
        Verdict::TooFewSamples => "too few samples",
    };
    [
        change.setting.words().replace(", ", ",\n"),
        change.arm_label.clone(),
        measure.label.to_owned(),
        show(change.before),
        show(change.after),
        format!(
            "{} %\n({} to {} at {} %)",
            percent(found.ratio),
            percent(found.interval.low),
            percent(found.interval.high),
            level(found.level)
        ),
        verdict.to_owned(),
    ]
}
