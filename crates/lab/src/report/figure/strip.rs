//! Every interval of a case as a dot in the order of time, the medians as lines.

use super::canvas::Canvas;
use super::{Figure, class, legend};
use crate::experiment::{Measure, Sample};
use crate::report::Case;
use crate::report::table::arrow;

/// One measure of a case. `None` where nothing was measured.
pub(super) fn strip(case: &Case, measure: &Measure) -> Option<Figure> {
    let value = |sample: &Sample| sample.values.get(measure.key).map(|value| value * measure.scale);
    let largest = case.samples.iter().filter_map(value).fold(0.0, f64::max);
    let title = format!("{}, {}", measure.label, arrow(measure.better));
    let mut canvas = Canvas::new(largest)?;
    let (first, last) = (case.samples.first()?.started_s, case.samples.last()?.started_s);
    canvas.ticks(&[(0.0, "0 s".into()), (1.0, format!("{:.0} s", last - first))]);
    let mut told = vec![title.clone()];
    for (place, name) in case.order.iter().enumerate() {
        let class = class(place);
        let own = case.samples.iter().filter(|sample| sample.arm == *name);
        let places = own.filter_map(|sample| {
            let part = (sample.started_s - first) / (last - first).max(1e-9);
            Some((Canvas::x(part), canvas.y(value(sample)?)))
        });
        let places: Vec<(f64, f64)> = places.collect();
        canvas.marks(&class, &places);
        let median = case.median(name, measure.key).map(|median| median * measure.scale);
        if let Some(median) = median {
            let (at, begin, end) = (canvas.y(median), Canvas::x(0.0), Canvas::x(1.0));
            canvas.put(format_args!(
                r#"<line class="{class}" x1="{begin}" y1="{at:.1}" x2="{end}" y2="{at:.1}"/>"#
            ));
            let (label, count) = (label(case, name), places.len());
            told.push(format!(
                "{label}: median {median:.*} of {count} intervals",
                measure.decimals
            ));
        }
    }
    let legend = legend(case.order.iter().map(|name| label(case, name)));
    Some(Figure { title, legend, svg: canvas.finish(&told.join(". ")) })
}

fn label(case: &Case, name: &str) -> String {
    case.arms.get(name).map_or_else(|| name.to_owned(), |arm| arm.label.clone())
}
