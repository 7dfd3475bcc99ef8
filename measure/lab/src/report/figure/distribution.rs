//! Distribution of round trips: the share that was faster, over time on a logarithmic axis.

use super::canvas::{Canvas, marks, points};
use super::{Drawn, Figure};
use crate::report::case::capital;
use crate::report::{ArmFigures, Case};
use crate::round_trips::PARTS;

/// Returns a line for each arm through the medians, over its intervals, of each percentile. `None`
/// without round trips.
pub(super) fn distribution(case: &Case) -> Option<Figure> {
    let places = |arm: &ArmFigures| -> Vec<(f64, f64)> {
        let known = PARTS.iter().filter_map(|(key, part)| Some((arm.median(key)?, *part)));
        known.filter(|(time, _)| *time > 0.0).collect()
    };
    let arms: Vec<_> = case.arms_in_order().map(|arm| (arm, places(arm))).collect();
    let ticks = axis(arms.iter().flat_map(|(_, places)| places).map(|(time, _)| *time))?;
    let [low, high] = [ticks.first()?.log10(), ticks.last()?.log10()];
    let part = |time: f64| (time.log10() - low) / (high - low);
    let canvas = Canvas::percent();
    let ticks: Vec<_> = ticks.into_iter().map(|time| (part(time), words(time))).collect();
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
    Some(figure)
}

/// Returns the 1, 2 and 5 of each decade around all times; `None` without times.
fn axis(times: impl Iterator<Item = f64> + Clone) -> Option<Vec<f64>> {
    let (least, most) = (times.clone().reduce(f64::min)?, times.reduce(f64::max)?);
    let all = (0..12).flat_map(|decade| [1.0, 2.0, 5.0].map(|one| one * 10f64.powi(decade)));
    let all: Vec<f64> = all.collect();
    let from = all.iter().rposition(|time| *time <= least).unwrap_or(0).min(all.len() - 2);
    let to = all.iter().position(|time| *time >= most).unwrap_or(all.len() - 1).max(from + 1);
    all.get(from..=to).map(<[f64]>::to_vec)
}

/// Returns `72 µs`, `1.4 ms`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_lie_between_the_ends_of_an_axis_whose_words_differ(
            times in proptest::collection::vec(1.0..1e11f64, 1..9),
        ) {
            let ticks = axis(times.iter().copied()).unwrap();
            let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
            prop_assert!(low < high && times.iter().all(|time| (low..=high).contains(time)));
            let told: Vec<String> = ticks.iter().map(|time| words(*time)).collect();
            prop_assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
        }
    }

    #[test]
    fn one_time_has_an_axis_and_none_has_none() {
        assert_eq!(axis([72e3].into_iter()), Some(vec![50e3, 100e3]));
        assert_eq!(axis([50e3].into_iter()), Some(vec![50e3, 100e3]));
        assert_eq!(axis([].into_iter()), None);
    }
}
