//! The questions of a report with their verdicts, and the words of the loads they are about.
//! [`headline`](super::headline) makes the sentence of them.

use super::case::{Setting, capital, plural};
use super::table::Points;
use super::verdict::{change, class, level, nouns};
use super::{Case, Report};
use crate::measure::Measure;
use statistics::Comparison;
use std::collections::BTreeMap;

/// A question of the report, and its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The load, such as `1 connection`.
    pub load: String,
    /// What the question is about beside the load: a step, or the peer that an arm is compared with;
    /// empty for the first question of a load.
    pub subject: String,
    pub measure: Measure,
    /// The compared figure with its subject, such as `throughput`.
    pub question: String,
    /// The verdict in words, such as `29.6 % higher`.
    pub answer: String,
    pub found: Comparison,
}

impl Row {
    /// Returns the question and its answer with the interval.
    pub(super) fn words(&self) -> String {
        let Row { load, question, answer, .. } = self;
        format!("{load}: {question}: {answer} ({})", self.interval())
    }

    /// Returns the interval of the change: `+27.0 to +31.2 % at 99.33 %`.
    pub(super) fn interval(&self) -> String {
        let found = &self.found;
        let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
        let (low, high) = (percent(found.interval.low), percent(found.interval.high));
        format!("{low} to {high} % at {} %", level(found.level))
    }

    /// Returns the CSS class of the verdict.
    pub(super) fn class(&self) -> &'static str {
        class(&self.found)
    }
}

/// Returns all questions, in the order of the tables. The loads of a sweep are compared in
/// throughput alone, and so are peers if throughput is measured.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    let throughput: Vec<&Measure> =
        report.measures.iter().filter(|measure| is_throughput(measure)).collect();
    let all = throughput_first(report.measures);
    let of_peers = if throughput.is_empty() { &all } else { &throughput };
    let sweeps = Points::of(&report.cases).is_some();
    rows_in(report, if sweeps { &throughput } else { &all }, of_peers)
}

/// Returns all questions about every measure, in the order of the tables.
pub(super) fn all_rows(report: &Report) -> Vec<Row> {
    let all = throughput_first(report.measures);
    rows_in(report, &all, &all)
}

/// Returns the questions about `measures`, and those about `of_peers` with peers.
fn rows_in(report: &Report, measures: &[&Measure], of_peers: &[&Measure]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, case) in report.cases.iter().enumerate() {
        let load = match case.truth {
            Some(truth) => {
                format!("Try {}, {}", place + 1, if truth < 1.0 { "slowed" } else { "the same" })
            }
            None => capital(&load_words(case, &report.cases)),
        };
        rows.extend(of_case(&load, case, measures, of_peers));
    }
    let trips: Vec<&Measure> = report.latency_measures.iter().collect();
    for case in &report.latency {
        rows.extend(of_case(&capital(&case.setting.words()), case, &trips, &trips));
    }
    rows
}

/// Returns the questions of a case: its own about `measures`, and those about `of_peers` with its
/// peers.
fn of_case(load: &str, case: &Case, measures: &[&Measure], of_peers: &[&Measure]) -> Vec<Row> {
    let whole = if case.steps.is_empty() { "" } else { "all steps" };
    let mut rows = questions(load, whole, &case.comparisons, measures);
    for (arm, found) in case.arms_in_order().skip(1).zip(&case.steps) {
        rows.extend(questions(load, &arm.label, found, measures));
    }
    for (arm, found) in case.peers_in_order() {
        rows.extend(questions(load, &format!("against {}", arm.label), found, of_peers));
    }
    rows
}

/// Returns a row for each measure that was compared.
fn questions(
    load: &str,
    subject: &str,
    found: &BTreeMap<String, Comparison>,
    measures: &[&Measure],
) -> Vec<Row> {
    let row = |measure: &&Measure| {
        let found = *found.get(measure.improvement)?;
        let (load, subject) = (load.to_owned(), subject.to_owned());
        let of = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        let question = format!("{of}{}", nouns(measure).0);
        let answer = change(measure, &found);
        Some(Row { load, subject, measure: **measure, question, answer, found })
    };
    measures.iter().filter_map(row).collect()
}

/// Returns the measures with throughput first, as readers expect.
pub(super) fn throughput_first(measures: &[Measure]) -> Vec<&Measure> {
    let (first, later): (Vec<&Measure>, Vec<&Measure>) =
        measures.iter().partition(|measure| is_throughput(measure));
    first.into_iter().chain(later).collect()
}

fn is_throughput(measure: &Measure) -> bool {
    measure.improvement == "throughput"
}

/// Returns the caveat of an answer that holds only for the measured kind of receiver.
pub(super) fn caveat(report: &Report) -> Option<&'static str> {
    let bench = &report.bench;
    let tap = bench.kind() == "namespaces" && bench.vnic.as_deref() == Some("tap");
    let alone = !report.cases.iter().any(|case| case.setting.receiver_gro);
    (report.experiment == "rsc" && tap && alone).then_some(
        "The receiver is a TAP without its own GRO, where RSC in the switch helps most: user-mode Linux guests gained 1.1x \
         with their own GRO and 1.3x without (docs/performance.md). `--receiver both` measures toward both.",
    )
}

/// Groups adjacent cases with the same receiver.
pub(super) fn by_receiver(cases: &[Case]) -> impl Iterator<Item = &[Case]> {
    cases.chunk_by(|one, next| one.setting.receiver_gro == next.setting.receiver_gro)
}

/// Returns the words of a case's load. The direction is named if it is unusual or differs between
/// the cases, the receiver if it differs.
pub(super) fn load_words(case: &Case, cases: &[Case]) -> String {
    let alike = cases.iter().all(|one| one.setting.way == case.setting.way);
    let one_receiver = by_receiver(cases).count() == 1;
    let receiver_gro = case.setting.receiver_gro && !one_receiver;
    let setting = Setting { receiver_gro, ..case.setting };
    if alike { setting.short() } else { setting.words() }
}

/// Returns `1, 16 and 64 connections` if the loads differ in nothing else, otherwise the words of
/// each load.
pub(super) fn loads(cases: &[Case]) -> String {
    let Some((last, before)) = cases.split_last() else { return String::new() };
    let Setting { connections, .. } = last.setting;
    let alike = before.iter().all(|one| Setting { connections, ..one.setting } == last.setting);
    if before.is_empty() || !alike {
        let words: Vec<String> = cases.iter().map(|case| load_words(case, cases)).collect();
        return words.join("; ");
    }
    let counts: Vec<String> =
        before.iter().map(|one| one.setting.connections.to_string()).collect();
    // The direction precedes the count; the block size and the receiver follow it.
    let count = plural(connections, "connection");
    load_words(last, cases).replacen(&count, &format!("{} and {count}", counts.join(", ")), 1)
}
