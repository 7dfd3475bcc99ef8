//! All questions of a report in one figure: the change, its interval, and the verdict in a word and a shape.

use super::Figure;
use super::canvas::escape;
use crate::report::answer::Row;
use crate::statistics::Verdict;
use std::fmt::Write as _;

const WIDTH: f64 = 440.0;
/// Words above their mark.
const ROW: f64 = 36.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 26.0;
const SIDE: f64 = 14.0;
/// Ratios that have a line of the grid, where the axis reaches them.
const GRID: [f64; 17] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0, 3.0, 5.0, 10.0, 100.0];

/// A row for each question; on the axis half is as far from 1 as double. `None` without questions.
pub(super) fn forest(rows: &[Row]) -> Option<Figure> {
    let ends = rows.iter().flat_map(|row| [row.found.interval.low, row.found.interval.high]);
    let reach = ends.map(|end| end.max(1e-3).ln().abs()).reduce(f64::max)?.max(0.06) * 1.05;
    let x = |ratio: f64| WIDTH / 2.0 + ratio.clamp(1e-3, 1e3).ln() / reach * (WIDTH / 2.0 - SIDE);
    let (height, end) = (TOP + ROW * rows.len() as f64 + BOTTOM, TOP + ROW * rows.len() as f64);
    let told: Vec<String> = rows.iter().map(Row::words).collect();
    let mut svg = format!(
        r#"<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-label="{}">"#,
        escape(&told.join(". "))
    );
    let mut last = f64::MIN;
    for ratio in GRID.into_iter().filter(|ratio| ratio.ln().abs() < reach) {
        let at = x(ratio);
        let class = if (ratio - 1.0).abs() < 1e-9 { "one" } else { "grid" };
        let _ = write!(
            svg,
            r#"<line class="{class}" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{end}"/>"#
        );
        // A word needs some room, and that of no change has it first.
        let one = (at - x(1.0)).abs();
        if at - last > 38.0 && !(0.01..=38.0).contains(&one) {
            let y = end + 17.0;
            let _ = write!(
                svg,
                r#"<text class="tick" text-anchor="middle" x="{at:.1}" y="{y}">{ratio}x</text>"#
            );
            last = at;
        }
    }
    for (place, row) in rows.iter().enumerate() {
        let (words, line) = (TOP + ROW * place as f64 + 13.0, TOP + ROW * place as f64 + 24.0);
        let found = row.found;
        let (low, high, at) = (x(found.interval.low), x(found.interval.high), x(found.ratio));
        let class = row.class();
        let mark = match found.verdict {
            Verdict::Improved => {
                format!(r#"<circle class="{class}" cx="{at:.1}" cy="{line}" r="5"/>"#)
            }
            Verdict::Worse => format!(
                r#"<path class="{class}" d="M{:.1} {}L{:.1} {}L{at:.1} {}Z"/>"#,
                at - 6.0,
                line + 5.0,
                at + 6.0,
                line + 5.0,
                line - 6.0
            ),
            _ => format!(r#"<circle class="{class} hollow" cx="{at:.1}" cy="{line}" r="4.5"/>"#),
        };
        let _ = write!(
            svg,
            r#"<g><title>{}</title><text x="2" y="{words}">{}</text><text class="{class}" text-anchor="end" x="{}" y="{words}">{}</text><line class="{class}" x1="{low:.1}" y1="{line}" x2="{high:.1}" y2="{line}"/>{mark}</g>"#,
            escape(&row.words()),
            escape(&row.question),
            WIDTH - 2.0,
            escape(&row.answer)
        );
    }
    svg.push_str("</svg>");
    let title = "Each question: the change, its interval, and the verdict".to_owned();
    Some(Figure { title, legend: Vec::new(), svg })
}
