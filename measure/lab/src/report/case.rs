//! A case of a report: one load, with its arms side by side.

use super::Account;
use crate::load::{BUFFER_BYTES, Way};
use crate::measure::Measure;
use crate::plan::{Arm, Ended, Phase, Plan, Run, Sample, Values, compare_arms, questions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statistics::{CONFIDENCE, Comparison, Summary, holm};
use std::collections::BTreeMap;

/// An arm's figures by key (`throughput_bps`, `cpu_percent`, `cycles_per_byte` and more).
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ArmFigures {
    /// What people read.
    pub label: String,
    /// Intervals measured.
    #[serde(default)]
    pub intervals: usize,
    /// Of these, the ones in which no byte arrived and no round trip ended.
    #[serde(default)]
    pub stalled: usize,
    /// Frames that the switch lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Loss>,
    /// Segments that the sender's TCP sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent: Option<Loss>,
    /// Where the samples of each key lie, with the unit in the key.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Summary>,
}

/// What was lost or sent again over all intervals of an arm.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Loss {
    /// How many a second.
    pub per_s: f64,
    /// Of all that were sent, in per cent.
    pub percent: f64,
}

impl Loss {
    /// Returns the rate of events `so_many`, and their share of these and `others` together, over
    /// all phases if there are any. `None` if one was not counted.
    fn of(columns: &BTreeMap<String, Vec<f64>>, so_many: &str, others: &[&str]) -> Option<Loss> {
        let phased = columns.keys().any(|name| name.ends_with("_seconds"));
        let sum = |key: &str| {
            let is_own =
                |name: &str| Some(phased) == name.strip_suffix(key).map(|by| by.ends_with('_'));
            let own = columns.iter().filter(|(name, _)| is_own(name));
            own.flat_map(|(_, column)| column).copied().reduce(|sum, next| sum + next)
        };
        let (lost, seconds) = (sum(so_many)?, sum("seconds").filter(|seconds| *seconds > 0.0)?);
        let rest = others.iter().map(|key| sum(key)).sum::<Option<f64>>()?;
        (rest + lost > 0.0)
            .then(|| Loss { per_s: lost / seconds, percent: 100.0 * lost / (rest + lost) })
    }

    /// Returns a warning from 1 % and a stronger one from 5 %.
    pub(super) fn warning(&self) -> Option<&'static str> {
        match self.percent {
            percent if percent >= 5.0 => Some("RED"),
            percent if percent >= 1.0 => Some("WARNING"),
            _ => None,
        }
    }

    /// Returns `13690/s, 7.50 % (RED)`.
    pub(super) fn words(&self) -> String {
        let warning = self.warning().map_or(String::new(), |word| format!(" ({word})"));
        format!("{:.0}/s, {:.2} %{warning}", self.per_s, self.percent)
    }
}

/// One load and its arms.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Case {
    /// What load it was.
    #[serde(flatten)]
    pub setting: Setting,
    /// By name: `on`, `off`.
    pub arms: BTreeMap<String, ArmFigures>,
    /// The arm that should be better against the baseline, by measure; of steps, the last against
    /// the first.
    pub comparisons: BTreeMap<String, Comparison>,
    /// Where each arm stands on the one before it: the comparisons of the second and all later
    /// ones, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<BTreeMap<String, Comparison>>,
    /// The first arm, or the first that is no step, against each arm beyond the question, by that
    /// arm's name: other switches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, BTreeMap<String, Comparison>>,
    /// Names of the arms, the baseline second, or steps from the ground up.
    pub order: Vec<String>,
    /// Length of an interval, in seconds.
    pub interval_s: f64,
    /// What each interval goes through; absent where it is the same all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Why there are no more samples.
    pub ended: Ended,
    /// Where it is known beforehand: the ratio of throughput that was to be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
    /// Who counted what over the whole load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Every interval in the order of time, with all its raw numbers.
    pub samples: Vec<Sample>,
}

/// The load of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Setting {
    /// Connections at once.
    pub connections: u32,
    /// Bytes of one send or receive call; absent for round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u32>,
    /// Of round trips: bulk connections beside them; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u32>,
    /// Whether the guest sends or receives; absent where there are no sender and receiver, as in a
    /// migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
    /// The receiver's kernel coalesces (GRO) what the switch gives it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiver_gro: bool,
}

impl Setting {
    /// Whether round trips are measured, not bulk connections.
    pub(crate) fn is_round_trips(&self) -> bool {
        self.buffer_bytes.is_none()
    }

    /// Returns `guest receives, 4 connections`, with the block if it is not NTttcp's default;
    /// without sender and receiver `under load`.
    pub fn words(&self) -> String {
        if self.is_round_trips() {
            let words = match self.beside {
                Some(count) => format!("round trips beside {}", plural(count, "bulk connection")),
                None => "round trips, idle".to_owned(),
            };
            return words + self.receiver();
        }
        let Some(way) = self.way else { return "under load".to_owned() };
        let mut words = format!("{}, {}", way.words(), plural(self.connections, "connection"));
        if let Some(bytes) = self.buffer_bytes.filter(|bytes| *bytes != BUFFER_BYTES) {
            words += &format!(", {}", block(bytes));
        }
        words + self.receiver()
    }

