//! A report, and a comparison of two, as self-contained HTML pages. The layout is in the templates
//! beside it.

use super::Report;
use super::answer::{Row, caveat};
use super::figure::{details, forest, overview, summary};
use super::headline::{headline, worse};
use super::table::tables;
use super::text::remarks;
use super::tiles::{Tile, chart, tiles};
use super::trust::{Light, influences, light};
use super::verdict::with_interval;
use crate::compare::Comparison;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, context};

/// Templates by name.
const TEMPLATES: [(&str, &str); 6] = [
    ("report.html", include_str!("report.html")),
    ("comparison.html", include_str!("comparison.html")),
    ("screen.html", include_str!("screen.html")),
    ("head.html", include_str!("head.html")),
    ("forest.html", include_str!("forest.html")),
    ("style.css", include_str!("style.css")),
];

fn rendered(name: &str, context: Value) -> Result<String, Error> {
    let mut environment = Environment::new();
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    environment.get_template(name)?.render(context)
}

/// Returns the page of a report. `intervals` is the raw data as CSV.
pub(super) fn page(report: &Report, intervals: &str) -> Result<String, Error> {
    let context = context! {
        report => Value::from(Serde(report)),
        tables => Value::from(Serde(tables(report, with_interval))),
        machine => report.machine.words(),
        headline => headline(report),
        caveat => caveat(report),
        summary => Value::from(Serde(summary(report))),
        worse => worse(report),
        light => Value::from(Serde(light(report))),
        tiles => Value::from(Serde(tiles(report))),
        beside => Value::from(Serde(chart(report))),
        trust => Value::from(Serde(influences(report))),
        kind => report.bench.kind(),
        remarks => remarks(report),
        overview => Value::from(Serde(overview(report))),
        details => Value::from(Serde(details(report))),
        // Values contain no `<`; only that could end the script element around them.
        intervals => intervals.replace('<', ""),
    };
    rendered("report.html", context)
}

/// First screen of a comparison: its answer, the light beside it, and the figures that changed most.
pub(crate) struct Screen {
    pub(crate) headline: String,
    pub(crate) light: Light,
    pub(crate) tiles: Vec<Tile>,
}

/// Returns the page of a comparison: its first screen, a row for each figure, and other differences.
pub(crate) fn comparison(
    found: &Comparison,
    screen: &Screen,
    differences: &[String],
    rows: &[Row],
) -> Result<String, Error> {
    let context = context! {
        found => Value::from(Serde(found)),
        headline => screen.headline.clone(),
        light => Value::from(Serde(&screen.light)),
        tiles => Value::from(Serde(&screen.tiles)),
        summary => Value::from(Serde(forest(rows))),
        differences => differences.to_vec(),
    };
    rendered("comparison.html", context)
}
