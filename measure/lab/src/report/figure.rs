//! The figures of a report, as data that `report.html` draws: which ones a report has is said by
//! its cases.
//!
//! A drawing library cannot say "the page's own text colour"; these few shapes can, so that one
//! figure serves print, dark and light. Series have the CSS classes `c0` to `c5` of `report.html`,
//! in turn.

mod bars;
mod canvas;
mod distribution;
mod forest;
mod lines;
mod pick;
mod strip;
mod usage;

pub(super) use forest::forest;
pub(super) use pick::{details, overview, summary};

use serde::Serialize;

/// One figure. Places are in units of its drawing, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Figure {
    /// What stands above it, with unit.
    pub title: String,
    /// What it says to those who cannot see it; empty where it is text.
    pub words: String,
    /// The numbers beside the lines of the grid, each with its height.
    numbers: Vec<(String, String)>,
    /// Words below the axis.
    ticks: Vec<Tick>,
    /// A colour each.
    series: Vec<Drawn>,
    /// In place of all that: bars one below the other, which the page lays out as text. Words,
    /// value, and its part of the largest in per cent.
    rows: Vec<[String; 3]>,
}

/// A word below the axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Tick {
    x: String,
    anchor: &'static str,
    word: String,
}

/// What is drawn in one colour; what is empty is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Drawn {
    label: String,
    bars: Vec<Bar>,
    /// Height of a line across all of it.
    across: Option<String>,
    /// Points of a line.
    line: String,
    /// Thin lines, as a path.
    trace: String,
    /// Points that have a mark.
    marks: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Bar {
    x: String,
    y: String,
    wide: String,
    high: String,
    title: String,
}

impl Figure {
    /// Adds a series. `values` are what it says in words; none where it has nothing to say.
    fn add(&mut self, label: &str, values: impl IntoIterator<Item = String>, drawn: Drawn) {
        let values: Vec<String> = values.into_iter().collect();
        if !values.is_empty() {
            self.words += &format!(". {label}: {}", values.join(", "));
        }
        self.series.push(Drawn { label: label.to_owned(), ..drawn });
    }
}

/// One colour's values, one for each place on the x axis; `None` leaves a gap.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    label: String,
    values: Vec<Option<f64>>,
}

/// Colours there are; then they begin again.
const COLOURS: usize = 6;