    /// Returns `, receiver with GRO` if the receiver has GRO.
    pub(super) fn receiver(&self) -> &'static str {
        if self.receiver_gro { ", receiver with GRO" } else { "" }
    }

    /// Returns `4 connections`, with the way and the block if they are not the usual ones.
    pub(super) fn short(&self) -> String {
        let (words, usual) = (self.words(), format!("{}, ", Way::ToVnic.words()));
        words.strip_prefix(&usual).unwrap_or(&words).to_owned()
    }
}

/// Returns the text with its first letter in upper case.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns `1 connection`, `4 connections`.
pub(crate) fn plural(count: u32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns `512 B`, `64 KiB`.
pub(super) fn block(bytes: u32) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}

impl ArmFigures {
    /// Summarises samples that all belong to one arm.
    pub fn of<'s>(label: &str, samples: impl Iterator<Item = &'s Values>) -> ArmFigures {
        let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let (mut intervals, mut stalled) = (0, 0);
        for values in samples {
            intervals += 1;
            let moved = ["round_trips", "received_bytes"].iter().find_map(|key| values.get(*key));
            stalled += usize::from(moved == Some(&0.0));
            for (key, value) in values {
                columns.entry(key.clone()).or_default().push(*value);
            }
        }
        let lost = Loss::of(&columns, "lost_frames", &["egress_frames", "coalesced_packets"]);
        let resent = Loss::of(&columns, "retransmits", &["sent_segments"]);
        let figures = columns.into_iter();
        let figures =
            figures.filter_map(|(key, samples)| Some((key, Summary::of(&samples)?))).collect();
        ArmFigures { label: label.to_owned(), intervals, stalled, lost, resent, figures }
    }

    /// Returns the median of a figure.
    pub fn median(&self, key: &str) -> Option<f64> {
        Some(self.figures.get(key)?.median)
    }
}

impl Case {
    /// Summarises a run.
    pub fn new(plan: &Plan, setting: Setting, run: Run, account: Option<Account>) -> Case {
        let figures = |arm: &Arm| {
            let own = run.samples.iter().filter(|sample| sample.arm == arm.name);
            ArmFigures::of(&arm.label, own.map(|sample| &sample.values))
        };
        // An arm beyond the question that never ran is left out.
        let ran = |arm: &Arm| run.samples.iter().any(|sample| sample.arm == arm.name);
        let asked = asked(plan.steps);
        let arms = plan.arms.iter().enumerate();
        let arms: Vec<&Arm> =
            arms.filter(|(place, arm)| *place < asked || ran(arm)).map(|(_, arm)| arm).collect();
        let mut case = Case {
            setting,
            arms: arms.iter().map(|arm| (arm.name.clone(), figures(arm))).collect(),
            comparisons: BTreeMap::new(),
            steps: Vec::new(),
            peers: BTreeMap::new(),
            order: arms.iter().map(|arm| arm.name.clone()).collect(),
            interval_s: plan.interval.as_secs_f64(),
            phases: plan.phases.clone(),
            ended: run.ended,
            truth: plan.truth,
            account,
            samples: run.samples,
        };
        case.answer(plan.steps, plan.measures, |_| CONFIDENCE);
        case
    }

    /// Compares the arms. `confidence` returns that of each comparison, by the indices of its
    /// question and of its measure.
    fn answer(
        &mut self,
        steps: usize,
        measures: &[Measure],
        confidence: impl Fn([usize; 2]) -> f64,
    ) {
        let questions = questions(&self.order, steps).into_iter().enumerate();
        let mut answers = questions.map(|(place, arms)| {
            let found = measures.iter().enumerate().filter_map(|(number, measure)| {
                let confidence = confidence([place, number]);
                let found = compare_arms(&self.samples, measure, arms, confidence)?;
                Some((measure.improvement.to_owned(), found))
            });
            found.collect::<BTreeMap<_, _>>()
        });
        self.comparisons = answers.next().unwrap_or_default();
        self.steps = answers.by_ref().take(steps.min(self.order.len()).saturating_sub(1)).collect();
        self.peers = self.order.iter().skip(asked(steps)).cloned().zip(answers).collect();
    }

    /// Returns the number of arms that are cumulative steps.
    pub(super) fn stepped(&self) -> usize {
        if self.steps.is_empty() { 0 } else { self.steps.len() + 1 }
    }

    /// Returns the label of an arm.
    pub(super) fn label<'a>(&'a self, arm: &'a str) -> &'a str {
        self.arms.get(arm).map_or(arm, |arm| &arm.label)
    }

    /// Returns the median of an arm's figure.
    pub fn median(&self, arm: &str, key: &str) -> Option<f64> {
        self.arms.get(arm)?.median(key)
    }

