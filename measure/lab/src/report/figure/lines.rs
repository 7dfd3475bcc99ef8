//! Lines over places: throughput by block size or by connections.

use super::canvas::{Canvas, marks, points};
use super::{Drawn, Figure, Series};

/// Returns a line for each series. `ticks` are fractions of the width with their words, one for
/// each value.
pub(super) fn lines(title: &str, ticks: &[(f64, String)], series: &[Series]) -> Option<Figure> {
    let values = series.iter().flat_map(|one| one.values.iter().flatten());
    let canvas = Canvas::new(values.copied().fold(0.0, f64::max))?;
    let mut figure = canvas.figure(title, ticks);
    for one in series {
        let known = ticks.iter().zip(&one.values);
        let known = known.filter_map(|((part, word), value)| Some((*part, word, (*value)?)));
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for (part, word, value) in known {
            places.push((Canvas::x(part), canvas.y(value)));
            values.push(format!("{value:.2} at {word}"));
        }
        let (line, marks) = (points(&places), marks(&places));
        figure.add(&one.label, values, Drawn { line, marks, ..Drawn::default() });
    }
    Some(figure)
}

/// Spreads words at equal distances.
pub(super) fn evenly(words: Vec<String>) -> Vec<(f64, String)> {
    let last = words.len().saturating_sub(1).max(1) as f64;
    // Half a step of space at both ends.
    let part = |place: usize| (place as f64 + 0.25) / (last + 0.5);
    words.into_iter().enumerate().map(|(place, word)| (part(place), word)).collect()
}
