//! Bars side by side: the steps of a ladder, trains by their segments.

use super::canvas::{Canvas, escape};
use super::{Figure, Series, class, legend};

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
    let mut canvas = Canvas::new(if alone { largest * 1.08 } else { largest })?;
    let group = 1.0 / words.len().max(1) as f64;
    let width = group * 0.8 / series.len().max(1) as f64;
    let ticks: Vec<(f64, String)> = words
        .iter()
        .enumerate()
        .map(|(place, word)| ((place as f64 + 0.5) * group, word.clone()))
        .collect();
    canvas.ticks(&ticks);
    let mut told = vec![title.to_owned()];
    for (number, one) in series.iter().enumerate() {
        let class = class(number);
        let mut values = Vec::new();
        for (place, value) in one.values.iter().enumerate() {
            let (Some(value), Some(word)) = (value, words.get(place)) else { continue };
            values.push(format!("{word} {value:.decimals$}"));
            let left = place as f64 * group + group * 0.1 + number as f64 * width;
            let (x, y) = (Canvas::x(left), canvas.y(*value));
            let (wide, high) = (Canvas::x(left + width) - x - 1.0, canvas.y(0.0) - y);
            canvas.put(format_args!(
                r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}"><title>{}, {}: {value:.decimals$}</title></rect>"#,
                escape(&one.label),
                escape(word)
            ));
            if alone {
                let (middle, above) = (x + wide / 2.0, y - 4.0);
                canvas.put(format_args!(
                    r#"<text text-anchor="middle" x="{middle:.1}" y="{above:.1}">{value:.decimals$}</text>"#
                ));
            }
        }
        told.push(format!("{}: {}", one.label, values.join(", ")));
    }
    let legend = legend(series.iter().map(|one| one.label.clone()));
    Some(Figure { title: title.to_owned(), legend, svg: canvas.finish(&told.join(". ")) })
}
