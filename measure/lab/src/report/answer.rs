//! The answer of a report, which precedes all tables: one sentence, the questions with their
//! verdicts, and how far to trust them.

use super::case::{Loss, Setting, capital, plural};
use super::table::Points;
use super::verdict::{change, doubt, level, nouns};
use super::{Case, Check, Report};
use crate::load::Way;
use crate::measure::Measure;
use crate::usage::OTHERS;
use statistics::{Comparison, Verdict};
use std::collections::BTreeMap;

/// A question of the report, and its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The load, such as `1 connection`.
    pub load: String,
    /// The compared figure, such as `throughput`.
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
        match self.found.verdict {
            Verdict::Improved => "better",
            Verdict::Worse => "worse",
            _ => "open",
        }
    }
}

/// Returns all questions, in the order of the tables. The loads of a sweep are compared in
/// throughput alone, and so are peers if throughput is measured.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    let sweeps = Points::of(&report.cases).is_some();
    let mut rows = Vec::new();
    for (place, case) in report.cases.iter().enumerate() {
        let load = match case.truth {
            Some(truth) => {
                format!("Try {}, {}", place + 1, if truth < 1.0 { "slowed" } else { "the same" })
            }
            None => capital(&words(case, &report.cases)),
        };
        let throughput: Vec<&Measure> =
            report.measures.iter().filter(|measure| is_throughput(measure)).collect();
        let all = throughput_first(report.measures);
        let of_peers = if throughput.is_empty() { &all } else { &throughput };
        rows.extend(of_case(&load, case, if sweeps { &throughput } else { &all }, of_peers));
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
    let whole = if case.steps.is_empty() { "" } else { "all steps: " };
    let mut rows = questions(load, whole, &case.comparisons, measures);
    for (arm, found) in case.arms_in_order().skip(1).zip(&case.steps) {
        rows.extend(questions(load, &format!("{}: ", arm.label), found, measures));
    }
    for (arm, found) in case.peers_in_order() {
        rows.extend(questions(load, &format!("against {}: ", arm.label), found, of_peers));
    }
    rows
}

/// Returns a row for each measure that was compared. `prefix` precedes the measure.
fn questions(
    load: &str,
    prefix: &str,
    found: &BTreeMap<String, Comparison>,
    measures: &[&Measure],
) -> Vec<Row> {
    let row = |measure: &&Measure| {
        let found = *found.get(measure.improvement)?;
        let question = format!("{prefix}{}", nouns(measure).0);
        Some(Row { load: load.to_owned(), question, answer: change(measure, &found), found })
    };
    measures.iter().filter_map(row).collect()
}

/// Returns the measures with throughput first, as readers expect.
fn throughput_first(measures: &[Measure]) -> Vec<&Measure> {
    let (first, later): (Vec<&Measure>, Vec<&Measure>) =
        measures.iter().partition(|measure| is_throughput(measure));
    first.into_iter().chain(later).collect()
}

fn is_throughput(measure: &Measure) -> bool {
    measure.improvement == "throughput"
}

