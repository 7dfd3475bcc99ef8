//! Paper, axes and ticks, the same for all figures.

use super::{Figure, Tick};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 28.0;
/// Lines of the grid, the axis counted. The page draws them once, for they are the same in all figures.
const GRID: u32 = 5;

/// Paper whose y axis begins at 0. Places on the x axis are parts of its width.
pub(super) struct Canvas {
    top: f64,
}

impl Canvas {
    /// Paper on which the largest value is `largest`; `None` where there is nothing to draw.
    pub(super) fn new(largest: f64) -> Option<Canvas> {
        Some(Canvas { top: round_up(largest)? })
    }

    /// Paper from 0 to 100.
    pub(super) fn percent() -> Canvas {
        Canvas { top: 100.0 }
    }

    pub(super) fn x(part: f64) -> f64 {
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }

    /// The figure on it, as yet without series. Ticks are parts of the width with their words; an empty word is none, and
    /// as many are shown as have room.
    pub(super) fn figure(&self, title: &str, ticks: &[(f64, String)]) -> Figure {
        let step = self.top / f64::from(GRID - 1);
        let decimals = decimals(step);
        let lines = (0..GRID).map(|line| step * f64::from(line));
        let lines: Vec<(f64, f64)> = lines.map(|value| (self.y(value), value)).collect();
        let number =
            |(y, value): &(f64, f64)| (format!("{:.0}", y + 4.0), format!("{value:.decimals$}"));
        Figure {
            title: title.to_owned(),
            words: title.to_owned(),
            numbers: lines.iter().map(number).collect(),
            ticks: shown(ticks),
            series: Vec::new(),
        }
    }
}

fn shown(ticks: &[(f64, String)]) -> Vec<Tick> {
    let ticks: Vec<_> = ticks.iter().filter(|(_, word)| !word.is_empty()).collect();
    let widest = ticks.iter().map(|(_, word)| word.chars().count()).max().unwrap_or(1).max(1);
    let room = (WIDTH - LEFT - RIGHT) / (6.2 * widest as f64 + 5.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number of words"
    )]
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

/// Points of marks. Their shape and colour are those of the series, which the page has once for all figures.
pub(super) fn marks(places: &[(f64, f64)]) -> String {
    // A line of one point is none.
    if let [only] = places { points(&[*only, *only]) } else { points(places) }
}

/// `12,80 13,79`: thousands of them are most of a page, and half a unit cannot be seen.
pub(super) fn points(places: &[(f64, f64)]) -> String {
    let words: Vec<String> = places.iter().map(|(x, y)| format!("{x:.0},{y:.0}")).collect();
    words.join(" ")
}

/// The next number that divides well by four, for the top of an axis.
fn round_up(largest: f64) -> Option<f64> {
    if !largest.is_finite() || largest <= 0.0 {
        return None;
    }
    let unit = 10f64.powf(largest.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0];
    steps.iter().map(|step| step * unit).find(|top| *top >= largest * 1.02)
}

/// Decimals that tell two lines of the grid apart.
fn decimals(step: f64) -> usize {
    let exact = |decimals: &i32| {
        let units = step * 10f64.powi(*decimals);
        (units - units.round()).abs() < 0.01 && units >= 1.0
    };
    [0, 1].iter().position(exact).unwrap_or(2)
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
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert!(Canvas::new(0.0).is_none() && Canvas::new(f64::NAN).is_none());
    }
}
