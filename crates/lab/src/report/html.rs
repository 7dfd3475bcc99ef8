//! A report as one self-contained HTML page.

use super::Report;
use super::figure::strip;
use super::table::tables;
use super::text::summary;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

/// The page. Its layout is in `report.html`.
pub(super) fn page(report: &Report, json: &str) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.add_template("report.html", include_str!("report.html"))?;
    let figures: Vec<String> = report
        .all_cases()
        .iter()
        .flat_map(|case| report.measures.iter().map(|measure| strip(case, measure)))
        .filter(|svg| !svg.is_empty())
        .collect();
    let arms: Vec<String> = report.first.arms_in_order().map(|arm| arm.label.clone()).collect();
    environment.get_template("report.html")?.render(context! {
        report => Value::from(Serde(report)),
        tables => Value::from(Serde(tables(report))),
        summary => summary(report),
        figures => figures,
        arms => arms,
        // Inside a script element only a closing tag could do harm.
        json => json.replace("</", "<\\/"),
    })
}
