//! Paper, axes and ticks, the same for all figures.

use std::fmt::Write as _;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 28.0;
/// Lines of the grid, the axis counted.
const GRID: u32 = 5;

/// The element of every figure.
fn opened(words: &str) -> String {
    let words = escape(words);
    format!(r#"<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{words}">"#)
}

/// A drawing whose y axis begins at 0 or has it in the middle. Places on the x axis are parts of its width.
pub(super) struct Canvas {
    svg: String,
    bottom: f64,
    top: f64,
}

impl Canvas {
    /// Paper on which the largest value is `largest`; `None` where there is nothing to draw.
    pub(super) fn new(largest: f64) -> Option<Canvas> {
        Some(Canvas::between(0.0, round_up(largest)?))
    }

    /// Paper from 0 to 100.
    pub(super) fn percent() -> Canvas {
        Canvas::between(0.0, 100.0)
    }

    fn between(bottom: f64, top: f64) -> Canvas {
        let mut canvas = Canvas { svg: String::new(), bottom, top };
        canvas.grid();
        canvas
    }

    pub(super) fn x(part: f64) -> f64 {
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let part = (value - self.bottom) / (self.top - self.bottom);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&mut self) {
        let step = (self.top - self.bottom) / f64::from(GRID - 1);
        let decimals = decimals(step);
        let (mut path, mut texts) = (String::new(), String::new());
        for line in 0..GRID {
            let value = self.bottom + step * f64::from(line);
            let (at, end, text) = (self.y(value), WIDTH - RIGHT, LEFT - 6.0);
            let below = at + 4.0;
            path += &format!("M{LEFT} {at:.1}H{end}");
            texts += &format!(r#"<text x="{text}" y="{below:.0}">{value:.decimals$}</text>"#);
        }
        self.put(format_args!(
            r#"<path class="grid" d="{path}"/><g class="tick" text-anchor="end">{texts}</g>"#
        ));
    }

    /// Words below the x axis, each at its place; as many as have room. An empty word is no tick.
    pub(super) fn ticks(&mut self, ticks: &[(f64, String)]) {
        let ticks: Vec<_> = ticks.iter().filter(|(_, word)| !word.is_empty()).collect();
        let widest = ticks.iter().map(|(_, word)| word.chars().count()).max().unwrap_or(1).max(1);
        let room = (WIDTH - LEFT - RIGHT) / (6.2 * widest as f64 + 5.0);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number of words"
        )]
        let each = (ticks.len() as f64 / room.max(1.0)).ceil() as usize;
        for (part, word) in ticks.iter().step_by(each.max(1)) {
            let (x, y) = (Canvas::x(*part), HEIGHT - 9.0);
            let anchor = match part {
                part if *part < 0.02 => "start",
                part if *part > 0.98 => "end",
                _ => "middle",
            };
            self.put(format_args!(
                r#"<text class="tick" text-anchor="{anchor}" x="{x:.1}" y="{y}">{}</text>"#,
                escape(word)
            ));
        }
    }

    /// Adds a shape.
    pub(super) fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        let _ = self.svg.write_fmt(shape);
    }

    /// A mark at each place. Its shape and colour are those of the class, which the page has once for all figures.
    pub(super) fn marks(&mut self, class: &str, places: &[(f64, f64)]) {
        // A line of one point is none.
        let places = if let [only] = places { &[*only, *only] } else { places };
        if !places.is_empty() {
            self.put(format_args!(
                r#"<polyline class="marks {class}" points="{}"/>"#,
                points(places)
            ));
        }
    }

    /// With what it says to those who cannot see it.
    pub(super) fn finish(self, words: &str) -> String {
        format!("{}{}</svg>", opened(words), self.svg)
    }
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

/// Text for an element or an attribute.
pub(in crate::report) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
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
