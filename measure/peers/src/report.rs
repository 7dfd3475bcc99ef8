//! The result of a run: a table of ratios for people, and a file with every sample for programs.

use crate::case::{Case, Unit};
use crate::measure::{Sample, Slice};
use crate::peer::Peer;
use crate::run::{Measurement, Plan};
use crate::uplink::Results;
use anyhow::{Context, Result};
use chrono::{SecondsFormat, Utc};
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;
use statistics::{Better, Interval, compare, compare_independent, median, quantile};
use std::collections::BTreeMap;
use std::path::Path;
use traffic::measure::Machine;

/// The fewest slices that a part of a sample needs to count: a quarter of a second.
const FEWEST_SLICES: usize = 5;

/// Millrace compared with one peer in one case. Absent values were not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) unit: Unit,
    pub(crate) peer: &'static str,
    /// Comparison over whole samples.
    #[serde(flatten)]
    pub(crate) whole: Comparison,
    /// Comparison over the slices in which the cores were [near](near_within) each other.
    pub(crate) near: Comparison,
    /// Comparison over all other slices.
    pub(crate) far: Comparison,
    /// Mean number of processors that Millrace and the peer kept busy.
    pub(crate) our_cores: Option<f64>,
    pub(crate) their_cores: Option<f64>,
}

/// Two switches compared. Values are medians in the case's unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) ours: Option<f64>,
    pub(crate) theirs: Option<f64>,
    /// Median over all rounds of Millrace's value divided by the peer's.
    pub(crate) ratio: Option<f64>,
    /// Confidence interval of the ratio at 99 %.
    pub(crate) spread: Option<Interval>,
    /// Rounds with samples of both; for near and far, those of the switch with fewer.
    pub(crate) n: usize,
    /// Median round trip between the cores, in nanoseconds.
    pub(crate) round_trip_ns: Option<f64>,
}

/// The contents of the file.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'r> {
    pub(crate) written: String,
    pub(crate) machine: Machine,
    pub(crate) switch_core: usize,
    pub(crate) generator_core: usize,
    pub(crate) interval_s: f64,
    pub(crate) rounds: usize,
    /// The version that each switch reports, or why it is left out.
    pub(crate) versions: BTreeMap<&'static str, String>,
    pub(crate) cases: &'r [Case],
    pub(crate) rows: &'r [Row],
    pub(crate) samples: &'r [Measurement],
    pub(crate) uplink: &'r Results,
}

/// Part of a sample's slices.
#[derive(Clone, Copy)]
enum Part {
    Near,
    Far,
}

/// Returns the longest round trip, in nanoseconds, between cores that count as near: twice the 5th
/// percentile. On a machine whose cores do not move, all are near. `None` without slices.
fn near_within(measurements: &[Measurement]) -> Option<f64> {
    let mut all: Vec<f64> = slices(measurements).map(|slice| slice.round_trip_ns).collect();
    all.sort_by(f64::total_cmp);
    quantile(&all, 0.05).map(|shortest| 2.0 * shortest)
}

fn slices(measurements: &[Measurement]) -> impl Iterator<Item = &Slice> {
    measurements.iter().filter_map(|one| one.outcome.sample()).flat_map(|sample| &sample.slices)
}

/// Returns a row for each case and peer, in the order of the plan.
pub(crate) fn rows(plan: &Plan, measurements: &[Measurement]) -> Vec<Row> {
    let near = near_within(measurements).unwrap_or_default();
    let mut rows = Vec::new();
    for case in &plan.cases {
        let others = plan.peers.iter().filter(|peer| **peer != Peer::Millrace && peer.runs(case));
        rows.extend(others.map(|peer| row(case, *peer, measurements, near)));
    }
    rows
}

fn row(case: &Case, peer: Peer, measurements: &[Measurement], near: f64) -> Row {
    let cores = |of: Peer| middle(&values(case, of, measurements, |sample| Some(sample.cores)));
    let part = |part| {
        let of = |sample: &Sample| sample.part(part, near).map(|(value, _)| value);
        let comparison = comparison(case, peer, measurements, of, Pairing::None);
        let round_trips =
            |of| values(case, of, measurements, |sample| Some(sample.part(part, near)?.1));
        let both: Vec<f64> = [Peer::Millrace, peer]
            .into_iter()
            .flat_map(|of| round_trips(of).into_values())
            .collect();
        Comparison { round_trip_ns: median(&both), ..comparison }
    };
    Row {
        case: case.name,
        unit: case.unit,
        peer: peer.name(),
        whole: comparison(case, peer, measurements, |sample| Some(sample.value), Pairing::ByRound),
        near: part(Part::Near),
        far: part(Part::Far),
        our_cores: cores(Peer::Millrace),
        their_cores: cores(peer),
    }
}

