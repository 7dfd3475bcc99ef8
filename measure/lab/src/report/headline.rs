//! The answer of a report in a sentence with absolute numbers, every row that is worse, and the
//! last lines of a terminal, which repeat both with the trust in them.

use super::answer::{Row, all_rows, by_receiver, caveat, load_words, loads, throughput_first};
use super::case::capital;
use super::quantity::both;
use super::table::Points;
use super::trust::light;
use super::verdict::{change, level, nouns};
use super::{Case, Report};
use crate::load::Way;
use crate::measure::Measure;
use crate::plan::questions;
use statistics::{CONFIDENCE, Comparison, Verdict};

/// Most loads that a headline lists with their numbers.
const LISTED: usize = 4;
/// Most lines of rows that are worse, and of loads in one of them.
const WORSE: usize = 6;

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

/// Returns the last lines of a terminal: the answer, what is worse, and the trust in both.
pub fn verdict(report: &Report) -> String {
    let mut lines = vec![headline(report)];
    let peers = beside(report).map(|peers| peers + " ").unwrap_or_default();
    let worse = worse(report);
    if !worse.is_empty() {
        lines.push(format!("{peers}Worse: {}.", worse.join("; ")));
    } else if !peers.is_empty() {
        let is_open = |row: &Row| row.found.verdict == Verdict::TooFewSamples;
        let nothing = "Nothing is significantly worse.";
        lines.push(peers + if all_rows(report).iter().any(is_open) { "" } else { nothing });
    }
    lines.push(light(report).words());
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns the sentence of an experiment whose answer is known beforehand.
fn known(report: &Report) -> String {
    let told = report.checks.iter().rev().take(2).rev();
    told.map(|check| format!("{}: {}.", check.name, check.seen)).collect::<Vec<_>>().join(" ")
}

/// Returns the sentence that compares the arms, over all loads. The level stands there once.
fn compared(report: &Report, cases: &[Case]) -> String {
    let Some(subject) = cases.first().and_then(subject) else { return String::new() };
    let alike = |one: &Case, next: &Case| {
        let key = |case: &Case| (case.setting.receiver_gro, case.setting.way);
        key(one) == key(next)
    };
    let told = cases.chunk_by(alike).map(|own| of_group(report, own));
    let told = told.reduce(|first, next| format!("{first} {}", capital(&next)));
    let levels = cases.iter().flat_map(|case| case.comparisons.values());
    let levels = levels.filter(|found| found.verdict != Verdict::TooFewSamples);
    let weakest = levels.map(|found| found.level).reduce(f64::min);
    let doubt = match weakest {
        Some(weakest) if weakest < CONFIDENCE => {
            format!(" Verdicts hold at {} % each.", level(weakest))
        }
        _ => String::new(),
    };
    format!("{subject}, {}{doubt}", told.unwrap_or_default())
}

/// Returns `RSC in the vSwitch Disabled → Enabled`; `None` without two arms.
fn subject(case: &Case) -> Option<String> {
    let arms = compared_arms(case)?;
    let [on, off] = arms.map(|arm| case.label(arm));
    let all = if case.steps.is_empty() { "" } else { "All steps, " };
    Some(format!("{all}{off} → {}", without_common_words(on, off)))
}

/// Returns the arms of a case's first question, the baseline second.
pub(super) fn compared_arms(case: &Case) -> Option<[&str; 2]> {
    questions(&case.order, case.stepped()).into_iter().next()
}

/// Returns `text` without the words that `before` begins with as well; all of it if nothing is left.
fn without_common_words<'t>(text: &'t str, before: &str) -> &'t str {
    let mut rest = text;
    for word in before.split(' ') {
        match rest.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')) {
            Some(next) => rest = next,
            None => break,
        }
    }
    rest
}

