//! A report as one self-contained HTML page.

use super::Report;
use super::answer::{caveat, headline, trust};
use super::figure::{details, overview, summary};
use super::table::{tables, with_interval};
use super::text::remarks;
use super::topology;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

/// The page. Its layout is in `report.html`; `intervals` is the raw data.
pub(super) fn page(report: &Report, intervals: &str) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.add_template("report.html", include_str!("report.html"))?;
    environment.get_template("report.html")?.render(context! {
        report => Value::from(Serde(report)),
        tables => Value::from(Serde(tables(report, with_interval))),
        machine => report.machine.words(),
        headline => headline(report),
        caveat => caveat(report),
        summary => Value::from(Serde(summary(report))),
        trust => Value::from(Serde(trust(report))),
        topology => Value::from(Serde(topology::picture(report))),
        remarks => remarks(report),
        setup => if guide(report) { "Activity 1: the configuration" } else { "The configuration" },
        activities => activities(report),
        overview => Value::from(Serde(overview(report))),
        details => Value::from(Serde(details(report))),
        // No value of it has a `<`, which alone could end the script element that holds it.
        intervals => intervals.replace('<', ""),
    })
}

/// What the measuring is called: by the guide where it is the guide's.
fn activities(report: &Report) -> &'static str {
    if guide(report) { "Activities 2 and 3: workloads with RSC on and off" } else { "Measured" }
}

fn guide(report: &Report) -> bool {
    report.experiment == "rsc"
}