impl Sample {
    /// Returns the medians of value and round trip over the slices of one part; `None` if it has
    /// too few.
    fn part(&self, part: Part, near: f64) -> Option<(f64, f64)> {
        let belongs = |slice: &&Slice| (slice.round_trip_ns <= near) == matches!(part, Part::Near);
        let (values, round_trips): (Vec<f64>, Vec<f64>) = self
            .slices
            .iter()
            .filter(belongs)
            .map(|slice| (slice.value, slice.round_trip_ns))
            .unzip();
        if values.len() < FEWEST_SLICES {
            return None;
        }
        Some((median(&values)?, median(&round_trips)?))
    }
}

/// How samples of two switches are paired.
#[derive(Clone, Copy)]
enum Pairing {
    /// Samples of the same round are pairs.
    ByRound,
    /// No pairs: the cores are rarely near, or far, for both switches of a round.
    None,
}

fn comparison(
    case: &Case,
    peer: Peer,
    measurements: &[Measurement],
    of: impl Fn(&Sample) -> Option<f64>,
    pairing: Pairing,
) -> Comparison {
    let [mut ours, mut theirs] =
        [Peer::Millrace, peer].map(|peer| values(case, peer, measurements, &of));
    if matches!(pairing, Pairing::ByRound) {
        ours.retain(|round, _| theirs.contains_key(round));
        theirs.retain(|round, _| ours.contains_key(round));
    }
    let better = if case.unit == Unit::Microseconds { Better::Lower } else { Better::Higher };
    let compare = match pairing {
        Pairing::ByRound => compare,
        Pairing::None => compare_independent,
    };
    let comparison = compare(&all(&ours), &all(&theirs), better.into());
    Comparison {
        ours: middle(&ours),
        theirs: middle(&theirs),
        ratio: comparison.map(|comparison| comparison.ratio),
        spread: comparison.map(|comparison| comparison.interval),
        n: comparison.map_or(0, |comparison| comparison.pairs),
        round_trip_ns: None,
    }
}

fn all(values: &BTreeMap<usize, f64>) -> Vec<f64> {
    values.values().copied().collect()
}

fn middle(values: &BTreeMap<usize, f64>) -> Option<f64> {
    median(&all(values))
}

/// Returns the values of one switch in one case, by round.
fn values(
    case: &Case,
    peer: Peer,
    measurements: &[Measurement],
    of: impl Fn(&Sample) -> Option<f64>,
) -> BTreeMap<usize, f64> {
    let here = measurements.iter().filter(|one| one.case == case.name && one.peer == peer);
    here.filter_map(|one| Some((one.round, of(one.outcome.sample()?)?))).collect()
}

/// Returns the table as text: a line for the whole intervals, and one each for near and far cores
/// if there were any.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "Case",
        "Peer",
        "Cores are",
        "Millrace",
        "Peer",
        "Unit",
        "Ratio",
        "Spread",
        "n",
        "Taken",
        "Round trip",
    ]);
    for row in rows {
        table.add_row(line(row, "all", &row.whole));
        for (what, comparison) in [("near", &row.near), ("far", &row.far)] {
            if comparison.ratio.is_some() {
                table.add_row(line(row, what, comparison));
            }
        }
    }
    table.to_string()
}

fn line(row: &Row, what: &str, comparison: &Comparison) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let number =
        |value: Option<f64>| right(value.map_or("–".to_owned(), |value| format!("{value:.2}")));
    let spread = comparison.spread;
    let spread = spread.map_or("–".to_owned(), |it| format!("{:.2}–{:.2}", it.low, it.high));
    vec![
        Cell::new(row.case),
        Cell::new(row.peer),
        Cell::new(what),
        number(comparison.ours),
        number(comparison.theirs),
        Cell::new(row.unit.name()),
        number(comparison.ratio),
        Cell::new(spread),
        right(comparison.n.to_string()),
        Cell::new(cores(row)),
        right(comparison.round_trip_ns.map_or("–".to_owned(), |time| format!("{time:.0} ns"))),
    ]
}

/// Returns the processors of Millrace and of the peer.
fn cores(row: &Row) -> String {
    let text = |cores: Option<f64>| cores.map_or("–".to_owned(), |cores| format!("{cores:.2}"));
    format!("{} / {}", text(row.our_cores), text(row.their_cores))
}

/// Writes the file, and creates its directory.
pub(crate) fn write(
    path: &Path,
    machine: Machine,
    plan: &Plan,
    versions: BTreeMap<&'static str, String>,
    rows: &[Row],
    samples: &[Measurement],
    uplink: &Results,
) -> Result<()> {
    let report = Report {
        written: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
        machine,
        switch_core: plan.switch_core,
        generator_core: plan.generator_core,
        interval_s: plan.interval.as_secs_f64(),
        rounds: plan.rounds,
        versions,
        cases: &plan.cases,
        rows,
        samples,
        uplink,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(&report)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