/// Returns the sentence of loads with the same receiver and direction.
fn of_group(report: &Report, own: &[Case]) -> String {
    let receivers = by_receiver(&report.cases).count();
    let ways = report.cases.iter().map(|case| case.setting.way);
    let several_ways = ways.clone().zip(ways.skip(1)).any(|(one, next)| one != next);
    let setting = own.first().map(|case| case.setting);
    let toward = match setting.is_some_and(|setting| setting.receiver_gro) {
        true if receivers > 1 => "toward one with GRO, ",
        true => "toward a receiver with GRO, ",
        false if receivers > 1 || caveat(report).is_some() => "toward a receiver without GRO, ",
        false if report.bench.emulator.is_some() => "toward an emulated guest (QEMU), ",
        false => "",
    };
    let way = match setting.and_then(|setting| setting.way) {
        Some(Way::ToVnic) if several_ways => "guest receives, ",
        _ => "",
    };
    let measures = throughput_first(report.measures);
    let (first, others) = measures.split_at(measures.len().min(1));
    let listed = first.first().filter(|_| own.len() <= LISTED);
    let lead = listed.and_then(|measure| absolute(own, measure));
    let ranges = if lead.is_some() { others } else { &measures[..] };
    // What is worse follows the sentence.
    let is_told = |measure: &&&Measure| lead.is_none() || !is_worse(own, measure);
    let ranges = ranges.iter().filter(is_told);
    let ranges: Vec<String> = ranges.filter_map(|measure| over_loads(own, measure)).collect();
    let answers = match lead {
        Some(lead) => std::iter::once(lead).chain(ranges).collect::<Vec<_>>().join("; "),
        None if ranges.is_empty() => format!("{}: not measured", loads(own)),
        None => format!("{}: {}", loads(own), ranges.join("; ")),
    };
    format!("{toward}{way}{answers}.")
}

fn is_worse(cases: &[Case], measure: &Measure) -> bool {
    let found = cases.iter().filter_map(|case| case.comparisons.get(measure.improvement));
    found.into_iter().any(|found| found.verdict == Verdict::Worse)
}

/// Returns `1 connection: 1.80 → 4.84 Gb/s (2.69x), 16 connections: …`; `None` if a load has no
/// figures.
fn absolute(own: &[Case], measure: &Measure) -> Option<String> {
    let of_case = |case: &Case| {
        let numbers = both(case, compared_arms(case)?, measure)?;
        let found = case.comparisons.get(measure.improvement)?;
        let load = load_words(case, own);
        Some(format!("{load}: {} ({})", numbers.words(), change(measure, found)))
    };
    let told: Option<Vec<String>> = own.iter().map(of_case).collect();
    told.filter(|told| !told.is_empty()).map(|told| told.join(", "))
}

/// Returns a measure's answers in one phrase: their range if all verdicts are equal, otherwise the
/// answer for each load.
fn over_loads(cases: &[Case], measure: &Measure) -> Option<String> {
    let found = cases.iter().filter_map(|case| {
        Some((load_words(case, cases), case.comparisons.get(measure.improvement)?))
    });
    let found: Vec<(String, &Comparison)> = found.collect();
    let (_, first) = found.first()?;
    let (noun, ..) = nouns(measure);
    let known = matches!(first.verdict, Verdict::Improved | Verdict::Worse);
    if !found.iter().all(|(_, one)| one.verdict == first.verdict) {
        let answers = found.iter().map(|(load, one)| format!("{} ({load})", change(measure, one)));
        return Some(format!("{noun} {}", answers.collect::<Vec<_>>().join(", ")));
    }
    if !known {
        return Some(format!("{noun}: {}", change(measure, first)));
    }
    Some(span(measure, found.iter().map(|(_, one)| one.ratio)))
}

