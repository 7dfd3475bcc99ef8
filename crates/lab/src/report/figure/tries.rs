//! What each try found: a dot and its interval above and below no difference.

use super::canvas::{Canvas, escape};
use super::{Figure, class};
use crate::experiments::itself::{Tally, of_kind};
use crate::report::Report;

/// The tries of one kind. Those with a wrong answer have the second colour.
pub(super) fn tries(report: &Report, tally: &Tally) -> Option<Figure> {
    let tries = of_kind(report.all_cases(), tally.kind);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let ends = tries.iter().flat_map(|one| [one.found.interval.low, one.found.interval.high]);
    let largest = ends.map(|end| percent(end).abs()).fold(0.0, f64::max);
    let title = format!("{}: difference in throughput by try, in %", tally.kind.words());
    let mut canvas = Canvas::around_zero(&title, largest)?;
    let step = 1.0 / tries.len().max(1) as f64;
    let place = |number: usize| (number as f64 + 0.5) * step;
    let words = (0..tries.len()).map(|number| (place(number), (number + 1).to_string()));
    canvas.ticks(&words.collect::<Vec<_>>());
    for (number, one) in tries.iter().enumerate() {
        let (right, found) = (one.is_right(), one.found);
        let (class, x) = (class(usize::from(!right)), Canvas::x(place(number)));
        let [low, at, high] = [found.interval.low, found.ratio, found.interval.high].map(percent);
        let (bottom, y, top) = (canvas.y(low), canvas.y(at), canvas.y(high));
        let told = escape(&format!(
            "Try {}: {at:+.2} % ({low:+.2} to {high:+.2}), {} pairs",
            number + 1,
            found.pairs
        ));
        canvas.put(format_args!(
            r#"<line class="{class}" x1="{x:.1}" y1="{bottom:.1}" x2="{x:.1}" y2="{top:.1}"/><circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.5"><title>{told}</title></circle>"#
        ));
    }
    let legend = [(false, "correct answer"), (true, "wrong or no answer")];
    let legend = legend.map(|(wrong, words)| (self::class(usize::from(wrong)), words.to_owned()));
    Some(Figure { title, legend: legend.into(), svg: canvas.finish() })
}
