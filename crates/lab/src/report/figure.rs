//! The figures of a report, as small SVG drawn by hand: which ones a report has is said by its cases.
//!
//! A drawing library cannot say "the page's own text colour"; these few shapes can, so that one figure serves print,
//! dark and light. Colours are the CSS classes `c0` to `c5` of `report.html`.

mod bars;
mod canvas;
mod distribution;
mod forest;
mod lines;
mod pick;
mod strip;
mod usage;

pub(super) use pick::{details, overview, summary};

pub(super) use canvas::escape;
use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figure {
    /// What stands above it, with unit.
    pub title: String,
    /// Colour class and what it stands for; empty where there is one colour.
    pub legend: Vec<(String, String)>,
    /// The drawing.
    pub svg: String,
}

/// One colour's values, one for each place on the x axis; `None` leaves a gap.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    label: String,
    values: Vec<Option<f64>>,
}

/// Colours there are; then they begin again.
const COLOURS: usize = 6;

fn class(place: usize) -> String {
    format!("c{}", place % COLOURS)
}

fn legend(labels: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let all: Vec<_> =
        labels.into_iter().enumerate().map(|(place, label)| (class(place), label)).collect();
    if all.len() > 1 { all } else { Vec::new() }
}
