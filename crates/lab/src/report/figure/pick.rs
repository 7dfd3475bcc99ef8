//! Which figures a report has.

use super::bars::bars;
use super::distribution::distribution;
use super::forest::{Forest, forest};
use super::lines::{evenly, lines};
use super::strip::strip;
use super::usage::{Line, usage};
use super::{COLOURS, Figure, Series};
use crate::experiment::Measure;
use crate::passed::TRAINS_OF;
use crate::report::answer::{by_receiver, rows};
use crate::report::case::{capital, plural};
use crate::report::table::{Points, arrow};
use crate::report::{Case, Report};
use serde::Serialize;

/// All questions in one figure; where nothing is compared there is none.
pub(in crate::report) fn summary(report: &Report) -> Option<Forest> {
    forest(&rows(report))
}

/// What a report is about in one look: throughput by block size, or the steps of a ladder.
pub(in crate::report) fn overview(report: &Report) -> Vec<Figure> {
    match Points::of(&report.cases) {
        Some(points) => {
            report.measures.iter().flat_map(|measure| by_point(&points, measure)).collect()
        }
        None => {
            let ladders = each(report, |case| {
                let steps = report.measures.iter().filter(|_| !case.steps.is_empty());
                steps.filter_map(|measure| ladder(case, measure)).collect()
            });
            let groups = by_receiver(&report.cases);
            let over = groups
                .flat_map(|own| report.measures.iter().filter_map(|one| by_connections(own, one)));
            over.chain(ladders).chain(report.latency.iter().filter_map(distribution)).collect()
        }
    }
}

/// A line for each arm over the connections, where more than one number of them was measured.
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
    /// Where there are several loads, which it is.
    title: Option<String>,
    /// Whose the colours are; empty where each figure says so.
    legend: Vec<String>,
    figures: Vec<Figure>,
}

/// Every interval of the arms that are compared, who used the processor, how deep trains were.
pub(in crate::report) fn details(report: &Report) -> Vec<Group> {
    let cases = &report.cases;
    if Points::of(cases).is_some() {
        let figures = by_load(cases);
        let some = !figures.is_empty();
        return some
            .then_some(Group { title: None, legend: Vec::new(), figures })
            .into_iter()
            .collect();
    }
    // Of tries the questions alone say all.
    let told = cases.iter().filter(|case| case.truth.is_none());
    let group = |case: &Case| {
        let strips = report.measures.iter().filter_map(|measure| strip(case, measure));
        Group {
            title: (cases.len() > 1).then(|| capital(&case.setting.words())),
            legend: case.arms_in_order().map(|arm| arm.label.clone()).collect(),
            figures: strips.chain(by_side(case)).chain(depths(case)).collect(),
        }
    };
    told.map(group).filter(|group| !group.figures.is_empty()).collect()
}

/// Figures of each case, which say whose they are where there are several.
fn each(report: &Report, of_case: impl Fn(&Case) -> Vec<Figure>) -> Vec<Figure> {
    let cases = &report.cases;
    let mut figures = Vec::new();
    for case in cases {
        for mut figure in of_case(case) {
            if cases.len() > 1 {
                figure.title = format!("{}: {}", capital(&case.setting.words()), figure.title);
            }
            figures.push(figure);
        }
    }
    figures
}

fn ladder(case: &Case, measure: &Measure) -> Option<Figure> {
    // As many words as a bar is wide.
    let short = |label: &str| label.replace(" offload", "").replace("RSC limits", "limits");
    let words = case.arms_in_order().map(|arm| match arm.label.as_str() {
        label if label.starts_with('+') => short(label),
        label => label.to_owned(),
    });
    let values = case.arms_in_order().map(|arm| Some(arm.median(measure.key)? * measure.scale));
    let series = Series { label: measure.label.into(), values: values.collect() };
    let title = format!("{} by step, {}", measure.label, arrow(measure.better));
    bars(&title, &words.collect::<Vec<_>>(), &[series], measure.decimals.min(2))
}

/// Processor time of each side over time, for the arms of the question: what others used is in the table.
fn by_side(case: &Case) -> Vec<Figure> {
    let begin_s = case.samples.first().map_or(0.0, |sample| sample.started_s);
    let line = |name: &String| Line {
        label: case.label(name).to_owned(),
        samples: case.samples.iter().filter(|sample| sample.arm == *name).collect(),
        begin_s,
    };
    usage(&case.own_arms().map(|(name, _)| line(name)).collect::<Vec<_>>())
}

/// The same of a few loads without arms, each from its own beginning.
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

/// Trains toward the receiver by their segments, as a share of all of an arm.
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
    // Other switches, which come last, count no trains.
    let counts = |one: &Series| one.values.iter().flatten().any(|share| *share > 0.0);
    series.truncate(series.iter().rposition(counts).map_or(0, |last| last + 1));
    let words: Vec<String> = keys.iter().map(|range| (*range).to_owned()).collect();
    bars("Frames to the receiver by segments, in % of all", &words, &series, 1)
}

/// One measure over blocks, a line for each number of connections; or over connections, a line for each way.
fn by_point(points: &Points<'_>, measure: &Measure) -> Vec<Figure> {
    let title = format!("{}, {}", measure.label, arrow(measure.better));
    if points.blocks.len() < 2 {
        let words = points.connections.iter().map(u32::to_string).collect();
        let series: Vec<Series> = points
            .ways
            .iter()
            .map(|way| Series {
                label: way.map_or("", |way| way.words()).to_owned(),
                values: points.over_connections(*way, measure),
            })
            .collect();
        let title = format!("{title}, by connections");
        return lines(&title, &evenly(words), &series).into_iter().collect();
    }
    let words: Vec<String> = points.block_words();
    let both = points.ways.iter().flat_map(|way| points.arms.iter().map(move |arm| (way, *arm)));
    let of_way = |(way, arm): (&Option<crate::topology::Way>, &str)| {
        let series: Vec<Series> = points
            .connections
            .iter()
            .map(|connections| Series {
                label: plural(*connections, "connection"),
                values: points.over_blocks(*way, *connections, arm, measure),
            })
            .collect();
        let of = match points.one_unnamed() {
            true => String::new(),
            false => format!(", {}", points.label(arm)),
        };
        let title = format!("{title}, by block size: {}{of}", way.map_or("", |way| way.words()));
        lines(&title, &evenly(words.clone()), &series)
    };
    both.filter_map(of_way).collect()
}
