//! All questions of a report in one figure: the change, its interval, and the verdict as a word and
//! a shape. The rows are laid out by the page, so that words wrap on a phone; each has a small
//! drawing, and all share one axis.

use crate::report::answer::Row;
use serde::Serialize;
use statistics::quantile;

const WIDTH: f64 = 240.0;
const SIDE: f64 = 12.0;
/// Ratios with a line of the grid, if the axis reaches them and there is room for their label.
const GRID: [f64; 19] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.4, 2.0, 3.0, 5.0,
    10.0, 100.0,
];
/// How far the axis reaches beyond the rows that fit on it, as a multiple of their reach.
const ROOM: f64 = 1.5;
/// Width of a label below the axis.
const WORD: f64 = 30.0;

/// The figure. Positions are in units of a row's drawing, which is 240 wide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::report) struct Forest {
    /// Rows in the order of the questions.
    rows: Vec<Line>,
    /// Lines of the grid, each with the label below it.
    grid: Vec<(String, String)>,
    /// Position of no change.
    one: String,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Line {
    /// Heading above the row, if it differs from that of the row before.
    heading: Option<String>,
    /// The compared figure, such as `throughput`.
    question: String,
    /// The verdict in words, such as `29.6 % higher`.
    answer: String,
    /// The interval of the change, such as `+27.0 to +31.2 % at 99.33 %`.
    interval: String,
    /// Class of the verdict.
    class: &'static str,
    /// Position of the change, and of both ends of its interval, none of them beyond the axis.
    at: String,
    low: String,
    high: String,
    /// Which ends of the interval lie beyond the axis.
    beyond: [bool; 2],
}

/// A logarithmic axis: half is as far from 1 as double.
struct Axis {
    reach: f64,
}

impl Axis {
    /// Returns an axis that three quarters of the rows fit on with as much again, so that the few
    /// that reach further do not squeeze the others.
    fn over(rows: &[Row]) -> Option<Axis> {
        let extent = |row: &Row| {
            let ends = [row.found.interval.low, row.found.interval.high];
            ends.map(|end| end.clamp(1e-3, 1e3).ln().abs()).into_iter().fold(0.0, f64::max)
        };
        let mut extents: Vec<f64> = rows.iter().map(extent).collect();
        extents.sort_by(f64::total_cmp);
        let most = extents.last().copied()?;
        let reach = most.min(ROOM * quantile(&extents, 0.75)?);
        Some(Axis { reach: reach.max(0.06) * 1.05 })
    }

    /// Whether a ratio lies beyond an end of the axis.
    fn is_beyond(&self, ratio: f64) -> bool {
        ratio.clamp(1e-3, 1e3).ln().abs() > self.reach
    }

    fn x(&self, ratio: f64) -> f64 {
        let part = (ratio.clamp(1e-3, 1e3).ln() / self.reach).clamp(-1.0, 1.0);
        WIDTH / 2.0 + part * (WIDTH / 2.0 - SIDE)
    }

    fn place(&self, ratio: f64) -> String {
        format!("{:.1}", self.x(ratio))
    }

    /// Returns the lines of the grid with their labels: always that of no change, the others if
    /// there is room.
    fn grid(&self) -> Vec<(String, String)> {
        let (mut lines, mut last) = (Vec::new(), f64::MIN);
        for ratio in GRID.into_iter().filter(|ratio| ratio.ln().abs() < self.reach) {
            let at = self.x(ratio);
            let from_one = (at - self.x(1.0)).abs();
            if at - last > WORD && !(0.01..=WORD).contains(&from_one) {
                lines.push((format!("{at:.1}"), format!("{ratio}x")));
                last = at;
            }
        }
        lines
    }
}

/// Returns a row for each question; `None` without questions.
pub(in crate::report) fn forest(rows: &[Row]) -> Option<Forest> {
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
            at: axis.place(row.found.ratio),
            low: axis.place(row.found.interval.low),
            high: axis.place(row.found.interval.high),
            beyond: [row.found.interval.low, row.found.interval.high]
                .map(|end| axis.is_beyond(end)),
        }
    });
    Some(Forest { rows: lines.collect(), grid: axis.grid(), one: axis.place(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::THROUGHPUT;
    use proptest::prelude::*;
    use statistics::{Better, Comparison, compare};

    fn row(found: Comparison) -> Row {
        let (load, subject, question, answer) = Default::default();
        Row { load, subject, measure: THROUGHPUT, question, answer, found }
    }

    /// A 99th percentile of +24,383 % stretched the axis to 0.01x-100x, and 3.87x looked small.
    #[test]
    fn an_outlier_does_not_own_the_axis_and_is_marked() {
        let of = |ratio: f64| row(compare(&[ratio; 9], &[1.0; 9], Better::Higher.into()).unwrap());
        let usual: Vec<Row> = [3.87, 2.26, 0.4, 1.1, 1.0, 0.7, 1.3].map(of).into();
        let drawn = |rows: &[Row]| forest(rows).unwrap();
        let at = |forest: &Forest| forest.rows[0].at.parse::<f64>().unwrap();
        let alone = drawn(&usual);
        let beside = drawn(&usual.into_iter().chain([of(244.0)]).collect::<Vec<_>>());
        assert!(at(&beside) > 0.8 * WIDTH, "{} {}", at(&alone), at(&beside));
        let beyond: Vec<[bool; 2]> = beside.rows.iter().map(|line| line.beyond).collect();
        assert_eq!(beyond[7], [true, true]);
        assert!(beyond[..7].iter().all(|ends| *ends == [false, false]), "{beyond:?}");
        assert_eq!(beside.rows[7].at, format!("{:.1}", WIDTH - SIDE));
    }

    proptest! {
        /// Below 6 % there was no change alone.
        #[test]
        fn an_axis_has_words_with_room_on_both_sides_of_no_change(logarithm in -9.0..9.0f64) {
            let found = compare(&[logarithm.exp(); 9], &[1.0; 9], Better::Higher.into()).unwrap();
            let grid = forest(&[row(found)]).unwrap().grid;
            let one = grid.iter().position(|(_, word)| word == "1x").unwrap();
            prop_assert!(0 < one && one + 1 < grid.len(), "{grid:?}");
            let places: Vec<f64> = grid.iter().map(|(at, _)| at.parse().unwrap()).collect();
            let roomy = places.windows(2).all(|pair| pair[1] - pair[0] > WORD - 0.2);
            prop_assert!(roomy && places.iter().all(|at| (SIDE..=WIDTH - SIDE).contains(at)), "{grid:?}");
        }
    }
}