/// Returns `29.6 % higher throughput`, `2.20x to 2.70x the throughput`,
/// `51.0 to 54.8 % fewer cycles per byte`.
fn span(measure: &Measure, ratios: impl Iterator<Item = f64>) -> String {
    let (least, most) = ratios
        .fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
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

/// Returns `Linux bridge, GRO on: 1 connection 4.40 Gb/s, 16 connections 3.86 Gb/s.` if there is
/// one peer alone.
fn beside(report: &Report) -> Option<String> {
    let measure = throughput_first(report.measures).into_iter().next()?;
    let case = report.cases.first().filter(|case| case.peers.len() == 1)?;
    let (name, label) = case.peers.keys().map(|name| (name.as_str(), case.label(name))).next()?;
    let of_case = |case: &Case| {
        let numbers = both(case, [name, name], measure)?;
        Some(format!("{} {}", load_words(case, &report.cases), numbers.last()))
    };
    let told: Vec<String> = report.cases.iter().take(LISTED).filter_map(of_case).collect();
    (!told.is_empty()).then(|| format!("{label}: {}.", told.join(", ")))
}

/// Returns a phrase for everything that is significantly worse, in any measure, step or peer, with
/// its loads: `against Linux bridge, GRO on: 16.2 % lower throughput (1 connection)`. Empty if
/// nothing is. Beyond [`WORSE`] the rest is counted.
pub(super) fn worse(report: &Report) -> Vec<String> {
    let mut rows = all_rows(report);
    rows.retain(|row| row.found.verdict == Verdict::Worse);
    let mut told: Vec<String> = Vec::new();
    let mut before: Option<String> = None;
    for own in grouped(&rows) {
        let Some(first) = own.first() else { continue };
        let phrase = phrase(&own);
        // Measures of the same subject share its name.
        match told.last_mut().filter(|_| before.as_ref() == Some(&first.subject)) {
            Some(line) => *line += &format!(", {phrase}"),
            None if first.subject.is_empty() => told.push(phrase),
            None => told.push(format!("{}: {phrase}", first.subject)),
        }
        before = Some(first.subject.clone());
    }
    let more = told.len().saturating_sub(WORSE);
    told.truncate(WORSE);
    if more > 0 {
        told.push(format!("{more} more, in the table of verdicts"));
    }
    told
}

/// Returns the rows by subject and measure, in the order in which these appear.
fn grouped(rows: &[Row]) -> Vec<Vec<&Row>> {
    // The experiment's own question, which has no subject, comes first.
    let mut subjects = vec![""];
    for row in rows {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for subject in subjects {
        for row in rows.iter().filter(|row| row.subject == subject) {
            let same = |group: &&mut Vec<&Row>| {
                group.first().is_some_and(|first| first.question == row.question)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
    }
    groups
}

/// Returns `16.2 to 20.1 % lower throughput (1 connection, 16 connections)`.
fn phrase(own: &[&Row]) -> String {
    let Some(first) = own.first() else { return String::new() };
    let loads: Vec<&str> = own.iter().map(|row| row.load.as_str()).collect();
    let counts: Option<Vec<&str>> =
        loads.iter().map(|load| load.split_once(" connection").map(|(count, _)| count)).collect();
    let plain = |counts: &Vec<&str>| counts.iter().all(|count| count.parse::<u32>().is_ok());
    let loads = match (counts.filter(plain), loads.len()) {
        (_, count) if count > WORSE => format!("{count} loads"),
        (Some(counts), 2..) => joined(&counts) + " connections",
        // The measure says that these are round trips.
        _ => loads.join(", ").replace("Round trips, ", "").replace("Round trips ", ""),
    };
    format!("{} ({loads})", span(&first.measure, own.iter().map(|row| row.found.ratio)))
}

/// Returns `1, 16 and 64`.
fn joined(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_once_what_both_arms_are() {
        for (off, on, rest) in [
            ("RSC in the vSwitch Disabled", "RSC in the vSwitch Enabled", "Enabled"),
            ("MTU 1500", "MTU 9000", "9000"),
            ("1 queue", "4 queues, dynamic", "4 queues, dynamic"),
            ("same", "same", "same"),
        ] {
            assert_eq!(without_common_words(on, off), rest);
        }
    }
}
