//! Figures as small SVG, drawn by hand: every interval as a dot in the order of time, the medians as lines.
//!
//! A drawing library cannot say "the page's own text colour"; these few shapes can, so that one figure serves print,
//! dark and light. Colours are the CSS classes `arm0` and `arm1` of `report.html`.

use super::Case;
use super::table::arrow;
use crate::experiment::Measure;
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 26.0;

/// Every interval of a case in one measure. Empty where nothing was measured.
pub(super) fn strip(case: &Case, measure: &Measure) -> String {
    let value = |sample: &crate::experiment::Sample| {
        sample.values.get(measure.key).map(|v| v * measure.scale)
    };
    let top = case.samples.iter().filter_map(value).fold(0.0, f64::max) * 1.1;
    let last = case.samples.last().map_or(0.0, |sample| sample.started_s);
    let first = case.samples.first().map_or(0.0, |sample| sample.started_s);
    if top <= 0.0 {
        return String::new();
    }
    let x = |at: f64| LEFT + (at - first) / (last - first).max(1e-9) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let mut svg = opening(measure);
    axes(&mut svg, top, measure, &y, last - first);
    for (place, name) in case.order.iter().enumerate() {
        for sample in case.samples.iter().filter(|sample| sample.arm == *name) {
            let Some(value) = value(sample) else { continue };
            let _ = write!(
                svg,
                r#"<circle class="arm{place}" cx="{:.1}" cy="{:.1}" r="3.5"><title>{name}: {value:.*}</title></circle>"#,
                x(sample.started_s),
                y(value),
                measure.decimals
            );
        }
        let median = case.arms.get(name).and_then(|arm| arm.median(measure.key));
        if let Some(median) = median.map(|median| median * measure.scale) {
            let (at, end) = (y(median), WIDTH - RIGHT);
            let _ = write!(
                svg,
                r#"<line class="arm{place}" x1="{LEFT}" y1="{at:.1}" x2="{end}" y2="{at:.1}"/>"#
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn opening(measure: &Measure) -> String {
    format!(
        r#"<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{label} of every interval"><text x="{LEFT}" y="16">{label}, {better}</text>"#,
        label = measure.label,
        better = arrow(measure.better)
    )
}

fn axes(svg: &mut String, top: f64, measure: &Measure, y: &dyn Fn(f64) -> f64, seconds: f64) {
    for part in [0.0, 0.25, 0.5, 0.75] {
        let (value, end) = (top * part, WIDTH - RIGHT);
        let (at, text) = (y(value), LEFT - 6.0);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{end}" y2="{at:.1}"/><text class="tick" text-anchor="end" x="{text}" y="{:.1}">{value:.*}</text>"#,
            at + 4.0,
            measure.decimals.min(2)
        );
    }
    let (end, bottom) = (WIDTH - RIGHT, HEIGHT - 6.0);
    let _ = write!(
        svg,
        r#"<text class="tick" x="{LEFT}" y="{bottom}">0 s</text><text class="tick" text-anchor="end" x="{end}" y="{bottom}">{seconds:.0} s</text>"#
    );
}
