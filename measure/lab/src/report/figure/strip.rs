//! Every interval of a case as a dot in the order of time, the medians as lines.

use super::canvas::{Canvas, marks, seconds};
use super::{Drawn, Figure};
use crate::measure::Measure;
use crate::plan::Sample;
use crate::report::Case;
use crate::report::table::arrow;

/// Returns the figure of one measure of a case; `None` if nothing was measured.
pub(super) fn strip(case: &Case, measure: &Measure) -> Option<Figure> {
    let value = |sample: &Sample| sample.values.get(measure.key).map(|value| value * measure.scale);
    let largest = case.samples.iter().filter_map(value).fold(0.0, f64::max);
    let title = format!("{}, {}", measure.label, arrow(measure.better));
    let canvas = Canvas::new(largest)?;
    let (first, last) = (case.samples.first()?.started_s, case.samples.last()?.started_s);
    let mut figure = canvas.figure(&title, &seconds(last - first));
    for name in &case.order {
        let own = case.samples.iter().filter(|sample| sample.arm == *name);
        let places = own.filter_map(|sample| {
            let part = (sample.started_s - first) / (last - first).max(1e-9);
            Some((Canvas::x(part), canvas.y(value(sample)?)))
        });
        let places: Vec<(f64, f64)> = places.collect();
        let median = case.median(name, measure.key).map(|median| median * measure.scale);
        let (decimals, count) = (measure.decimals, places.len());
        let told = median.map(|at| format!("median {at:.decimals$} of {count} intervals"));
        let across = median.map(|median| format!("{:.1}", canvas.y(median)));
        let drawn = Drawn { across, marks: marks(&places), ..Drawn::default() };
        figure.add(case.label(name), told, drawn);
    }
    Some(figure)
}
