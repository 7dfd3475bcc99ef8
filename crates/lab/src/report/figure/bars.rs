//! Bars side by side: the steps of a ladder, trains by their segments.

use super::canvas::Canvas;
use super::{Bar, Drawn, Figure, Series};

/// A group of bars for each word, a bar in it for each series. With one series each bar has its value above it.
pub(super) fn bars(
    title: &str,
    words: &[String],
    series: &[Series],
    decimals: usize,
) -> Option<Figure> {
    let values = series.iter().flat_map(|one| one.values.iter().flatten());
    let largest = values.copied().fold(0.0, f64::max);
    let alone = series.len() == 1;
    // Room for the figures above the bars.
    let canvas = Canvas::new(if alone { largest * 1.08 } else { largest })?;
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
            let value = format!("{value:.decimals$}");
            let title = format!("{}, {word}: {value}", one.label);
            Bar { x, y, wide, high, title, value: alone.then_some(value) }
        };
        let bars = known.iter().map(bar).collect();
        let told = known.iter().map(|(_, word, value)| format!("{word} {value:.decimals$}"));
        figure.add(&one.label, told, Drawn { bars, ..Drawn::default() });
    }
    Some(figure)
}
