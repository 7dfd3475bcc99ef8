//! How far to trust a report's figures: what affected them, each with a grade, and the traffic
//! light over all of it.
//!
//! A doubt leaves the figures valid, but wide or disturbed. Where something is bad, the figures say
//! little, and the light is red.

use super::answer::throughput_first;
use super::case::Loss;
use super::verdict::{level, nouns};
use super::{ArmFigures, Case, Report};
use crate::plan::Ended;
use crate::usage::OTHERS;
use serde::Serialize;
use statistics::{CONFIDENCE, Comparison, FEWEST_PAIRS};

/// How good an influence is, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    Fine,
    Doubt,
    Bad,
}

impl Grade {
    /// Returns the grade of a figure that is doubtful above one bound and bad above another.
    fn above(figure: f64, [doubt, bad]: [f64; 2]) -> Grade {
        match figure {
            figure if figure > bad => Grade::Bad,
            figure if figure > doubt => Grade::Doubt,
            _ => Grade::Fine,
        }
    }

    /// Returns the mark before a line of text.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Grade::Fine => "ok  ",
            Grade::Doubt => "WARN",
            Grade::Bad => "RED ",
        }
    }

    /// Returns what the light says.
    fn word(self) -> &'static str {
        match self {
            Grade::Fine => "ok",
            Grade::Doubt => "doubtful",
            Grade::Bad => "not to be trusted",
        }
    }
}

/// Something that affects trust in the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Influence {
    pub name: &'static str,
    pub grade: Grade,
    /// Observation, in words.
    pub seen: String,
}

/// The traffic light beside the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Light {
    pub grade: Grade,
    /// The grade in words, such as `doubtful`.
    pub word: &'static str,
    /// What makes it so; without doubts, what speaks for the figures.
    pub reasons: Vec<String>,
}

impl Light {
    /// Returns `Trust: doubtful: other programs used 1.63 of 2 processors`.
    pub(super) fn words(&self) -> String {
        format!("Trust: {}: {}.", self.word, self.reasons.join("; "))
    }
}

/// Returns the light of a report: the worst grade, with everything that has a doubt, the worst
/// first. The precision is always told.
pub(super) fn light(report: &Report) -> Light {
    let mut told = influences(report);
    let worst = told.iter().map(|one| one.grade).max().unwrap_or(Grade::Fine);
    told.retain(|one| one.grade > Grade::Fine || ["Checks", "Precision"].contains(&one.name));
    if worst > Grade::Fine {
        told.retain(|one| one.grade > Grade::Fine || one.name == "Precision");
    }
    told.sort_by_key(|one| std::cmp::Reverse(one.grade));
    let reasons = told.into_iter().map(|one| one.seen).collect();
    Light { grade: worst, word: worst.word(), reasons }
}

/// Returns how much other machines and programs used the processors, if that was too much to trust
/// the figures.
pub(crate) fn disturbance(report: &Report) -> Option<String> {
    let is_bad =
        |one: &Influence| one.grade > Grade::Fine && ["Steal", "Neighbours"].contains(&one.name);
    let told = influences(report).into_iter().filter(is_bad);
    told.map(|one| one.seen).reduce(|one, other| format!("{one}; {other}"))
}

/// Returns what affects trust in the figures: the checks, steal, the load of others, loss, stalls,
/// an early end, and the precision of the ratios.
pub(super) fn influences(report: &Report) -> Vec<Influence> {
    let arms = || all(report).flat_map(|case| case.arms.values());
    let most = |key: &str| arms().filter_map(|arm| arm.median(key)).reduce(f64::max);
    let mut told = vec![checks(report)];
    let mut tell = |name, grade, seen| told.push(Influence { name, grade, seen });
    if let Some(steal) = most("steal_percent") {
        let seen = format!("{steal:.1} % of the processors were used by other machines");
        tell("Steal", Grade::above(steal, [2.0, 10.0]), seen);
    }
    // A guest on the switch's machine counts as another program.
    if let Some(others) = most(OTHERS).filter(|_| report.bench.hosts.is_empty()) {
        let machine = &report.machine;
        let processors = machine.usable.unwrap_or(machine.processors).max(1) as f64;
        let seen = format!("other programs used {others:.2} of {processors} processors");
        tell("Neighbours", Grade::above(others / processors, [0.2, 0.5]), seen);
    }
    told.extend(losses(report));
    told.push(stalls(arms()));
    told.extend(all(report).find_map(ending));
    told.extend(precision(report));
    told
}