    /// Returns an arm's figure in each interval that has it, in the order of time.
    pub(crate) fn column(&self, arm: &str, key: &str) -> Vec<f64> {
        let own = self.samples.iter().filter(|sample| sample.arm == arm);
        own.filter_map(|sample| sample.values.get(key).copied()).collect()
    }

    /// Returns the sum of an arm's figure over all its intervals; `None` if none has it.
    pub fn total(&self, arm: &str, key: &str) -> Option<f64> {
        let column = self.column(arm, key);
        (!column.is_empty()).then(|| column.iter().sum())
    }

    /// Returns the arms, the one that should be better first.
    pub fn arms_in_order(&self) -> impl Iterator<Item = &ArmFigures> {
        self.order.iter().filter_map(|name| self.arms.get(name))
    }

    /// Returns the arms of the question, without those beyond it.
    pub(crate) fn own_arms(&self) -> impl Iterator<Item = (&String, &ArmFigures)> {
        let own = self.order.iter().filter(|name| !self.peers.contains_key(*name));
        own.filter_map(|name| Some((name, self.arms.get(name)?)))
    }

    /// Returns the arms beyond the question, each with the comparisons of an own arm with it.
    pub(super) fn peers_in_order(
        &self,
    ) -> impl Iterator<Item = (&ArmFigures, &BTreeMap<String, Comparison>)> {
        let peer = |name| Some((self.arms.get(name)?, self.peers.get(name)?));
        self.order.iter().filter_map(peer)
    }

    /// Returns each phase of each arm's intervals, with its length.
    pub(super) fn phase_arms(&self) -> impl Iterator<Item = ArmFigures> {
        let figures = move |phase: &Phase, name: &String| {
            let samples = self.samples.iter().filter(|sample| sample.arm == *name);
            let own: Vec<Values> = samples.map(|sample| phase.own(&sample.values)).collect();
            let label = format!("{}, {} s: {}", phase.label, phase.seconds, self.label(name));
            ArmFigures::of(&label, own.iter())
        };
        let each = move |phase| self.order.iter().map(move |name| figures(phase, name));
        self.phases.iter().flat_map(each)
    }

    /// Returns the number of intervals of the arm of the question with the fewest.
    pub fn rounds(&self) -> usize {
        let count = |name: &String| self.samples.iter().filter(|s| s.arm == *name).count();
        self.own_arms().map(|(name, _)| count(name)).min().unwrap_or(0)
    }
}

/// Returns the number of arms of the question, of which `steps` are steps; with steps it includes
/// the arm that is compared with peers.
fn asked(steps: usize) -> usize {
    if steps > 0 { steps.saturating_add(1) } else { 2 }
}

/// A comparison of a report: the index of its case, and in it those of the question and the
/// measure.
type Place = (usize, [usize; 2]);

/// Adjusts all verdicts of a report so that together they hold with the confidence of one. Each
/// case is passed with its measures.
pub(crate) fn hold_together(cases: &mut [(&mut Case, &[Measure])]) {
    let mut places: Vec<Place> = Vec::new();
    for (number, (case, measures)) in cases.iter().enumerate() {
        for question in 0..questions(&case.order, case.stepped()).len() {
            let all = (0..measures.len()).map(|measure| (number, [question, measure]));
            // Comparisons without figures, or with too few pairs for a claim, do not count.
            let asks = |found: Comparison| found.level >= CONFIDENCE;
            places.extend(all.filter(|place| ask(cases, *place, CONFIDENCE).is_some_and(asks)));
        }
    }
    let claims = |place: usize, confidence: f64| {
        let found = places.get(place).and_then(|place| ask(cases, *place, confidence));
        found.is_some_and(|found| found.claims(confidence))
    };
    let confidences = holm(places.len(), claims);
    let known: BTreeMap<Place, f64> = places.into_iter().zip(confidences).collect();
    for (number, (case, measures)) in cases.iter_mut().enumerate() {
        let of = |place| known.get(&(number, place)).copied().unwrap_or(CONFIDENCE);
        case.answer(case.stepped(), measures, of);
    }
}

fn ask(
    cases: &[(&mut Case, &[Measure])],
    (number, [question, measure]): Place,
    confidence: f64,
) -> Option<Comparison> {
    let (case, measures) = cases.get(number)?;
    let arms = *questions(&case.order, case.stepped()).get(question)?;
    compare_arms(&case.samples, measures.get(measure)?, arms, confidence)
}

/// Returns a case of a plan. `figures` returns an interval's figures by its round and by the index
/// of its arm.
#[cfg(test)]
pub(crate) fn case_of(
    plan: &Plan,
    rounds: usize,
    figures: impl Fn(usize, usize) -> crate::plan::Values,
) -> Case {
    let sample = |(round, place): (usize, usize)| Sample {
        round,
        arm: plan.arms[place].name.clone(),
        started_s: 0.0,
        values: figures(round, place),
        usage: Vec::new(),
    };
    let samples = statistics::sequence(plan.arms.len(), rounds).map(sample).collect();
    let run = Run { samples, ended: Ended::Complete };
    Case::new(plan, Setting::default(), run, None)
}
