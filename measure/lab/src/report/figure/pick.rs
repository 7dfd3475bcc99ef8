//! The choice of a report's figures.

use super::bars::{bars, rows};
use super::distribution::distribution;
use super::forest::{Forest, forest};
use super::lines::{evenly, lines};
use super::strip::strip;
use super::usage::{Line, usage};
use super::{COLOURS, Figure, Series};
use crate::load::Way;
use crate::measure::Measure;
use crate::report::answer::{self, by_receiver};
use crate::report::case::{capital, plural};
use crate::report::table::{Points, arrow};
use crate::report::{ArmFigures, Case, Report};
use crate::switch_counters::TRAINS_OF;
use serde::Serialize;

/// Returns all questions in one figure; `None` if nothing is compared.
pub(in crate::report) fn summary(report: &Report) -> Option<Forest> {
    forest(&answer::rows(report))
}

/// Returns the figures that show a report at a glance: throughput by block size, or the steps of a
/// ladder.
pub(in crate::report) fn overview(report: &Report) -> Vec<Figure> {
    match Points::of(&report.cases) {
        Some(points) => {
            report.measures.iter().flat_map(|measure| by_point(&points, measure)).collect()
        }
        None => {
            let several = report.cases.len() > 1;
            let steps = report.cases.iter().filter(|case| !case.steps.is_empty());
            let ladders = steps.flat_map(|case| {
                report.measures.iter().filter_map(move |one| ladder(case, one, several))
            });
            let groups = by_receiver(&report.cases);
            let over = groups
                .flat_map(|own| report.measures.iter().filter_map(|one| by_connections(own, one)));
            over.chain(ladders).chain(report.latency.iter().filter_map(distribution)).collect()
        }
    }
}

/// Returns a line for each arm over the connections; `None` if only one count was measured.
fn by_connections(cases: &[Case], measure: &Measure) -> Option<Figure> {
    let counts: Vec<u32> = cases.iter().map(|case| case.setting.connections).collect();
    if !counts.is_sorted_by(|one, next| one < next) || counts.len() < 2 {
        return None;
    }
    let series = cases.first()?.arms_in_order().zip(&cases.first()?.order).map(|(arm, name)| {
        let value = |case: &Case| Some(case.median(name, measure.key)? * measure.scale);
        Series { label: arm.label.clone(), values: cases.iter().map(value).collect() }
    });
    let series: Vec<Series> = series.collect();
    let receiver = cases.first()?.setting.receiver();
    let title = format!("{} by connections{receiver}, {}", measure.label, arrow(measure.better));
    lines(&title, &evenly(counts.iter().map(u32::to_string).collect()), &series)
}

/// Figures of one load, in which each arm has the same colour.
#[derive(Serialize)]
pub(in crate::report) struct Group {
    /// The load, if there are several.
    title: Option<String>,
    /// Labels of the colours; empty if each figure has its own.
    legend: Vec<String>,
    figures: Vec<Figure>,
}

/// Returns figures of every interval, of each side's processor time, and of the depth of trains.
pub(in crate::report) fn details(report: &Report) -> Vec<Group> {
    let cases = &report.cases;
    // The only figure of a try is that of its questions.
    let told = cases.iter().filter(|case| case.truth.is_none());
    let group = |case: &Case| {
        let strips = report.measures.iter().filter_map(|measure| strip(case, measure));
        Group {
            title: (cases.len() > 1).then(|| capital(&case.setting.words())),
            legend: case.arms_in_order().map(|arm| arm.label.clone()).collect(),
            figures: strips.chain(by_side(case)).chain(depths(case)).collect(),
        }
    };
    let mut groups: Vec<Group> = match Points::of(cases) {
        Some(_) => vec![Group { title: None, legend: Vec::new(), figures: by_load(cases) }],
        None => told.map(group).collect(),
    };
    groups.retain(|group| !group.figures.is_empty());
    groups
}

/// Returns a bar for each arm. If there are several loads, the title names the load.
fn ladder(case: &Case, measure: &Measure, several: bool) -> Option<Figure> {
    let value =
        |arm: &ArmFigures| Some((arm.label.clone(), arm.median(measure.key)? * measure.scale));
    let values: Vec<_> = case.arms_in_order().filter_map(value).collect();
    let load = if several { case.setting.words() + ": " } else { String::new() };
    let each = if case.peers.is_empty() { "step" } else { "arm" };
    let title = format!("{load}{} by {each}, {}", measure.label, arrow(measure.better));
    rows(capital(&title), &values, measure.decimals)
}

