//! The tables of a report, as rows of words. Terminal, Markdown and HTML show the same tables.

mod points;

pub(super) use points::Points;

use super::case::capital;
use super::{ArmFigures, Case, Report};
use crate::measure::{Measure, RECEIVING, THROUGHPUT};
use crate::meter::BUSIEST;
use crate::plan::MOVES;
use serde::Serialize;
use statistics::{Better, Comparison, Summary};
use std::collections::BTreeMap;

/// Processors that the switch's threads used.
const PROCESSORS: Measure = Measure {
    key: "switch_run_s_per_s",
    improvement: "switch_run_s_per_s",
    label: "Switch (processors)",
    decimals: 3,
    ..RECEIVING
};

/// Columns of the table of phases.
const BY_PHASE: &[Measure] = &[
    Measure { label: "Mb/s", scale: 1e-6, decimals: 1, ..THROUGHPUT },
    PROCESSORS,
    Measure { key: "workers_in_use", label: "Workers in use", decimals: 1, ..PROCESSORS },
    Measure { key: MOVES, label: "Moves", decimals: 0, ..PROCESSORS },
];

/// One table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Table {
    /// Title above the table.
    pub title: String,
    /// Column heads; the first is that of the row names.
    pub head: Vec<String>,
    /// Rows of as many cells as the head.
    pub rows: Vec<Vec<String>>,
}

/// Returns the words of a comparison for a cell.
pub(super) type Words = fn(&Measure, &Comparison) -> String;

/// Returns all tables of a report, in the order they are shown.
pub(super) fn tables(report: &Report, words: Words) -> Vec<Table> {
    if report.cases.iter().any(|case| case.truth.is_some()) {
        return vec![tries(report, words)];
    }
    if let Some(points) = Points::of(&report.cases) {
        return points.tables(report.measures);
    }
    let mut tables = Vec::new();
    for case in &report.cases {
        let title = capital(&format!("{}, {}", case.setting.words(), taken(case)));
        tables.push(measured(&title, case, report.measures, words));
        tables.extend(gains(case, report.measures, words));
        tables.extend(phases(case));
        tables.extend(by_side(case));
        tables.extend(switched(case));
    }
    for case in &report.latency {
        let title = format!("{}, {}", capital(&case.setting.words()), taken(case));
        tables.push(measured(&title, case, report.latency_measures, words));
    }
    tables
}

/// Returns the table with a row for each try.
fn tries(report: &Report, words: Words) -> Table {
    let row = |(place, case): (usize, &Case)| {
        let truth = case.truth.map_or(0.0, |truth| (truth - 1.0) * 100.0);
        let label = format!("Try {}, {truth:+.0} % is right", place + 1);
        comparison_row(label, &case.comparisons, report.measures, words)
    };
    Table {
        title: "Change that each try found".to_owned(),
        head: heads(report.measures),
        rows: report.cases.iter().enumerate().map(row).collect(),
    }
}

fn taken(case: &Case) -> String {
    format!("intervals of {} s, median (min–max)", case.interval_s)
}

/// Returns the column heads of a table of figures over intervals.
fn heads(measures: &[Measure]) -> Vec<String> {
    let own = measures.iter().map(|measure| measure.label);
    ["", "Intervals"].into_iter().chain(own).map(str::to_owned).collect()
}

/// Returns an arm's row: its intervals and its figures.
fn arm_row(label: String, arm: &ArmFigures, measures: &[Measure]) -> Vec<String> {
    let count = match arm.stalled {
        0 => arm.intervals.to_string(),
        stalled => format!("{}, {stalled} without bytes", arm.intervals),
    };
    let cells = measures.iter().map(|measure| spread(arm.figures.get(measure.key), measure));
    [label, count].into_iter().chain(cells).collect()
}

/// Returns a row of comparisons: their pairs, and the change of each measure.
fn comparison_row(
    label: String,
    found: &BTreeMap<String, Comparison>,
    measures: &[Measure],
    words: Words,
) -> Vec<String> {
    let pairs = found.values().map(|found| found.pairs).max().unwrap_or(0);
    let cells = measures.iter().map(|measure| match found.get(measure.improvement) {
        None => "not measured".to_owned(),
        Some(found) if found.pairs < pairs => {
            format!("{}, {} pairs", words(measure, found), found.pairs)
        }
        Some(found) => words(measure, found),
    });
    [label, format!("{pairs} pairs")].into_iter().chain(cells).collect()
}