/// Returns the answer in a sentence.
pub(super) fn headline(report: &Report) -> String {
    let cases = &report.cases;
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    let warning = if failed > 0 { "Do not trust these figures: checks failed. " } else { "" };
    let answer = match Points::of(cases) {
        _ if cases.iter().any(|case| case.truth.is_some()) => known(report),
        Some(points) => {
            let said = report.measures.first().and_then(|measure| points.sentence(measure));
            said.unwrap_or_default()
        }
        None => compared(report, cases),
    };
    format!("{warning}{answer}")
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

/// Returns the sentence of an experiment whose answer is known beforehand.
fn known(report: &Report) -> String {
    let told = report.checks.iter().rev().take(2).rev();
    told.map(|check| format!("{}: {}.", check.name, check.seen)).collect::<Vec<_>>().join(" ")
}

/// Returns the sentence that compares the arms, over all loads.
fn compared(report: &Report, cases: &[Case]) -> String {
    let Some(case) = cases.first() else { return String::new() };
    let labels: Vec<&str> = case.own_arms().map(|(_, arm)| arm.label.as_str()).collect();
    let subject = match labels.as_slice() {
        [first, .., _] if !case.steps.is_empty() => format!("All steps against {first}"),
        [on, off, ..] => format!("{on} against {off}"),
        _ => return String::new(),
    };
    let receivers = by_receiver(cases).count();
    let one_way = cases.iter().all(|one| one.setting.way == case.setting.way);
    let sentence = |own: &[Case]| {
        let setting = own.first().map(|case| case.setting);
        let toward = match setting.is_some_and(|setting| setting.receiver_gro) {
            true if receivers > 1 => "toward one with GRO, ",
            true => "toward a receiver with GRO, ",
            false if receivers > 1 => "toward a receiver without GRO, ",
            false if report.bench.emulator.is_some() => "toward an emulated guest (QEMU), ",
            false => "",
        };
        let way = match setting.and_then(|setting| setting.way) {
            Some(Way::ToVnic) if !one_way => "guest receives, ",
            _ => "",
        };
        let measures = throughput_first(report.measures).into_iter();
        let answers = measures.filter_map(|measure| over_loads(own, measure));
        let answers = answers.reduce(|all, next| format!("{all}; {next}"));
        let answers = answers.unwrap_or_else(|| "not measured".to_owned());
        format!("{toward}{way}{}: {answers}.", loads(own))
    };
    let alike = |one: &Case, next: &Case| {
        let key = |case: &Case| (case.setting.receiver_gro, case.setting.way);
        key(one) == key(next)
    };
    let told = cases.chunk_by(alike).map(sentence);
    let told = told.reduce(|first, next| format!("{first} {}", capital(&next)));
    format!("{subject}, {}", told.unwrap_or_default())
}

/// Groups adjacent cases with the same receiver.
pub(super) fn by_receiver(cases: &[Case]) -> impl Iterator<Item = &[Case]> {
    cases.chunk_by(|one, next| one.setting.receiver_gro == next.setting.receiver_gro)
}

/// Returns the words of a case's load. The direction is named if it is unusual or differs between
/// the cases, the receiver if it differs.
fn words(case: &Case, cases: &[Case]) -> String {
    let alike = cases.iter().all(|one| one.setting.way == case.setting.way);
    let one_receiver = by_receiver(cases).count() == 1;
    let receiver_gro = case.setting.receiver_gro && !one_receiver;
    let setting = Setting { receiver_gro, ..case.setting };
    if alike { setting.short() } else { setting.words() }
}

/// Returns `1, 16 and 64 connections` if the loads differ in nothing else, otherwise the words of
/// each load.
fn loads(cases: &[Case]) -> String {
    let Some((last, before)) = cases.split_last() else { return String::new() };
    let Setting { connections, .. } = last.setting;
    let alike = before.iter().all(|one| Setting { connections, ..one.setting } == last.setting);
    if before.is_empty() || !alike {
        let words: Vec<String> = cases.iter().map(|case| words(case, cases)).collect();
        return words.join("; ");
    }
    let counts: Vec<String> =
        before.iter().map(|one| one.setting.connections.to_string()).collect();
    // The direction precedes the count; the block size and the receiver follow it.
    let count = plural(connections, "connection");
    words(last, cases).replacen(&count, &format!("{} and {count}", counts.join(", ")), 1)
}

/// Returns a measure's answers in one phrase: their range if all verdicts are equal, otherwise the
/// answer for each load.
fn over_loads(cases: &[Case], measure: &Measure) -> Option<String> {
    let found = cases
        .iter()
        .filter_map(|case| Some((words(case, cases), case.comparisons.get(measure.improvement)?)));
    let found: Vec<(String, &Comparison)> = found.collect();
    let (_, first) = found.first()?;
    let (noun, ..) = nouns(measure);
    let known = matches!(first.verdict, Verdict::Improved | Verdict::Worse);
    if !found.iter().all(|(_, one)| one.verdict == first.verdict) {
        let answers = found
            .iter()
            .map(|(load, one)| format!("{}{} ({load})", change(measure, one), doubt(one)));
        return Some(format!("{noun} {}", answers.collect::<Vec<_>>().join(", ")));
    }
    let weakest = found.iter().map(|(_, one)| *one).min_by(|a, b| a.level.total_cmp(&b.level));
    let doubt = weakest.map(doubt).unwrap_or_default();
    if !known {
        return Some(format!("{noun}: {}{doubt}", change(measure, first)));
    }
    let ratios = || found.iter().map(|(_, one)| one.ratio);
    let (least, most) =
        ratios().fold((f64::MAX, 0.0_f64), |ends, ratio| (ends.0.min(ratio), ends.1.max(ratio)));
    Some(span(measure, least, most) + &doubt)
}

/// Returns `29.6 % higher throughput`, `2.20x to 2.70x the throughput`,
/// `51.0 to 54.8 % fewer cycles per byte`.
fn span(measure: &Measure, least: f64, most: f64) -> String {
    let (noun, more, less) = nouns(measure);
    let range = |least: String, most: String| {
        if least == most { least } else { format!("{least} to {most}") }
    };
    if most >= 2.0 {
        return format!("{} the {noun}", range(format!("{least:.2}x"), format!("{most:.2}x")));
    }
    let percent = |ratio: f64| format!("{:.1}", (ratio - 1.0).abs() * 100.0);
    match most > 1.0 {
        true => format!("{} % {more} {noun}", range(percent(least), percent(most))),
        false => format!("{} % {less} {noun}", range(percent(most), percent(least))),
    }
}

/// Returns how much other machines and programs used the processors, if that was too much to trust
/// the figures.
pub(crate) fn disturbance(report: &Report) -> Option<String> {
    let is_bad = |check: &Check| !check.passed && ["Steal", "Neighbours"].contains(&&*check.name);
    let told = trust(report).into_iter().filter(is_bad);
    told.map(|check| check.seen).reduce(|one, other| format!("{one}; {other}"))
}

/// Returns what affects trust in the figures: the checks, steal, the load of others, and loss.
pub(super) fn trust(report: &Report) -> Vec<Check> {
    let cases = || report.cases.iter().chain(&report.latency);
    let arms = || cases().flat_map(|case| case.arms.values());
    let most = |key: &str| arms().filter_map(|arm| arm.median(key)).reduce(f64::max);
    let passed = report.checks.iter().filter(|check| check.passed).count();
    let all = report.checks.len();
    let mut told = Vec::new();
    let mut tell = |name: &str, passed, seen| told.push(Check { name: name.into(), passed, seen });
    tell("Checks", passed == all, format!("{passed} of {all} passed"));
    if let Some(steal) = most("steal_percent") {
        let seen = format!("{steal:.1} % of the processors were used by other machines");
        tell("Steal", steal <= 2.0, seen);
    }
    // A guest on the switch's machine counts as another program.
    if let Some(others) = most(OTHERS).filter(|_| report.bench.hosts.is_empty()) {
        let machine = &report.machine;
        let processors = machine.usable.unwrap_or(machine.processors).max(1) as f64;
        let seen = format!("other programs used {others:.2} of {processors} processors");
        tell("Neighbours", others <= 0.2 * processors, seen);
    }
    // Losses of other switches are in their rows.
    let whole = cases().flat_map(|case| case.own_arms().map(|(_, arm)| (arm.lost, arm.resent)));
    let phases = cases().flat_map(Case::phase_arms).map(|arm| (arm.lost, arm.resent));
    let (lost, resent): (Vec<_>, Vec<_>) = whole.chain(phases).unzip();
    let worst = |losses: Vec<Option<Loss>>| {
        let known = losses.into_iter().flatten();
        known.max_by(|one, other| one.percent.total_cmp(&other.percent))
    };
    if let (Some(lost), Some(resent)) = (worst(lost), worst(resent)) {
        let good = lost.warning().or(resent.warning()).is_none();
        let (lost, resent) = (lost.words(), resent.words());
        let seen = format!("lost frames at most {lost}; resent segments at most {resent}");
        tell("Loss", good, seen);
    }
    let stalled: usize = arms().map(|arm| arm.stalled).sum();
    let intervals: usize = arms().map(|arm| arm.intervals).sum();
    let seen = format!("{stalled} of {intervals} intervals without a byte");
    tell("Stalls", stalled == 0, seen);
    told
}