/// Returns each side's processor use over time, for the own arms; the table has the peers'.
fn by_side(case: &Case) -> Vec<Figure> {
    let begin_s = case.samples.first().map_or(0.0, |sample| sample.started_s);
    let line = |name: &String| Line {
        label: case.label(name).to_owned(),
        samples: case.samples.iter().filter(|sample| sample.arm == *name).collect(),
        begin_s,
    };
    usage(&case.own_arms().map(|(name, _)| line(name)).collect::<Vec<_>>())
}

/// Returns each side's processor use over time for a few loads without arms. Each load's time
/// begins at 0.
fn by_load(cases: &[Case]) -> Vec<Figure> {
    if cases.len() > COLOURS {
        return Vec::new();
    }
    let lines = cases.iter().map(|case| Line {
        label: capital(&case.setting.words()),
        samples: case.samples.iter().collect(),
        begin_s: case.samples.first().map_or(0.0, |sample| sample.started_s),
    });
    usage(&lines.collect::<Vec<_>>())
}

/// Returns the shares of trains toward the receiver by their segments, for each arm.
fn depths(case: &Case) -> Option<Figure> {
    let arms = case.arms_in_order();
    let mut keys: Vec<&str> = case
        .arms_in_order()
        .flat_map(|arm| arm.figures.keys())
        .filter_map(|key| key.strip_prefix(TRAINS_OF))
        .collect();
    // `1`, `2`, `3-4`, … `65+`.
    let least = |range: &str| -> u32 {
        range.split(['-', '+']).next().and_then(|first| first.parse().ok()).unwrap_or(0)
    };
    keys.sort_by_key(|range| least(range));
    keys.dedup();
    let mut series: Vec<Series> = arms
        .zip(&case.order)
        .map(|(arm, name)| {
            let trains =
                |range: &&str| case.total(name, &format!("{TRAINS_OF}{range}")).unwrap_or_default();
            let all: f64 = keys.iter().map(trains).sum();
            let share = |range: &&str| Some(100.0 * trains(range) / all.max(1.0));
            Series { label: arm.label.clone(), values: keys.iter().map(share).collect() }
        })
        .collect();
    // Peers, which come last, do not count trains.
    let counts = |one: &Series| one.values.iter().flatten().any(|share| *share > 0.0);
    series.truncate(series.iter().rposition(counts).map_or(0, |last| last + 1));
    let words: Vec<String> = keys.iter().map(|range| (*range).to_owned()).collect();
    bars("Frames to the receiver by segments, in % of all", &words, &series, 1)
}

/// Returns a measure by block size, with a line for each number of connections; or by connections,
/// with a line for each direction.
fn by_point(points: &Points<'_>, measure: &Measure) -> Vec<Figure> {
    let title = format!("{}, {}", measure.label, arrow(measure.better));
    let Points { ways, connections, blocks, arms, .. } = points;
    if let ([block], [arm, ..]) = (&blocks[..], &arms[..]) {
        let series = ways.iter().map(|way| Series {
            label: way.map_or("", |way| way.words()).to_owned(),
            values: connections
                .iter()
                .map(|count| points.value(*way, [*count, *block], arm, measure))
                .collect(),
        });
        let ticks = evenly(connections.iter().map(u32::to_string).collect());
        let title = format!("{title}, by connections");
        return lines(&title, &ticks, &series.collect::<Vec<_>>()).into_iter().collect();
    }
    let of_way = |(way, arm): (&Option<Way>, &str)| {
        let series = connections.iter().map(|count| Series {
            label: plural(*count, "connection"),
            values: blocks
                .iter()
                .map(|block| points.value(*way, [*count, *block], arm, measure))
                .collect(),
        });
        let of = match points.one_unnamed() {
            true => String::new(),
            false => format!(", {}", points.label(arm)),
        };
        let title = format!("{title}, by block size: {}{of}", way.map_or("", |way| way.words()));
        lines(&title, &evenly(points.block_words()), &series.collect::<Vec<_>>())
    };
    let both = ways.iter().flat_map(|way| arms.iter().map(move |arm| (way, *arm)));
    both.filter_map(of_way).collect()
}
