//! A report, and a comparison of two, as self-contained HTML pages. The layout is in the templates
//! beside it.

use super::Report;
use super::answer::{Row, caveat, headline, trust};
use super::figure::{details, forest, overview, summary};
use super::table::tables;
use super::text::remarks;
use super::verdict::with_interval;
use crate::compare::Comparison;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, context};

/// Templates by name.
const TEMPLATES: [(&str, &str); 5] = [
    ("report.html", include_str!("report.html")),
    ("comparison.html", include_str!("comparison.html")),
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
        trust => Value::from(Serde(trust(report))),
        kind => report.bench.kind(),
        remarks => remarks(report),
        overview => Value::from(Serde(overview(report))),
        details => Value::from(Serde(details(report))),
        // Values contain no `<`; only that could end the script element around them.
        intervals => intervals.replace('<', ""),
    };
    rendered("report.html", context)
}

/// Returns the page of a comparison: its answer, a row for each figure, and other differences.
pub(crate) fn comparison(
    found: &Comparison,
    [answer, differences]: &[Vec<String>; 2],
    rows: &[Row],
) -> Result<String, Error> {
    let (found, summary) = (Value::from(Serde(found)), Value::from(Serde(forest(rows))));
    rendered("comparison.html", context! { found, summary, answer, differences })
}
