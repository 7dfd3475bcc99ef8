//! The first screen of a page below its answer: tiles with absolute numbers, and one chart of bars
//! with every arm beside the peers.

use super::answer::{by_receiver, load_words, throughput_first};
use super::case::capital;
use super::headline::compared_arms;
use super::quantity::{among, both};
use super::table::{Points, arrow};
use super::verdict::{brief, class, nouns};
use super::{Case, Report};
use crate::measure::Measure;
use serde::Serialize;
use statistics::Better;

/// Most tiles of a page.
const TILES: usize = 6;
/// Most bars of the chart.
const BARS: usize = 12;

/// One figure of one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tile {
    /// The load and the figure.
    pub title: String,
    /// Absolute numbers, such as `1.80 → 4.84`.
    pub value: String,
    /// Unit of the numbers.
    pub unit: String,
    /// The verdict in words.
    pub note: String,
    /// Class of the verdict.
    pub class: &'static str,
}

/// Bars of one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Group {
    heading: String,
    bars: Vec<Bar>,
}

/// The median of an arm, with the range of its intervals; lengths in per cent of the chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Bar {
    label: String,
    value: String,
    length: String,
    low: String,
    high: String,
    /// Whether it is an arm of a peer.
    is_peer: bool,
}

/// The chart of bars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Chart {
    title: String,
    groups: Vec<Group>,
}

/// Returns the tiles: the first measure for the first and the last load toward each receiver, the
/// cost of a byte, and round trips beside load.
pub(super) fn tiles(report: &Report) -> Vec<Tile> {
    let measures = throughput_first(report.measures);
    let shown = shown(report, measures.first().copied());
    let first = measures.first().into_iter();
    let rates =
        first.flat_map(|measure| shown.iter().filter_map(|case| tile(report, case, measure)));
    let cost = |measure: &&&Measure| measure.key.contains("cpu_s_per_gib");
    let cost = measures.iter().find(cost).or(measures.get(1)).into_iter();
    let costs = cost
        .flat_map(|measure| shown.iter().take(2).filter_map(|case| tile(report, case, measure)));
    let trips = report.latency.iter().rev().take(1).flat_map(|case| {
        report.latency_measures.iter().filter_map(|measure| tile(report, case, measure))
    });
    // Round trips come last, and are not pushed out by a second receiver.
    let trips: Vec<Tile> = trips.collect();
    let mut tiles: Vec<Tile> = rates.chain(costs).collect();
    tiles.truncate(TILES.saturating_sub(trips.len()));
    tiles.extend(trips);
    tiles
}

/// Returns the loads that have tiles: the fastest in each direction of a sweep, otherwise the first
/// and the last toward each receiver.
fn shown<'r>(report: &'r Report, measure: Option<&Measure>) -> Vec<&'r Case> {
    match (Points::of(&report.cases), measure) {
        (Some(_), Some(measure)) => best_by(report, measure, |case| case.setting.way),
        _ => by_receiver(&report.cases).flat_map(ends).collect(),
    }
}

/// Returns the case with the best median of its first arm for each key, in the order of the keys'
/// first cases.
fn best_by<'r, K: PartialEq>(
    report: &'r Report,
    measure: &Measure,
    key: impl Fn(&Case) -> K,
) -> Vec<&'r Case> {
    let value = |case: &Case| {
        let median = case.arms_in_order().next().and_then(|arm| arm.median(measure.key));
        median.map_or(f64::MIN, |median| match measure.better {
            Better::Higher => median,
            Better::Lower => -median,
        })
    };
    let mut best: Vec<&Case> = Vec::new();
    for case in &report.cases {
        match best.iter_mut().find(|known| key(known) == key(case)) {
            Some(known) if value(case) > value(known) => *known = case,
            Some(_) => {}
            None => best.push(case),
        }
    }
    best
}

/// Returns the first and the last of the cases.
fn ends(cases: &[Case]) -> Vec<&Case> {
    match cases {
        [] => Vec::new(),
        [only] => vec![only],
        [first, .., last] => vec![first, last],
    }
}

/// Returns the tile of a measure of a case; `None` without its figures in both arms.
fn tile(report: &Report, case: &Case, measure: &Measure) -> Option<Tile> {
    let load = if case.setting.is_round_trips() {
        case.setting.words()
    } else {
        load_words(case, &report.cases)
    };
    let noun = nouns(measure).0;
    let title = match case.setting.is_round_trips() {
        true => capital(noun) + load.trim_start_matches("round trips").trim_start_matches(','),
        false => format!("{}, {load}", capital(noun)),
    };
    let Some(arms) = compared_arms(case) else {
        let arm = case.order.first()?;
        let numbers = both(case, [arm, arm], measure)?;
        let (unit, value) = (numbers.unit().to_owned(), numbers.last());
        let value = value.strip_suffix(&unit).unwrap_or(&value).trim_end().to_owned();
        return Some(Tile { title, value, unit, note: String::new(), class: "open" });
    };
    let (numbers, found) = (both(case, arms, measure)?, case.comparisons.get(measure.improvement)?);
    Some(Tile {
        title,
        value: numbers.numbers(),
        unit: numbers.unit().to_owned(),
        note: brief(measure, found),
        class: class(found),
    })
}

/// Returns the chart of the first measure: every arm of the loads that have tiles, or, without
/// arms, every load; of many loads the best for each number of connections. `None` if nothing was
/// measured.
pub(super) fn chart(report: &Report) -> Option<Chart> {
    let measure = throughput_first(report.measures).into_iter().next()?;
    let one_arm = report.cases.iter().all(|case| case.order.len() < 2);
    let mut cases: Vec<&Case> = match one_arm {
        true if report.cases.len() <= BARS => report.cases.iter().collect(),
        true => best_by(report, measure, |case| (case.setting.way, case.setting.connections)),
        false if Points::of(&report.cases).is_some() => shown(report, Some(measure)),
        false => by_receiver(&report.cases).next().map(ends)?,
    };
    cases.truncate(BARS);
    let most = cases.iter().flat_map(|case| case.arms_in_order());
    let most = most.filter_map(|arm| Some(arm.figures.get(measure.key)?.max)).fold(0.0, f64::max);
    let group = |case: &&Case| Group {
        heading: capital(&load_words(case, &report.cases)),
        bars: case.order.iter().filter_map(|arm| bar(case, arm, measure, most)).collect(),
    };
    let mut groups: Vec<Group> = cases.iter().map(group).collect();
    groups.retain(|group| !group.bars.is_empty());
    let title = format!("{}, {}", capital(nouns(measure).0), arrow(measure.better));
    (most > 0.0 && !groups.is_empty()).then_some(Chart { title, groups })
}

fn bar(case: &Case, arm: &str, measure: &Measure, most: f64) -> Option<Bar> {
    let figures = case.arms.get(arm)?.figures.get(measure.key)?;
    let part = |value: f64| format!("{:.1}", 100.0 * value / most);
    Some(Bar {
        label: case.label(arm).to_owned(),
        value: among(measure, figures.median, most),
        length: part(figures.median),
        low: part(figures.min),
        high: part(figures.max),
        is_peer: case.peers.contains_key(arm),
    })
}
