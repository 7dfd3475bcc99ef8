//! The canvas, axes and ticks of all figures.

use super::{Figure, Tick};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 28.0;
/// Lines of the grid, including the axis. They are the same in all figures, so the page draws them
/// once.
const GRID: u32 = 5;

/// A canvas with a y axis from 0. Places on the x axis are fractions of its width.
pub(super) struct Canvas {
    top: f64,
}

impl Canvas {
    /// Returns a canvas for values up to `largest`; `None` if there is nothing to draw.
    pub(super) fn new(largest: f64) -> Option<Canvas> {
        Some(Canvas { top: round_up(largest)? })
    }

    /// Returns a canvas from 0 to 100.
    pub(super) fn percent() -> Canvas {
        Canvas { top: 100.0 }
    }

    pub(super) fn x(part: f64) -> f64 {
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }

    /// Returns a figure without series. Ticks are fractions of the width with their words. Empty
    /// words are not shown, nor are words without room.
    pub(super) fn figure(&self, title: &str, ticks: &[(f64, String)]) -> Figure {
        let heights = self.numbers().into_iter().enumerate().map(|(line, number)| {
            let y = self.y(self.top * line as f64 / f64::from(GRID - 1));
            (format!("{:.0}", y + 4.0), number)
        });
        Figure {
            title: title.to_owned(),
            words: title.to_owned(),
            numbers: heights.collect(),
            ticks: shown(ticks),
            ..Figure::default()
        }
    }

    /// Returns the numbers beside the grid's lines from the axis up: exact, with as many decimals
    /// as the step between them has.
    fn numbers(&self) -> Vec<String> {
        let step = self.top / f64::from(GRID - 1);
        let exact = |decimals: &i32| {
            let units = step * 10f64.powi(*decimals);
            (units - units.round()).abs() < 1e-9 * units
        };
        let plain = (0..=4).position(|decimals| exact(&decimals)).filter(|_| self.top < 1e6);
        let number = |line: u32| match (plain, step * f64::from(line)) {
            (Some(decimals), value) => format!("{value:.decimals$}"),
            (None, _) if line == 0 => "0".to_owned(),
            // A step has at most three digits.
            (None, value) => format!("{value:.2e}"),
        };
        (0..GRID).map(number).collect()
    }
}

/// Returns the ticks of an axis from 0 to `end` seconds.
pub(super) fn seconds(end: f64) -> Vec<(f64, String)> {
    let decimals = [9.5, 0.95].iter().filter(|least| end < **least).count();
    let last = (end >= 0.005).then(|| (1.0, format!("{end:.decimals$} s")));
    std::iter::once((0.0, "0 s".to_owned())).chain(last).collect()
}

fn shown(ticks: &[(f64, String)]) -> Vec<Tick> {
    let ticks: Vec<_> = ticks.iter().filter(|(_, word)| !word.is_empty()).collect();
    let widest = ticks.iter().map(|(_, word)| word.chars().count()).max().unwrap_or(1).max(1);
    let room = (WIDTH - LEFT - RIGHT) / (6.2 * widest as f64 + 5.0);
    #[allow(clippy::cast_possible_truncation, reason = "a small positive number of words")]
    let each = (ticks.len() as f64 / room.max(1.0)).ceil() as usize;
    let tick = |(part, word): &(f64, String)| {
        let anchor = match part {
            part if *part < 0.02 => "start",
            part if *part > 0.98 => "end",
            _ => "middle",
        };
        Tick { x: format!("{:.1}", Canvas::x(*part)), anchor, word: word.clone() }
    };
    ticks.into_iter().step_by(each.max(1)).map(tick).collect()
}

/// Returns the points of marks. The page defines their shape and colour once for each series.
pub(super) fn marks(places: &[(f64, f64)]) -> String {
    // A single point is doubled, because a line of one point is not drawn.
    if let [only] = places { points(&[*only, *only]) } else { points(places) }
}

/// Returns `12,80 13,79`. Coordinates are whole numbers: a page has thousands of them, and half a
/// unit is not visible.
pub(super) fn points(places: &[(f64, f64)]) -> String {
    let words: Vec<String> = places.iter().map(|(x, y)| format!("{x:.0},{y:.0}")).collect();
    words.join(" ")
}

/// Returns the next larger number that divides well by four, for the top of an axis.
fn round_up(largest: f64) -> Option<f64> {
    if !largest.is_finite() || largest <= 0.0 {
        return None;
    }
    let unit = 10f64.powf(largest.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0];
    steps.iter().map(|step| step * unit).find(|top| *top >= largest * 1.02)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_lies_on_the_paper(largest in 1e-3..1e12f64, part in 0.0..=1.0f64) {
            let canvas = Canvas::new(largest).unwrap();
            let y = canvas.y(largest * part);
            prop_assert!((TOP - 0.01..=HEIGHT - BOTTOM + 0.01).contains(&y));
            prop_assert!(canvas.top <= largest * 2.0, "half of the paper is used: {}", canvas.top);
        }

        #[test]
        fn numbers_of_an_axis_differ_by_equal_steps_and_have_room(
            digits in 1.0..10.0f64,
            decade in prop_oneof![-300..300, -4..7],
        ) {
            let numbers = Canvas::new(digits * 10f64.powi(decade)).unwrap().numbers();
            let values: Vec<f64> = numbers.iter().map(|number| number.parse().unwrap()).collect();
            let step = values[1] - values[0];
            for pair in values.windows(2) {
                prop_assert!(step > 0.0 && (pair[1] - pair[0] - step).abs() < 1e-9 * step, "{numbers:?}");
            }
            let widest = numbers.iter().map(String::len).max().unwrap();
            prop_assert!(widest <= if (-5..6).contains(&decade) { 7 } else { 9 }, "{numbers:?}");
        }

        #[test]
        fn ends_of_an_axis_of_time_differ(end in prop_oneof![0.0..0.02f64, 0.0..1e5f64]) {
            let ticks = seconds(end);
            prop_assert!(ticks.len() == 1 || ticks[0].1 != ticks[1].1, "{ticks:?}");
            prop_assert!(ticks.len() == 2 || end < 0.005);
        }
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert!(Canvas::new(0.0).is_none() && Canvas::new(f64::NAN).is_none());
    }
}
