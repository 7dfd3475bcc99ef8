//! Bars: side by side for trains by their segments, and one below the other for the steps of a
//! ladder.

use super::canvas::Canvas;
use super::{Bar, Drawn, Figure, Series};

/// Returns a figure with a group of bars for each word, and in it a bar for each series.
pub(super) fn bars(
    title: &str,
    words: &[String],
    series: &[Series],
    decimals: usize,
) -> Option<Figure> {
    let values = series.iter().flat_map(|one| one.values.iter().flatten());
    let canvas = Canvas::new(values.copied().fold(0.0, f64::max))?;
    let group = 1.0 / words.len().max(1) as f64;
    let width = group * 0.8 / series.len().max(1) as f64;
    let tick = |(place, word): (usize, &String)| ((place as f64 + 0.5) * group, word.clone());
    let mut figure = canvas.figure(title, &words.iter().enumerate().map(tick).collect::<Vec<_>>());
    for (number, one) in series.iter().enumerate() {
        let places = words.iter().zip(&one.values).enumerate();
        let known: Vec<_> =
            places.filter_map(|(place, (word, value))| Some((place, word, (*value)?))).collect();
        let bar = |(place, word, value): &(usize, &String, f64)| {
            let left = *place as f64 * group + group * 0.1 + number as f64 * width;
            let (x, y) = (Canvas::x(left), canvas.y(*value));
            let (wide, high) = (Canvas::x(left + width) - x - 1.0, canvas.y(0.0) - y);
            let [x, y, wide, high] = [x, y, wide, high].map(|at| format!("{at:.1}"));
            Bar { x, y, wide, high, title: format!("{}, {word}: {value:.decimals$}", one.label) }
        };
        let bars = known.iter().map(bar).collect();
        let told = known.iter().map(|(_, word, value)| format!("{word} {value:.decimals$}"));
        figure.add(&one.label, told, Drawn { bars, ..Drawn::default() });
    }
    Some(figure)
}

/// Returns a figure with a bar for each value, below its words, which may be long. `None` if all
/// values are 0.
pub(super) fn rows(title: String, values: &[(String, f64)], decimals: usize) -> Option<Figure> {
    let largest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let row = |(words, value): &(String, f64)| {
        [words.clone(), format!("{value:.decimals$}"), format!("{:.1}", 100.0 * value / largest)]
    };
    let rows = values.iter().map(row).collect();
    (largest > 0.0).then_some(Figure { title, rows, ..Figure::default() })
}
