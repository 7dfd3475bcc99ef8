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
    /// Name of the arm for readers.
    pub label: String,
    /// Intervals measured.
    #[serde(default)]
    pub intervals: usize,
    /// Intervals in which no byte arrived or no round trip ended.
    #[serde(default)]
    pub stalled: usize,
    /// Loss of frames in the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Loss>,
    /// Retransmissions of the sender's TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent: Option<Loss>,
    /// Summary of the samples of each figure; the key contains the unit.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Summary>,
}

/// Losses or retransmissions over all intervals of an arm.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Loss {
    /// Losses or retransmissions per second.
    pub per_s: f64,
    /// Share of everything sent, in per cent.
    pub percent: f64,
}

impl Loss {
    /// Returns the rate of the figure `event`, and its share of the sum of `event` and `others`.
    /// Figures of phases are summed. `None` if a figure was not counted.
    fn of(columns: &BTreeMap<String, Vec<f64>>, event: &str, others: &[&str]) -> Option<Loss> {
        let phased = columns.keys().any(|name| name.ends_with("_seconds"));
        let sum = |key: &str| {
            let is_own =
                |name: &str| Some(phased) == name.strip_suffix(key).map(|by| by.ends_with('_'));
            let own = columns.iter().filter(|(name, _)| is_own(name));
            own.flat_map(|(_, column)| column).copied().reduce(|sum, next| sum + next)
        };
        let (lost, seconds) = (sum(event)?, sum("seconds").filter(|seconds| *seconds > 0.0)?);
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
    /// The load.
    #[serde(flatten)]
    pub setting: Setting,
    /// Figures of each arm by its name, such as `on` and `off`.
    pub arms: BTreeMap<String, ArmFigures>,
    /// Comparison of the arm that should be better with the baseline, by measure. With cumulative
    /// steps: of the last step with the first.
    pub comparisons: BTreeMap<String, Comparison>,
    /// Comparisons of each cumulative step with the one before it, from the second step on; empty
    /// if the arms are no steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<BTreeMap<String, Comparison>>,
    /// Comparisons of the first arm, or of the first arm after the steps, with each peer, by the
    /// peer's name. Peers are other switches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, BTreeMap<String, Comparison>>,
    /// Names of the arms: the one that should be better, then the baseline; or the steps from the
    /// first on. Peers follow.
    pub order: Vec<String>,
    /// Length of an interval, in seconds.
    pub interval_s: f64,
    /// Phases of each interval; absent if its load is constant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Reason why sampling ended.
    pub ended: Ended,
    /// The ratio of throughput that the comparison should find, if it is known beforehand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
    /// Counts of the whole load's bytes at several places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Every interval in the order of time, with all its raw numbers.
    pub samples: Vec<Sample>,
}

/// The load of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Setting {
    /// Number of concurrent connections.
    pub connections: u32,
    /// Bytes of one send or receive call; absent for round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u32>,
    /// Number of bulk connections beside round trips; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u32>,
    /// Direction: whether the guest sends or receives. Absent without sender and receiver, as in a
    /// migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
    /// Whether the receiver's kernel coalesces (GRO) the frames from the switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiver_gro: bool,
}

impl Setting {
    /// Whether round trips are measured, not bulk connections.
    pub(crate) fn is_round_trips(&self) -> bool {
        self.buffer_bytes.is_none()
    }

    /// Returns `guest receives, 4 connections`, with the block size if it is not NTttcp's default.
    /// Without sender and receiver returns `under load`.
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

    /// Returns `4 connections`, with the direction and the block size if they are unusual.
    pub(super) fn short(&self) -> String {
        let (words, usual) = (self.words(), format!("{}, ", Way::ToVnic.words()));
        words.strip_prefix(&usual).unwrap_or(&words).to_owned()
    }
}

/// Returns the text with its first letter in upper case.
pub(crate) fn capital(text: &str) -> String {
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
    /// Summarises the samples of one arm.
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
        // A peer that never ran is left out.
        let ran = |arm: &Arm| run.samples.iter().any(|sample| sample.arm == arm.name);
        let own_count = own_count(plan.steps);
        let arms = plan.arms.iter().enumerate();
        let arms: Vec<&Arm> = arms
            .filter(|(place, arm)| *place < own_count || ran(arm))
            .map(|(_, arm)| arm)
            .collect();
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
        case.compare(plan.steps, plan.measures, |_| CONFIDENCE);
        case
    }

    /// Compares the arms. `confidence` returns the confidence of a comparison, given the indices of
    /// its question and of its measure.
    fn compare(
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
        self.peers = self.order.iter().skip(own_count(steps)).cloned().zip(answers).collect();
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

    /// Returns the arms of the experiment itself, without peers.
    pub(crate) fn own_arms(&self) -> impl Iterator<Item = (&String, &ArmFigures)> {
        let own = self.order.iter().filter(|name| !self.peers.contains_key(*name));
        own.filter_map(|name| Some((name, self.arms.get(name)?)))
    }

    /// Returns the peers, each with the comparisons of an own arm with it.
    pub(super) fn peers_in_order(
        &self,
    ) -> impl Iterator<Item = (&ArmFigures, &BTreeMap<String, Comparison>)> {
        let peer = |name| Some((self.arms.get(name)?, self.peers.get(name)?));
        self.order.iter().filter_map(peer)
    }

    /// Returns the figures of each phase for each arm, labelled with the phase's length.
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

    /// Returns the smallest number of intervals of an own arm.
    pub fn rounds(&self) -> usize {
        let count = |name: &String| self.samples.iter().filter(|s| s.arm == *name).count();
        self.own_arms().map(|(name, _)| count(name)).min().unwrap_or(0)
    }
}

/// Returns the number of own arms. With `steps` steps, an arm follows them that is compared with
/// peers.
fn own_count(steps: usize) -> usize {
    if steps > 0 { steps.saturating_add(1) } else { 2 }
}

/// Position of a comparison in a report: the index of its case, and the indices of the question and
/// the measure within the case.
type Position = (usize, [usize; 2]);

/// Adjusts all verdicts of a report for multiple comparisons (Holm): all of them hold together with
/// the confidence of one. `cases` has each case with its measures.
pub(crate) fn adjust_confidence(cases: &mut [(&mut Case, &[Measure])]) {
    let mut places: Vec<Position> = Vec::new();
    for (number, (case, measures)) in cases.iter().enumerate() {
        for question in 0..questions(&case.order, case.stepped()).len() {
            let all = (0..measures.len()).map(|measure| (number, [question, measure]));
            // Comparisons without figures, or with too few pairs for a claim, do not count.
            let is_claim = |found: Comparison| found.level >= CONFIDENCE;
            places.extend(
                all.filter(|place| compare_at(cases, *place, CONFIDENCE).is_some_and(is_claim)),
            );
        }
    }
    let claims = |place: usize, confidence: f64| {
        let found = places.get(place).and_then(|place| compare_at(cases, *place, confidence));
        found.is_some_and(|found| found.claims(confidence))
    };
    let confidences = holm(places.len(), claims);
    let known: BTreeMap<Position, f64> = places.into_iter().zip(confidences).collect();
    for (number, (case, measures)) in cases.iter_mut().enumerate() {
        let of = |place| known.get(&(number, place)).copied().unwrap_or(CONFIDENCE);
        case.compare(case.stepped(), measures, of);
    }
}

/// Returns the comparison at a position, at a confidence.
fn compare_at(
    cases: &[(&mut Case, &[Measure])],
    (number, [question, measure]): Position,
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
