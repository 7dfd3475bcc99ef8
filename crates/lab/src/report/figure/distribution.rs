//! How long round trips took: the share that was faster, over time on a logarithmic axis.

use super::canvas::{Canvas, points};
use super::{Figure, class, legend};
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
    let mut canvas = Canvas::percent();
    let decades = (0..11).flat_map(|decade| [1.0, 2.0, 5.0].map(|one| one * 10f64.powi(decade)));
    let ticks: Vec<_> = decades.map(|time| (part(time), words(time))).collect();
    canvas.ticks(&ticks.into_iter().filter(|(at, _)| (0.0..=1.0).contains(at)).collect::<Vec<_>>());
    let title = format!("{}: % that took no longer", capital(&case.setting.words()));
    let mut told = vec![title.clone()];
    for (number, (arm, places)) in arms.iter().enumerate() {
        let drawn: Vec<(f64, f64)> = places
            .iter()
            .map(|(time, share)| (Canvas::x(part(*time)), canvas.y(100.0 * share)))
            .collect();
        let class = class(number);
        canvas.put(format_args!(r#"<polyline class="{class}" points="{}"/>"#, points(&drawn)));
        canvas.marks(&class, &drawn);
        let shares =
            places.iter().map(|(time, share)| format!("{:.0} % {}", 100.0 * share, words(*time)));
        told.push(format!("{}: {}", arm.label, shares.collect::<Vec<_>>().join(", ")));
    }
    let legend = legend(arms.iter().map(|(arm, _)| arm.label.clone()));
    (least <= most).then(|| Figure { title, legend, svg: canvas.finish(&told.join(". ")) })
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
