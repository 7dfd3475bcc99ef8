//! All questions of a report in one figure: the change, its interval, and the verdict in a word and a shape. Its rows are
//! the page's own, so that words wrap on a phone; each has a small drawing on an axis that all share.

use super::canvas::escape;
use crate::report::answer::Row;
use crate::statistics::Verdict;
use serde::Serialize;
use std::fmt::Write as _;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 20.0;
const SIDE: f64 = 12.0;
/// Ratios that have a line of the grid, where the axis reaches them.
const GRID: [f64; 17] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0, 3.0, 5.0, 10.0, 100.0];
/// Room of a word below the axis.
const WORD: f64 = 30.0;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::report) struct Forest {
    /// In the order of the questions.
    pub rows: Vec<Line>,
    /// The axis below them.
    pub axis: String,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::report) struct Line {
    /// Stands above it, where it is not that of the row before.
    pub heading: Option<String>,
    /// `throughput`.
    pub question: String,
    /// `29.6 % higher`.
    pub answer: String,
    /// `+27.0 to +31.2 % at 99.33 %`.
    pub interval: String,
    /// Class of the verdict.
    pub class: &'static str,
    /// The drawing.
    pub svg: String,
}

/// Half is as far from 1 as double.
struct Axis {
    reach: f64,
}

impl Axis {
    fn over(rows: &[Row]) -> Option<Axis> {
        let ends = rows.iter().flat_map(|row| [row.found.interval.low, row.found.interval.high]);
        let reach = ends.map(|end| end.clamp(1e-3, 1e3).ln().abs()).reduce(f64::max)?;
        Some(Axis { reach: reach.max(0.06) * 1.05 })
    }

    fn x(&self, ratio: f64) -> f64 {
        WIDTH / 2.0 + ratio.clamp(1e-3, 1e3).ln() / self.reach * (WIDTH / 2.0 - SIDE)
    }

    fn grid(&self) -> impl Iterator<Item = f64> {
        GRID.into_iter().filter(|ratio| ratio.ln().abs() < self.reach)
    }

    /// Its words: that of no change first, the others where there is room.
    fn words(&self) -> String {
        let mut svg = format!(r#"<svg viewBox="0 0 {WIDTH} 16" aria-hidden="true">"#);
        let mut last = f64::MIN;
        for ratio in self.grid() {
            let at = self.x(ratio);
            let from_one = (at - self.x(1.0)).abs();
            if at - last > WORD && !(0.01..=WORD).contains(&from_one) {
                let _ = write!(
                    svg,
                    r#"<text class="tick" text-anchor="middle" x="{at:.1}" y="12">{ratio}x</text>"#
                );
                last = at;
            }
        }
        svg + "</svg>"
    }

    fn draw(&self, row: &Row) -> String {
        let middle = HEIGHT / 2.0;
        let mut svg = format!(
            r#"<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{}">"#,
            escape(&row.interval())
        );
        let lines = self.grid().map(|ratio| format!("M{:.1} 0V{HEIGHT}", self.x(ratio)));
        let (lines, one) = (lines.collect::<String>(), self.x(1.0));
        let _ = write!(
            svg,
            r#"<path class="grid" d="{lines}"/><path class="one" d="M{one:.1} 0V{HEIGHT}"/>"#
        );
        let (found, class) = (row.found, row.class());
        let (low, high) = (self.x(found.interval.low), self.x(found.interval.high));
        let at = self.x(found.ratio);
        let _ = write!(
            svg,
            r#"<line class="{class}" x1="{low:.1}" y1="{middle}" x2="{high:.1}" y2="{middle}"/>"#
        );
        let (left, right, top, bottom) = (at - 5.0, at + 5.0, middle - 5.0, middle + 4.0);
        let _ = match found.verdict {
            Verdict::Improved => {
                write!(svg, r#"<circle class="{class}" cx="{at:.1}" cy="{middle}" r="4.5"/>"#)
            }
            Verdict::Worse => write!(
                svg,
                r#"<path class="{class}" d="M{left:.1} {bottom}L{right:.1} {bottom}L{at:.1} {top}Z"/>"#
            ),
            _ => {
                write!(svg, r#"<circle class="{class} hollow" cx="{at:.1}" cy="{middle}" r="4"/>"#)
            }
        };
        svg + "</svg>"
    }
}

/// A row for each question. `None` without questions.
pub(super) fn forest(rows: &[Row]) -> Option<Forest> {
    let axis = Axis::over(rows)?;
    let mut before = "";
    let lines = rows.iter().map(|row| {
        let heading = (row.load != before).then(|| row.load.clone());
        before = &row.load;
        Line {
            heading,
            question: row.question.clone(),
            answer: row.answer.clone(),
            interval: row.interval(),
            class: row.class(),
            svg: axis.draw(row),
        }
    });
    Some(Forest { rows: lines.collect(), axis: axis.words() })
}