/// Returns the table of Microsoft's guide: a row for each arm, the change, and then each peer with
/// the comparison of an own arm with it.
fn measured(title: &str, case: &Case, measures: &[Measure], words: Words) -> Table {
    let row = |arm: &ArmFigures| arm_row(arm.label.clone(), arm, measures);
    let mut rows: Vec<Vec<String>> = case.own_arms().map(|(_, arm)| row(arm)).collect();
    let name = if case.steps.is_empty() { "Change" } else { "All steps together" };
    rows.push(comparison_row(name.to_owned(), &case.comparisons, measures, words));
    let first = case.arms_in_order().nth(case.stepped()).map_or("", |arm| arm.label.as_str());
    for (peer, found) in case.peers_in_order() {
        rows.push(row(peer));
        rows.push(comparison_row(format!("{first}, against it"), found, measures, words));
    }
    Table { title: title.to_owned(), head: heads(measures), rows }
}

/// Returns the table of each step's gain over the one before it.
fn gains(case: &Case, measures: &[Measure], words: Words) -> Option<Table> {
    let labels = case.arms_in_order().skip(1).map(|arm| arm.label.clone());
    let rows = labels.zip(&case.steps);
    (!case.steps.is_empty()).then(|| Table {
        title: format!("Gain of each step against the one before it, {}", case.setting.words()),
        head: heads(measures),
        rows: rows.map(|(label, found)| comparison_row(label, found, measures, words)).collect(),
    })
}

/// Returns the table with a row for each phase and arm, with the phase's length.
fn phases(case: &Case) -> Option<Table> {
    let row = |arm: ArmFigures| lossy_row(arm.label.clone(), &arm, BY_PHASE);
    (!case.phases.is_empty()).then(|| Table {
        title: "Phases of each interval: median (min–max) over the last three quarters of each; moves and losses count from its start"
            .to_owned(),
        head: lossy_heads(BY_PHASE),
        rows: case.phase_arms().map(row).collect(),
    })
}

fn spread(summary: Option<&Summary>, measure: &Measure) -> String {
    let Some(summary) = summary else { return "not measured".to_owned() };
    let show = |value: f64| format!("{:.*}", measure.decimals, value * measure.scale);
    format!("{} ({}–{})", show(summary.median), show(summary.min), show(summary.max))
}

/// Returns sentences about faults of arms: intervals without a byte, much loss, and many
/// retransmissions.
pub(super) fn findings(report: &Report) -> Vec<String> {
    let cases = report.cases.iter().chain(&report.latency);
    let arms = cases.flat_map(|case| {
        let all = case.arms_in_order().cloned().chain(case.phase_arms());
        all.map(move |arm| (case, arm))
    });
    let mut lines = Vec::new();
    for (case, arm) in arms {
        let ArmFigures { label, stalled, intervals, .. } = &arm;
        let words = case.setting.words();
        // One arm alone needs no name.
        let which = if case.arms.len() > 1 { format!("{label} ({words})") } else { words };
        if *stalled > 0 {
            lines.push(format!(
                "STALLED: {which}: {stalled} of {intervals} intervals without a byte."
            ));
        }
        for (what, loss) in LOSSES.iter().zip([arm.lost, arm.resent]) {
            let Some((loss, warning)) = loss.and_then(|loss| Some((loss, loss.warning()?))) else {
                continue;
            };
            let (per_s, percent) = (loss.per_s, loss.percent);
            let what = what.to_lowercase();
            lines.push(format!("{warning}: {which}: {percent:.2} % {what}, {per_s:.0}/s."));
        }
    }
    lines
}

/// A column of medians: key, head, decimals.
type Column = (&'static str, &'static str, usize);

/// Columns of each side's processor time.
pub(super) const SIDES: &[Column] = &[
    ("sender_cpu_s_per_s", "Sender", 2),
    ("switch_cpu_s_per_s", "Switch", 2),
    ("receiver_cpu_s_per_s", "Receiver", 2),
    ("softirq_cpu_s_per_s", "Kernel, shared", 2),
    ("others_cpu_s_per_s", "Others", 2),
    ("switch_cpu_s_per_gib", "Switch s/GiB", 2),
    ("receiver_cpu_s_per_gib", "Receiver s/GiB", 2),
];

