//! `millrace report compare`: two reports of the same experiment, before and after a change.
//!
//! The intervals of the two reports were not measured in turn, so they are not pairs: the interval
//! of a change comes from the exact intervals of both medians. Each figure is judged on its own;
//! the tolerance makes up for looking at many. A change is a regression if it is for the worse,
//! beyond the noise, and beyond the tolerance, because two runs on one machine differ a little even
//! without a change. A figure that cannot be judged, because of too few samples or because one
//! report lacks it, is counted and gives an exit code of its own.

mod text;

pub use text::{page, text};

use crate::experiments::measures;
use crate::measure::Measure;
use crate::report::{self, Case, Machine, Report, SCHEMA, Setting};
use crate::{LabError, round_trips};
use schemars::JsonSchema;
use serde::Serialize;
use statistics::{Verdict, compare_independent};
use std::path::Path;

/// Returns the JSON schema of a [`Comparison`].
pub fn json_schema() -> serde_json::Value {
    traffic::schema::of::<Comparison>("comparison", SCHEMA)
}

/// The result of a comparison, as `--json` prints it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Comparison {
    /// Schema version of the reports.
    pub schema: u32,
    /// Name of the experiment: `rsc`.
    pub experiment: String,
    /// The first report.
    pub before: Origin,
    /// The second report.
    pub after: Origin,
    /// Smallest change for the worse that is a regression, as a fraction: 0.05.
    pub tolerance: f64,
    /// Number of regressions.
    pub regressions: usize,
    /// Number of figures that cannot be judged, because one report has too few samples.
    pub too_few_samples: usize,
    /// Figures that both reports have, in the order of the first report.
    pub figures: Vec<Change>,
    /// Loads, arms and figures that only one report has.
    pub missing: Vec<String>,
    /// Circumstances in which the two runs differ.
    pub differences: Vec<Difference>,
}

/// A circumstance that differs; `None` if a report does not record it.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Difference {
    /// Name of the circumstance: `kernel`, `MTU`.
    pub what: String,
    /// Value in the first report.
    pub before: Option<String>,
    /// Value in the second report.
    pub after: Option<String>,
}

impl Comparison {
    /// Returns the exit code: 1 for a regression, otherwise 4 if a figure could not be judged,
    /// otherwise 0.
    pub fn exit_code(&self) -> u8 {
        match (self.regressions, self.too_few_samples + self.missing.len()) {
            (0, 0) => 0,
            (0, _) => 4,
            _ => 1,
        }
    }
}

/// Origin of a report.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Origin {
    /// Path of the file.
    pub file: String,
    /// When the run began, in UTC.
    pub date: String,
    /// Version of Millrace that measured.
    pub millrace: String,
}

/// One figure, before and after.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Change {
    /// The load.
    #[serde(flatten)]
    pub setting: Setting,
    /// Key of the arm.
    pub arm: String,
    /// Label of the arm, for people.
    pub arm_label: String,
    /// Key of the figure, with its unit.
    pub figure: String,
    /// Median of the first report.
    pub before: f64,
    /// Median of the second report.
    pub after: f64,
    /// Ratio of after to before; 1 is no change.
    #[serde(flatten)]
    pub found: statistics::Comparison,
    /// Whether the change is for the worse, beyond the noise and the tolerance.
    pub regression: bool,
    /// Label, scale and decimals, for people.
    #[serde(skip)]
    measure: Measure,
}

/// Compares two reports. `tolerance` is a fraction: 0.05.
///
/// # Errors
/// A file is no report of this version, or the reports have no experiment or load in common.
pub fn compare(before: &Path, after: &Path, tolerance: f64) -> Result<Comparison, LabError> {
    let (first, second) = (read(before)?, read(after)?);
    if first.experiment != second.experiment {
        return Err(LabError::Compare(format!(
            "{} is a report of `{}` and {} of `{}`: compare reports of the same experiment",
            before.display(),
            first.experiment,
            after.display(),
            second.experiment
        )));
    }
    let mut missing = Vec::new();
    let figures = changes(&first, &second, tolerance, &mut missing);
    missing.extend(loads_of_one(&second, &first, "after"));
    if figures.is_empty() {
        return Err(LabError::Compare(format!(
            "{} and {} have no load in common: run both with the same options",
            before.display(),
            after.display()
        )));
    }
    let too_few = |change: &&Change| change.found.verdict == Verdict::TooFewSamples;
    Ok(Comparison {
        schema: SCHEMA,
        differences: differences(&first, &second),
        too_few_samples: figures.iter().filter(too_few).count(),
        missing,
        experiment: first.experiment.clone(),
        before: origin(before, &first),
        after: origin(after, &second),
        tolerance,
        regressions: figures.iter().filter(|change| change.regression).count(),
        figures,
    })
}

