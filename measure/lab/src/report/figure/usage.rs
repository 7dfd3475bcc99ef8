//! Processors used by one side over time: a line for each interval, in the colour of its arm.

use super::canvas::{Canvas, marks, points, seconds};
use super::{Drawn, Figure};
use crate::plan::{Sample, Values};
use crate::report::table::SIDES;
use crate::usage::PROCESSES;

/// The lines of one colour: an arm, or a load.
pub(super) struct Line<'c> {
    pub(super) label: String,
    pub(super) samples: Vec<&'c Sample>,
    /// Origin of the line's time axis, in seconds on the bench's clock.
    pub(super) begin_s: f64,
}

/// Time and value of each reading, interval by interval.
type Intervals = Vec<Vec<(f64, f64)>>;

/// Returns a figure for each side, all with the same axes so that they can be compared.
pub(super) fn usage(lines: &[Line<'_>]) -> Vec<Figure> {
    let sides = SIDES.iter().filter(|(key, ..)| PROCESSES.contains(key));
    let points =
        |key: &str| -> Vec<Intervals> { lines.iter().map(|line| line.points(key)).collect() };
    let sides: Vec<_> = sides.map(|(key, label, _)| (*label, points(key))).collect();
    let all = || sides.iter().flat_map(|(_, points)| points.iter().flatten().flatten());
    let (end, largest) =
        all().fold((0.0, 0.0), |most: (f64, f64), at| (most.0.max(at.0), most.1.max(at.1)));
    let draw = |(label, points): &(&str, Vec<Intervals>)| {
        let title = format!("{label}: processors used, over time");
        let canvas = Canvas::new(largest)?;
        let mut figure = canvas.figure(&title, &seconds(end));
        for (line, intervals) in lines.iter().zip(points) {
            let values = || intervals.iter().flatten().map(|(_, value)| value);
            let mean = values().sum::<f64>() / values().count().max(1) as f64;
            let told = format!("{mean:.2} on average");
            figure.add(&line.label, [told], drawn(&canvas, intervals, end));
        }
        let some = points.iter().flatten().flatten().count() > 0;
        some.then_some(figure)
    };
    sides.iter().filter_map(draw).collect()
}

impl Line<'_> {
    /// Returns the time and value of each reading, interval by interval; for an interval without
    /// readings, the interval's own value.
    fn points(&self, key: &str) -> Intervals {
        let of = |at: f64, values: &Values| Some((at - self.begin_s, *values.get(key)?));
        let interval = |sample: &&Sample| -> Vec<(f64, f64)> {
            if sample.usage.is_empty() {
                return of(sample.started_s, &sample.values).into_iter().collect();
            }
            sample.usage.iter().filter_map(|usage| of(usage.at_s, &usage.sides)).collect()
        };
        self.samples.iter().map(interval).collect()
    }
}

/// Returns a line for each interval, in one element, with a mark at its beginning; a single reading
/// is a mark alone.
fn drawn(canvas: &Canvas, intervals: &Intervals, end: f64) -> Drawn {
    let (mut begins, mut trace) = (Vec::new(), String::new());
    for interval in intervals {
        let place = |(at, value): &(f64, f64)| (Canvas::x(at / end.max(1e-9)), canvas.y(*value));
        let places: Vec<(f64, f64)> = interval.iter().map(place).collect();
        begins.extend(places.first());
        if places.len() > 1 {
            trace += &format!("M{}", points(&places));
        }
    }
    Drawn { trace, marks: marks(&begins), ..Drawn::default() }
}