/// Columns of the switch's frames.
const FRAMES: &[Column] = &[
    ("ingress_frame_bytes", "Bytes/frame in", 0),
    ("segments_per_train", "Segments/frame out", 2),
];

/// Returns the table of each side's processor time, and of the busiest processor.
fn by_side(case: &Case) -> Option<Table> {
    let title = "Processor use (CPU seconds per second, and per GiB; medians). Kernel, shared: time that belongs to no \
                 program";
    if !case.arms.values().any(|arm| busiest(arm).is_some()) {
        return medians(title, case, SIDES, &[], |_| Vec::new());
    }
    let title = format!(
        "{title}. Busiest processor: its number, its busy share, and the share of soft interrupts in that"
    );
    let cell = |arm: &ArmFigures| busiest(arm).unwrap_or_else(|| "–".to_owned());
    medians(&title, case, SIDES, &["Busiest processor"], |arm| vec![cell(arm)])
}

/// Returns `0: 98 % (61 % softirq)`, without the processor's number if that varies.
fn busiest(arm: &ArmFigures) -> Option<String> {
    let [number, busy, softirq] = BUSIEST.map(|key| arm.figures.get(key));
    let number = number.filter(|number| number.min == number.max);
    let number = number.map_or(String::new(), |number| format!("{}: ", number.median));
    let (busy, softirq) = (busy?.median, softirq?.median);
    Some(format!("{number}{busy:.0} % ({softirq:.0} % softirq)"))
}

/// Returns the table of the switch's frames, which proves that the arms differed, with the losses.
fn switched(case: &Case) -> Option<Table> {
    let title = "Frames from the sender to the switch and from the switch to the receiver (medians), and losses and \
                 retransmissions (all intervals)";
    medians(title, case, FRAMES, &LOSSES, |arm| losses(arm).into())
}

/// Returns a row of medians for each arm, without the columns that no arm has; `None` if no column
/// is left.
fn medians(
    title: &str,
    case: &Case,
    columns: &[Column],
    more: &[&str],
    further: impl Fn(&ArmFigures) -> Vec<String>,
) -> Option<Table> {
    let arms: Vec<&ArmFigures> = case.arms_in_order().collect();
    let known = |(key, ..): &&Column| arms.iter().any(|arm| arm.median(key).is_some());
    let columns: Vec<_> = columns.iter().filter(known).collect();
    let row = |arm: &&ArmFigures| {
        let cell = |(key, _, decimals): &&Column| {
            arm.median(key).map_or("–".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let cells = columns.iter().map(cell).chain(further(arm));
        std::iter::once(arm.label.clone()).chain(cells).collect()
    };
    let heads =
        columns.iter().map(|(_, label, _)| *label).chain(more.iter().copied()).map(str::to_owned);
    (!columns.is_empty()).then(|| Table {
        title: title.to_owned(),
        head: std::iter::once(String::new()).chain(heads).collect(),
        rows: arms.iter().map(row).collect(),
    })
}

/// Returns the heads of [`lossy_row`].
fn lossy_heads(measures: &[Measure]) -> Vec<String> {
    heads(measures).into_iter().chain(LOSSES.map(str::to_owned)).collect()
}

/// Returns an arm's row with its losses.
fn lossy_row(label: String, arm: &ArmFigures, measures: &[Measure]) -> Vec<String> {
    arm_row(label, arm, measures).into_iter().chain(losses(arm)).collect()
}

/// Heads of [`losses`].
const LOSSES: [&str; 2] = ["Lost frames", "Resent segments"];

/// Returns an arm's lost frames, and its sender's retransmissions, in words.
fn losses(arm: &ArmFigures) -> [String; 2] {
    [arm.lost, arm.resent].map(|loss| loss.map_or("–".to_owned(), |loss| loss.words()))
}

/// Returns the side that used most processor time in the first arm.
pub(super) fn heaviest_side(case: &Case) -> Option<String> {
    let on = case.arms_in_order().next()?;
    let sides = SIDES.iter().take(3);
    let used = sides.filter_map(|(key, label, _)| Some((*label, on.median(key)?)));
    let (label, seconds) = used.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let busiest = busiest(on).map_or(String::new(), |said| format!(" Busiest processor {said}."));
    Some(format!(
        "The {} used the most processor time: {seconds:.2} of a core.{busiest}",
        label.to_lowercase()
    ))
}

/// Returns an arrow that says whether a larger or a smaller figure is better.
pub(super) fn arrow(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}