fn read(path: &Path) -> Result<Report, LabError> {
    report::read(path).map_err(|why| {
        LabError::Compare(format!(
            "{}: {why}; name the report.json of a `millrace validate`, `ladder`, `sweep` or `connections`",
            path.display()
        ))
    })
}

fn origin(path: &Path, report: &Report) -> Origin {
    Origin {
        file: path.display().to_string(),
        date: report.date.clone(),
        millrace: report.millrace.clone(),
    }
}

impl Report {
    /// Returns all cases, each with its measures.
    fn judged(&self) -> impl Iterator<Item = (&Case, &'static [Measure])> {
        let bulk = self.cases.iter().map(|case| (case, measures(&self.experiment)));
        bulk.chain(self.latency.iter().map(|case| (case, round_trips::MEASURES)))
    }

    /// Returns the circumstances that must be equal for a change to be due to the switch. An older
    /// report lacks MTU and vNIC.
    fn circumstances(&self) -> [(&'static str, Option<String>); 9] {
        let Machine { kernel, memory_bytes, .. } = &self.machine;
        let gibibytes = *memory_bytes as f64 / f64::from(1 << 30);
        let hosts = self.bench.hosts.iter();
        let hosts: Vec<String> =
            hosts.map(|host| format!("{} {}", host.role, host.machine.words())).collect();
        [
            ("bench", Some(self.bench.kind().to_owned())),
            ("MTU", self.bench.mtu.map(|mtu| mtu.to_string())),
            ("vNIC", self.bench.vnic.clone()),
            ("congestion control", self.bench.congestion.clone()),
            ("kernel", Some(kernel.clone())),
            ("machine", Some(format!("{}, {gibibytes:.0} GiB", self.machine.counts()))),
            ("hosts", Some(hosts.join("; "))),
            ("load of others", Some(report::disturbance(self).unwrap_or("within bounds".into()))),
            ("interval", self.cases.first().map(|case| format!("{} s", case.interval_s))),
        ]
    }
}

fn changes(
    before: &Report,
    after: &Report,
    tolerance: f64,
    missing: &mut Vec<String>,
) -> Vec<Change> {
    let mut found = Vec::new();
    missing.extend(loads_of_one(before, after, "before"));
    for (case, measures) in before.judged() {
        let same = after.judged().find(|(other, _)| other.setting == case.setting);
        let Some((other, _)) = same else { continue };
        let only_after = other.order.iter().filter(|name| !case.order.contains(name));
        for name in case.order.iter().chain(only_after) {
            for measure in measures {
                let has = |case: &Case| case.median(name, measure.key).is_some();
                let which = match (has(case), has(other)) {
                    (true, true) => {
                        found.extend(change([case, other], name, measure, tolerance));
                        continue;
                    }
                    (false, false) => continue,
                    (true, false) => "before",
                    (false, true) => "after",
                };
                let (words, label) = (case.setting.words(), measure.label);
                missing.push(format!("{words}, arm {name}, {label}: only {which}"));
            }
        }
    }
    found
}

/// Returns the loads that `one` has and `other` lacks.
fn loads_of_one(one: &Report, other: &Report, which: &str) -> Vec<String> {
    let lacks = |case: &Case| !other.judged().any(|(known, _)| known.setting == case.setting);
    let cases = one.judged().map(|(case, _)| case).filter(|case| lacks(case));
    cases.map(|case| format!("{}: only {which}", case.setting.words())).collect()
}

/// Returns an arm's figure before and after.
fn change(cases: [&Case; 2], arm: &str, measure: &Measure, tolerance: f64) -> Option<Change> {
    let [before, after] = cases.map(|case| case.column(arm, measure.key));
    let found = compare_independent(&after, &before, measure.better.into())?;
    let [then, now] = cases;
    Some(Change {
        setting: then.setting,
        arm: arm.to_owned(),
        arm_label: now.arms.get(arm)?.label.clone(),
        figure: measure.key.to_owned(),
        before: then.median(arm, measure.key)?,
        after: now.median(arm, measure.key)?,
        regression: found.verdict == Verdict::Worse && (found.ratio - 1.0).abs() > tolerance,
        found,
        measure: *measure,
    })
}

fn differences(before: &Report, after: &Report) -> Vec<Difference> {
    let pairs = before.circumstances().into_iter().zip(after.circumstances());
    let differ = pairs.filter(|((_, then), (_, now))| then != now);
    differ
        .map(|((what, before), (_, after))| Difference { what: what.to_owned(), before, after })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BenchFacts;
    use serde_json::{Value, json};

    /// Returns a report of one case whose throughput is `rate` with little noise.
    fn report(rate: f64, experiment: &str) -> Value {
        json!({
            "schema": SCHEMA, "experiment": experiment, "title": "", "millrace": "0.1.0",
            "date": "2026-11-21T21:40:00Z", "bench": BenchFacts::default(), "machine": Machine::default(),
            "cases": [case(rate)], "checks": [], "commands": [], "notes": [],
        })
    }

    fn case(rate: f64) -> Value {
        let figures = json!({
            "n": 12, "median": rate, "lower_quartile": rate, "upper_quartile": rate, "min": rate, "max": rate, "mad": 0.0,
        });
        json!({
            "connections": 1, "buffer_bytes": 65536, "way": "receive",
            "arms": { "on": { "label": "On", "throughput_bps": figures } },
            // An older report, without the level.
            "comparisons": { "throughput": { "ratio": 1.0, "ratio_of_medians": 1.0, "pairs": 12,
                "interval": { "low": 0.9, "high": 1.1 }, "verdict": "no_difference_seen" } }, "order": ["on"], "interval_s": 1.0, "ended": "complete",
            "samples": samples("on", (0..12).map(|place| rate * (1.0 + f64::from(place % 5) / 500.0))),
        })
    }

    fn samples(arm: &str, rates: impl IntoIterator<Item = f64>) -> Value {
        let sample = |(round, rate)| json!({ "round": round, "arm": arm, "started_s": 0.0, "values": { "throughput_bps": rate } });
        rates.into_iter().enumerate().map(sample).collect()
    }

    fn compared(before: &Value, after: &Value) -> Result<Comparison, LabError> {
        let place = tempfile::tempdir().unwrap();
        let paths = ["a.json", "b.json"].map(|name| place.path().join(name));
        for (path, report) in paths.iter().zip([before, after]) {
            std::fs::write(path, report.to_string()).unwrap();
        }
        compare(&paths[0], &paths[1], 0.05)
    }

    #[test]
    fn only_a_change_for_the_worse_beyond_the_tolerance_is_a_regression() {
        for (rate, verdict, regressions) in [
            (1e9, Verdict::NoDifferenceSeen, 0),
            (0.97e9, Verdict::Worse, 0),
            (0.9e9, Verdict::Worse, 1),
            (1.2e9, Verdict::Improved, 0),
        ] {
            let found = compared(&report(1e9, "rsc"), &report(rate, "rsc")).unwrap();
            assert_eq!((found.figures[0].found.verdict, found.regressions), (verdict, regressions));
            assert!((found.figures[0].found.ratio - rate / 1e9).abs() < 1e-6);
            assert_eq!(found.exit_code(), u8::from(regressions == 1));
            let page = page(&found).unwrap();
            for shown in [text(&found), page.clone()] {
                assert!(shown.contains("1 connection") && shown.contains("119.2"), "{shown}");
                assert_eq!(shown.contains("1 regression beyond 5 %"), regressions == 1, "{shown}");
            }
            // The answer stands first and last, also that something is a little worse.
            let text = text(&found);
            assert_eq!(text.lines().next(), text.lines().last(), "{text}");
            let is_told = text.starts_with("No regression beyond 5 % in 1 figures. 1 worse within");
            assert_eq!(is_told, (verdict, regressions) == (Verdict::Worse, 0), "{text}");
            let light = if regressions == 1 { "light bad" } else { "light fine" };
            assert!(page.contains(light), "{page}");
            assert_eq!(page.matches(r#"<div class="row">"#).count(), 1, "{page}");
            let schema = json_schema();
            let json = serde_json::to_value(&found).unwrap();
            jsonschema::validator_for(&schema).unwrap().validate(&json).unwrap();
        }
    }

    #[test]
    fn its_table_has_room_in_120_columns() {
        let mut report = report(1e9, "rsc");
        report["cases"][0]["arms"]["on"]["label"] =
            "RSC Enabled, kernel's GRO at the uplink, twice over".into();
        let text = text(&compared(&report, &report).unwrap());
        let lines = text.lines().filter(|line| line.starts_with([' ', '─', '═']));
        assert!(lines.map(|line| line.chars().count()).max().unwrap() <= 120, "{text}");
    }

    #[test]
    fn three_samples_tell_nothing_even_at_half_the_speed() {
        let short = |rate: f64| {
            let mut short = report(rate, "sweep");
            short["cases"][0]["samples"] = samples("on", [rate; 3]);
            short
        };
        let found = compared(&short(1e9), &short(0.5e9)).unwrap();
        assert_eq!(found.figures[0].found.verdict, Verdict::TooFewSamples);
        assert_eq!((found.regressions, found.too_few_samples, found.exit_code()), (0, 1, 4));
        assert!(!text(&found).contains("No regression"), "{}", text(&found));
        assert!(text(&found).contains("--repetitions 5"));
    }

    #[test]
    fn a_figure_or_load_that_went_is_named_and_not_passed_over() {
        let (before, mut after) = (report(1e9, "rsc"), report(1e9, "rsc"));
        let mut more = case(1e9);
        more["connections"] = 16.into();
        after["cases"] = json!([case(1e9), more]);
        let found = compared(&after, &before).unwrap();
        assert_eq!((found.missing.len(), found.exit_code()), (1, 4));
        assert!(text(&found).contains("16 connections: only before"), "{}", text(&found));
        assert_eq!(compared(&before, &after).unwrap().exit_code(), 4);
        let mut both = before.clone();
        both["cases"][0]["arms"]["off"] = both["cases"][0]["arms"]["on"].clone();
        both["cases"][0]["order"] = json!(["on", "off"]);
        let found = compared(&both, &before).unwrap();
        assert_eq!((found.missing.len(), found.exit_code()), (1, 4));
        let mut dead = before.clone();
        dead["cases"][0]["samples"] = samples("on", [0.0; 12]);
        assert_eq!(compared(&before, &dead).unwrap().regressions, 1, "a stall is the worst of all");
    }

    #[test]
    fn circumstances_that_differ_are_named_one_by_one() {
        let old = report(1e9, "rsc");
        assert_eq!(compared(&old, &old).unwrap().differences, []);
        let mut new = old.clone();
        new["bench"] = json!({
            "in_process": true, "description": "", "mtu": 9000, "vnic": "tap", "congestion": "cubic"
        });
        new["machine"]["kernel"] = "Linux 7".into();
        new["machine"]["processors"] = 64.into();
        let busy = json!({ "n": 12, "median": 40.0, "lower_quartile": 40.0, "upper_quartile": 40.0, "min": 40.0, "max": 40.0, "mad": 0.0 });
        new["cases"][0]["arms"]["on"]["others_cpu_s_per_s"] = busy;
        let found = compared(&old, &new).unwrap();
        let names: Vec<&str> = found.differences.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(
            names,
            ["bench", "MTU", "vNIC", "congestion control", "kernel", "machine", "load of others"]
        );
        assert!(text(&found).contains("within bounds before, other programs used 40.00 of 64"));
        assert!(text(&found).contains("MTU differs: not recorded before, 9000 after"));
        let schema = json_schema();
        let json = serde_json::to_value(&found).unwrap();
        jsonschema::validator_for(&schema).unwrap().validate(&json).unwrap();
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_a_reason() {
        let rsc = report(1e9, "rsc");
        let mut other = rsc.clone();
        other["cases"][0]["connections"] = 7.into();
        let mut newer = rsc.clone();
        newer["schema"] = 99.into();
        let words = |after: &Value| compared(&rsc, after).unwrap_err().to_string();
        assert!(words(&report(1e9, "lso")).contains("`lso`"));
        assert!(words(&other).contains("no load in common"));
        assert!(words(&newer).contains("version 99"));
        assert!(words(&json!({})).contains("report.json"));
    }
}