fn all(report: &Report) -> impl Iterator<Item = &Case> {
    report.cases.iter().chain(&report.latency)
}

fn checks(report: &Report) -> Influence {
    let (count, mut failed) = (report.checks.len(), report.checks.iter().filter(|c| !c.passed));
    let passed = count - failed.clone().count();
    let (grade, why) = match failed.next() {
        Some(check) => (Grade::Bad, format!(": {}: {}", check.name, check.seen)),
        None => (Grade::Fine, String::new()),
    };
    let noun = if count == 1 { "check" } else { "checks" };
    Influence { name: "Checks", grade, seen: format!("{passed} of {count} {noun} passed{why}") }
}

/// Returns the largest losses of this switch; those of others are in their rows.
fn losses(report: &Report) -> Option<Influence> {
    let whole = all(report).flat_map(|case| case.own_arms().map(|(_, arm)| (arm.lost, arm.resent)));
    let phases = all(report).flat_map(Case::phase_arms).map(|arm| (arm.lost, arm.resent));
    let (lost, resent): (Vec<_>, Vec<_>) = whole.chain(phases).unzip();
    let worst = |losses: Vec<Option<Loss>>| {
        let known = losses.into_iter().flatten();
        known.max_by(|one, other| one.percent.total_cmp(&other.percent))
    };
    let (lost, resent) = (worst(lost)?, worst(resent)?);
    let grade = [lost, resent].into_iter().map(|loss| match loss.warning() {
        Some("RED") => Grade::Bad,
        Some(_) => Grade::Doubt,
        None => Grade::Fine,
    });
    let grade = grade.max().unwrap_or(Grade::Fine);
    let mut told = vec![("lost frames", lost), ("resent segments", resent)];
    if grade > Grade::Fine {
        told.retain(|(_, loss)| loss.warning().is_some());
    }
    let told = told.iter().map(|(what, loss)| format!("{what} at most {}", loss.words()));
    let seen = told.collect::<Vec<_>>().join("; ");
    Some(Influence { name: "Loss", grade, seen })
}

fn stalls<'r>(arms: impl Iterator<Item = &'r ArmFigures>) -> Influence {
    let counts = arms.map(|arm| (arm.stalled, arm.intervals));
    let (stalled, intervals) =
        counts.fold((0, 0), |(stalled, all), (more, of)| (stalled + more, all + of));
    let grade = Grade::above(stalled as f64 / intervals.max(1) as f64, [0.0, 0.1]);
    let seen = format!("{stalled} of {intervals} intervals without a byte");
    Influence { name: "Stalls", grade, seen }
}

fn ending(case: &Case) -> Option<Influence> {
    let (grade, seen) = match &case.ended {
        Ended::Interrupted => (Grade::Doubt, "interrupted before all was measured".to_owned()),
        Ended::Failed(why) => (Grade::Bad, format!("ended early: {why}")),
        Ended::Complete | Ended::NarrowEnough => return None,
    };
    Some(Influence { name: "End", grade, seen })
}

/// Returns how closely the ratio of the first measure is known where it is known least, and at
/// which level; `None` if nothing is compared.
fn precision(report: &Report) -> Option<Influence> {
    let measure = throughput_first(report.measures).into_iter().next()?;
    let found = report.cases.iter().filter_map(|case| case.comparisons.get(measure.improvement));
    let found: Vec<&Comparison> = found.collect();
    let half = |one: &&Comparison| one.interval.width() / 2.0 / one.ratio.max(1e-9);
    let widest = found.iter().copied().map(|one| half(&one)).reduce(f64::max)?;
    let weakest = found.iter().map(|one| one.level).reduce(f64::min)?;
    let pairs = found.iter().map(|one| one.pairs).min()?;
    let grade = match (pairs, weakest) {
        (pairs, _) if pairs < FEWEST_PAIRS => Grade::Bad,
        (_, weakest) if weakest < CONFIDENCE => Grade::Doubt,
        _ => Grade::above(widest, [0.25, f64::INFINITY]),
    };
    let (noun, ..) = nouns(measure);
    let (percent, level) = (100.0 * widest, level(weakest));
    let decimals = usize::from(percent < 9.5);
    let seen = match grade {
        Grade::Bad => format!("{pairs} pairs of intervals, a verdict takes {FEWEST_PAIRS}"),
        _ => format!(
            "ratios of {noun} are known to ±{percent:.decimals$} % at {level} % ({pairs} pairs)"
        ),
    };
    Some(Influence { name: "Precision", grade, seen })
}
