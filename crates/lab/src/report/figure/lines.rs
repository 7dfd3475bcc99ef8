//! Lines over places: throughput by block size, processor time over time.

use super::canvas::{Canvas, escape};
use super::{Figure, Series, class, legend};

/// A line for each series. `places` are parts of the width with their words, one for each value.
pub(super) fn lines(title: &str, places: &[(f64, String)], series: &[Series]) -> Option<Figure> {
    let values = series.iter().flat_map(|one| one.values.iter().flatten());
    let mut canvas = Canvas::new(title, values.copied().fold(0.0, f64::max))?;
    canvas.ticks(places);
    let many = places.len() > 24;
    for (number, one) in series.iter().enumerate() {
        let class = class(number);
        let known = places.iter().zip(&one.values);
        let points: Vec<(f64, f64, f64, &str)> = known
            .filter_map(|((part, word), value)| {
                let value = (*value)?;
                Some((Canvas::x(*part), canvas.y(value), value, word.as_str()))
            })
            .collect();
        let path: Vec<String> = points.iter().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect();
        canvas.put(format_args!(r#"<polyline class="{class}" points="{}"/>"#, path.join(" ")));
        for (x, y, value, word) in points.iter().filter(|_| !many) {
            let apart = if word.is_empty() { "" } else { ", " };
            let named = escape(&format!("{}{apart}{word}", one.label));
            canvas.put(format_args!(
                r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3"><title>{named}: {value:.2}</title></circle>"#
            ));
        }
    }
    let legend = legend(series.iter().map(|one| one.label.clone()));
    Some(Figure { title: title.to_owned(), legend, svg: canvas.finish() })
}

/// Words at equal distances.
pub(super) fn evenly(words: Vec<String>) -> Vec<(f64, String)> {
    let last = words.len().saturating_sub(1).max(1) as f64;
    // Half a step of air at both ends.
    let part = |place: usize| (place as f64 + 0.25) / (last + 0.5);
    words.into_iter().enumerate().map(|(place, word)| (part(place), word)).collect()
}
