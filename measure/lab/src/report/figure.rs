//! The figures of a report, as data that `report.html` draws. The cases determine which figures a
//! report has.
//!
//! The shapes use the page's own text colour, which a drawing library cannot: one figure serves
//! print, dark and light pages. Series have the CSS classes `c0` to `c5` of `report.html`, in turn.

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

/// One figure. Coordinates are in units of its drawing, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Figure {
    /// Title above the figure, with the unit.
    pub title: String,
    /// Description for readers who cannot see it; empty if the figure is text.
    pub words: String,
    /// The numbers beside the lines of the grid, each with its height.
    numbers: Vec<(String, String)>,
    /// Words below the axis.
    ticks: Vec<Tick>,
    /// Series, each in a colour of its own.
    series: Vec<Drawn>,
    /// Horizontal bars, which the page lays out as text; all fields above are empty if there are
    /// any. Each has its words, its value, and the value in per cent of the largest.
    rows: Vec<[String; 3]>,
}

/// A word below the axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Tick {
    x: String,
    anchor: &'static str,
    word: String,
}

/// Shapes of one colour; empty ones are not drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Drawn {
    label: String,
    bars: Vec<Bar>,
    /// Height of a line across the figure.
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
    /// Adds a series. `values` are its description in words, if it has any.
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

/// Number of colours; later series begin again with the first.
const COLOURS: usize = 6;
