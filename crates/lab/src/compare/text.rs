//! A comparison for people.

use super::{Change, Comparison, Difference};
use crate::report::{WIDTH, level};
use crate::statistics::{FEWEST_PAIRS, Verdict};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement};
use std::fmt::Write as _;

/// For a terminal.
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
    let mut out = format!(
        "{experiment}: {} ({}, millrace {}) against {} ({}, millrace {})\n\n{table}\n\n",
        before.file, before.date, before.millrace, after.file, after.date, after.millrace
    );
    let tolerance = comparison.tolerance * 100.0;
    let (few, missing) = (comparison.too_few_samples, &comparison.missing);
    let told = comparison.figures.len() - few;
    let _ = match comparison.regressions {
        0 if told == 0 => Ok(()),
        0 => writeln!(out, "No regression beyond {tolerance} % in {told} figures."),
        1 => writeln!(out, "1 regression beyond {tolerance} %."),
        count => writeln!(out, "{count} regressions beyond {tolerance} %."),
    };
    if few > 0 {
        let _ = writeln!(
            out,
            "Too few samples to tell in {few} figures: run both with --repetitions {FEWEST_PAIRS} or more."
        );
    }
    for what in missing {
        let _ = writeln!(out, "Not in both: {what}");
    }
    let known = |fact: &Option<String>| fact.clone().unwrap_or("not recorded".into());
    for Difference { what, before, after } in &comparison.differences {
        let (before, after) = (known(before), known(after));
        let _ = writeln!(out, "{what} differs: {before} before, {after} after");
    }
    out
}

fn row(change: &Change) -> [String; 7] {
    let measure = &change.measure;
    let show = |value: f64| format!("{:.*}", measure.decimals, value * measure.scale);
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    let verdict = match change.verdict {
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
            percent(change.ratio),
            percent(change.interval.low),
            percent(change.interval.high),
            level(change.level)
        ),
        verdict.to_owned(),
    ]
}
