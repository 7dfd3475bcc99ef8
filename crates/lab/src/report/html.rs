//! A report as one self-contained HTML page.

use super::Report;
use super::figure::{details, overview};
use super::table::tables;
use super::text::results;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

/// The page. Its layout is in `report.html`.
pub(super) fn page(report: &Report, json: &str) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.add_template("report.html", include_str!("report.html"))?;
    environment.get_template("report.html")?.render(context! {
        report => Value::from(Serde(report)),
        tables => Value::from(Serde(tables(report))),
        results => results(report),
        overview => Value::from(Serde(overview(report))),
        details => Value::from(Serde(details(report))),
        // Inside a script element only a closing tag could do harm.
        json => json.replace("</", "<\\/"),
    })
}
