//! What a run comes to: a table of ratios for people, and a file with every sample for everyone else.

use crate::case::{Case, Unit};
use crate::measure::Sample;
use crate::peer::Peer;
use crate::run::{Outcome, Plan, Taken};
use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table};
use lab::report::{Machine, now_utc};
use lab::statistics::{Better, Interval, compare, median};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Millrace against one peer in one case. What is absent was not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) unit: Unit,
    pub(crate) peer: &'static str,
    #[serde(flatten)]
    pub(crate) whole: Contest,
    /// The same of [`Sample::undisturbed`].
    pub(crate) undisturbed: Contest,
    /// Processors that each took, on average.
    pub(crate) our_cores: Option<f64>,
    pub(crate) their_cores: Option<f64>,
}

/// Two switches side by side. Values are medians in the case's unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Contest {
    pub(crate) ours: Option<f64>,
    pub(crate) theirs: Option<f64>,
    /// Ours divided by theirs, the median of all rounds.
    pub(crate) ratio: Option<f64>,
    /// Where the ratio lies in 99 of 100 such runs.
    pub(crate) spread: Option<Interval>,
    /// Rounds with both.
    pub(crate) n: usize,
}

/// The file.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'r> {
    pub(crate) written: String,
    pub(crate) machine: Machine,
    pub(crate) switch_core: usize,
    pub(crate) generator_core: usize,
    pub(crate) interval_s: f64,
    pub(crate) rounds: usize,
    /// What each switch says of itself, or why it is left out.
    pub(crate) versions: BTreeMap<&'static str, String>,
    pub(crate) cases: &'r [Case],
    pub(crate) rows: &'r [Row],
    pub(crate) samples: &'r [Taken],
}

/// A row for each case and peer, in the order of the plan.
pub(crate) fn rows(plan: &Plan, taken: &[Taken]) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in &plan.cases {
        let others = plan.peers.iter().filter(|peer| **peer != Peer::Millrace && peer.runs(case));
        rows.extend(others.map(|peer| row(case, *peer, taken)));
    }
    rows
}

fn row(case: &Case, peer: Peer, taken: &[Taken]) -> Row {
    let cores = |of: Peer| middle(&values(case, of, taken, |sample| sample.cores));
    Row {
        case: case.name,
        unit: case.unit,
        peer: peer.name(),
        whole: contest(case, peer, taken, |sample| sample.value),
        undisturbed: contest(case, peer, taken, |sample| sample.undisturbed),
        our_cores: cores(Peer::Millrace),
        their_cores: cores(peer),
    }
}

fn contest(case: &Case, peer: Peer, taken: &[Taken], of: fn(&Sample) -> f64) -> Contest {
    let [ours, theirs] = [Peer::Millrace, peer].map(|peer| values(case, peer, taken, of));
    let both = || ours.keys().filter(|round| theirs.contains_key(round));
    let pick = |values: &BTreeMap<usize, f64>| -> Vec<f64> {
        both().filter_map(|round| values.get(round).copied()).collect()
    };
    let better = if case.unit == Unit::Microseconds { Better::Lower } else { Better::Higher };
    let comparison = compare(&pick(&ours), &pick(&theirs), better.into());
    Contest {
        ours: middle(&ours),
        theirs: middle(&theirs),
        ratio: comparison.map(|comparison| comparison.ratio),
        spread: comparison.map(|comparison| comparison.interval),
        n: comparison.map_or(0, |comparison| comparison.pairs),
    }
}

fn middle(values: &BTreeMap<usize, f64>) -> Option<f64> {
    median(&values.values().copied().collect::<Vec<_>>())
}

/// By round.
fn values(
    case: &Case,
    peer: Peer,
    taken: &[Taken],
    of: fn(&Sample) -> f64,
) -> BTreeMap<usize, f64> {
    let here = taken.iter().filter(|taken| taken.case == case.name && taken.peer == peer);
    here.filter_map(|taken| match &taken.outcome {
        Outcome::Sample(sample) => Some((taken.round, of(sample))),
        Outcome::Failure(_) => None,
    })
    .collect()
}

/// As it is printed: a line for the whole intervals, and one for what was left undisturbed of them.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "Case", "Peer", "Of it", "Millrace", "Peer", "Unit", "Ratio", "Spread", "n", "Cores",
    ]);
    for row in rows {
        for (what, contest) in [("all", &row.whole), ("undisturbed", &row.undisturbed)] {
            table.add_row(line(row, what, contest));
        }
    }
    table.to_string()
}

fn line(row: &Row, what: &str, contest: &Contest) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let number =
        |value: Option<f64>| right(value.map_or("–".to_owned(), |value| format!("{value:.2}")));
    let spread = contest.spread;
    let spread = spread.map_or("–".to_owned(), |it| format!("{:.2}–{:.2}", it.low, it.high));
    vec![
        Cell::new(row.case),
        Cell::new(row.peer),
        Cell::new(what),
        number(contest.ours),
        number(contest.theirs),
        Cell::new(row.unit.name()),
        number(contest.ratio),
        Cell::new(spread),
        right(contest.n.to_string()),
        Cell::new(cores(row)),
    ]
}

/// Ours and theirs.
fn cores(row: &Row) -> String {
    let text = |cores: Option<f64>| cores.map_or("–".to_owned(), |cores| format!("{cores:.2}"));
    format!("{} / {}", text(row.our_cores), text(row.their_cores))
}

/// Writes the file, with the folder it is in.
pub(crate) fn write(
    path: &Path,
    machine: Machine,
    plan: &Plan,
    versions: BTreeMap<&'static str, String>,
    rows: &[Row],
    samples: &[Taken],
) -> Result<()> {
    let report = Report {
        written: now_utc(),
        machine,
        switch_core: plan.switch_core,
        generator_core: plan.generator_core,
        interval_s: plan.interval.as_secs_f64(),
        rounds: plan.rounds,
        versions,
        cases: &plan.cases,
        rows,
        samples,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(&report)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
