//! A comparison for people, as text and as an HTML page.

use super::{Change, Comparison, Difference};
use crate::LabError;
use crate::report::{self, Grade, Light, Row, Screen, Tile, WIDTH, capital, level};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement};
use statistics::{FEWEST_PAIRS, Verdict};

/// Returns the comparison as text for a terminal: the answer, a table for each load and arm, and the
/// answer again.
pub fn text(comparison: &Comparison) -> String {
    let Comparison { before, after, experiment, .. } = comparison;
    let answer = answer(comparison);
    let mut lines = vec![
        format!("{answer}\n"),
        format!(
            "{experiment}: {} ({}, millrace {}) against {} ({}, millrace {})",
            before.file, before.date, before.millrace, after.file, after.date, after.millrace
        ),
    ];
    let same = |one: &Change, next: &Change| (one.setting, &one.arm) == (next.setting, &next.arm);
    for own in comparison.figures.chunk_by(same) {
        let title = own.first().map(title).unwrap_or_default();
        lines.push(format!("\n{}\n{}", capital(&title), table(own)));
    }
    lines.push(String::new());
    lines.extend(differences(comparison));
    lines.push(answer);
    lines.join("\n") + "\n"
}

/// Returns `guest receives, 1 connection: RSC in the vSwitch Enabled`.
fn title(change: &Change) -> String {
    format!("{}: {}", change.setting.words(), change.arm_label)
}

/// Returns the table of one load's arm, each figure in one line.
fn table(changes: &[Change]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(["Figure", "Before", "After", "Change", ""]);
    table.add_rows(changes.iter().map(row));
    for column in table.column_iter_mut().skip(1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Returns the comparison as an HTML page.
///
/// # Errors
/// The page cannot be rendered.
pub fn page(comparison: &Comparison) -> Result<String, LabError> {
    let line = |change: &Change| {
        let [figure, before, after, _, verdict] = row(change);
        let (load, subject) = (change.setting.words(), change.arm_label.clone());
        let question = format!("{subject}: {figure}");
        let answer = format!("{before} → {after}, {verdict}");
        Row { load, subject, measure: change.measure, question, answer, found: change.found }
    };
    let rows: Vec<Row> = comparison.figures.iter().map(line).collect();
    report::comparison(comparison, &screen(comparison), &differences(comparison), &rows)
        .map_err(|error| LabError::Compare(error.to_string()))
}

/// Most tiles of a page.
const TILES: usize = 6;

/// Returns the first screen: what changed, regressions first.
fn screen(comparison: &Comparison) -> Screen {
    let (grade, word) = match comparison.exit_code() {
        0 if !comparison.differences.is_empty() => {
            (Grade::Doubt, "no regression, but the circumstances differ:")
        }
        0 => (Grade::Fine, "no regression"),
        1 => (Grade::Bad, "regression"),
        _ => (Grade::Doubt, "not all can be told"),
    };
    let mut changed: Vec<&Change> = comparison.figures.iter().collect();
    let is_change =
        |change: &&Change| matches!(change.found.verdict, Verdict::Improved | Verdict::Worse);
    changed.retain(is_change);
    changed.sort_by_key(|change| (!change.regression, change.found.verdict == Verdict::Improved));
    let tile = |change: &&Change| {
        let [figure, before, after, moved, verdict] = row(change);
        let improved = change.found.verdict == Verdict::Improved;
        Tile {
            title: format!("{figure}, {}", title(change)),
            value: format!("{before} → {after}"),
            unit: String::new(),
            note: format!("{moved}, {verdict}"),
            class: if improved { "better" } else { "worse" },
        }
    };
    let tiles = changed.iter().take(TILES).map(tile).collect();
    let differences = comparison.differences.iter().map(|one| format!("{} differs", one.what));
    let reasons = match comparison.differences.is_empty() {
        true => vec!["both ran under the same circumstances".to_owned()],
        false => differences.collect(),
    };
    Screen { headline: answer(comparison), light: Light { grade, word, reasons }, tiles }
}

/// Returns the answer in a line.
fn answer(comparison: &Comparison) -> String {
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
    let better = count(comparison, Verdict::Improved);
    let worse = count(comparison, Verdict::Worse).saturating_sub(comparison.regressions);
    for (count, what) in [(worse, "worse within the tolerance"), (better, "better")] {
        if count > 0 {
            answer.push(format!("{count} {what}."));
        }
    }
    answer.join(" ")
}

fn count(comparison: &Comparison, verdict: Verdict) -> usize {
    comparison.figures.iter().filter(|change| change.found.verdict == verdict).count()
}

/// Returns the other differences of the two reports.
fn differences(comparison: &Comparison) -> Vec<String> {
    let missing = comparison.missing.iter().map(|what| format!("Not in both: {what}"));
    let known = |fact: &Option<String>| fact.clone().unwrap_or("not recorded".into());
    let differs = |Difference { what, before, after }: &Difference| {
        format!("{what} differs: {} before, {} after", known(before), known(after))
    };
    missing.chain(comparison.differences.iter().map(differs)).collect()
}

/// Returns a figure's name, its medians before and after, the change, and the verdict.
fn row(change: &Change) -> [String; 5] {
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
        measure.label.to_owned(),
        show(change.before),
        show(change.after),
        format!(
            "{} % ({} to {} at {} %)",
            percent(found.ratio),
            percent(found.interval.low),
            percent(found.interval.high),
            level(found.level)
        ),
        verdict.to_owned(),
    ]
}
