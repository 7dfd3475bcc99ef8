//! How long round trips took: the share that was faster, over time on a logarithmic axis.

use super::canvas::{Canvas, marks, points};
use super::{Drawn, Figure};
use crate::experiments::latency::PARTS;
use crate::report::case::capital;
use crate::report::{ArmFigures, Case};

/// A line for each arm: of each part of its round trips the median over its intervals. `None` where none came back.
pub(super) fn distribution(case: &Case) -> Option<Figure> {
    let places = |arm: &ArmFigures| -> Vec<(f64, f64)> {
        let known = PARTS.iter().filter_map(|(key, part)| Some((arm.median(key)?, *part)));
        known.filter(|(time, _)| *time > 0.0).collect()
    };
    let arms: Vec<_> = case.arms_in_order().map(|arm| (arm, places(arm))).collect();
    let times = arms.iter().flat_map(|(_, places)| places).map(|(time, _)| time.log10());
    let (least, most) =
        times.fold((f64::MAX, f64::MIN), |ends, time| (ends.0.min(time), ends.1.max(time)));
    let part = |time: f64| 0.02 + 0.96 * (time.log10() - least) / (most - least).max(1e-9);
    let canvas = Canvas::percent();
    let decades = (0..11).flat_map(|decade| [1.0, 2.0, 5.0].map(|one| one * 10f64.powi(decade)));
    let ticks = decades.map(|time| (part(time), words(time)));
    let ticks: Vec<_> = ticks.filter(|(at, _)| (0.0..=1.0).contains(at)).collect();
    let title = format!("{}: % that took no longer", capital(&case.setting.words()));
    let mut figure = canvas.figure(&title, &ticks);
    for (arm, places) in &arms {
        let place = |(time, share): &(f64, f64)| (Canvas::x(part(*time)), canvas.y(100.0 * share));
        let drawn: Vec<(f64, f64)> = places.iter().map(place).collect();
        let shares =
            places.iter().map(|(time, share)| format!("{:.0} % {}", 100.0 * share, words(*time)));
        let (line, marks) = (points(&drawn), marks(&drawn));
        figure.add(&arm.label, shares, Drawn { line, marks, ..Drawn::default() });
    }
    (least <= most).then_some(figure)
}

/// `72 µs`, `1.4 ms`.
fn words(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        below if below < 1e3 => (below, "ns"),
        below if below < 1e6 => (below / 1e3, "µs"),
        below if below < 1e9 => (below / 1e6, "ms"),
        seconds => (seconds / 1e9, "s"),
    };
    if value < 9.95 && value.fract() > 0.05 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}
