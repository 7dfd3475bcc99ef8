//! The plan of a measurement, and the engine that runs it on any bench.
//!
//! A [`Plan`] names its arms, its measures, how long an interval is and when to stop. A [`Bench`]
//! is what is switched from arm to arm while it runs: namespaces around a real switch, stacks in
//! process, or a fake in tests. All time passes through the bench, so the engine is tested on
//! virtual time.
//!
//! The engine guarantees fairness: arms in A B B A order, traffic discarded for a settling time
//! after every switch of arms, and only whole rounds in a comparison.

use crate::error::LabError;
use crate::measure::Measure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statistics::{CONFIDENCE, Comparison, compare, sequence};
use std::collections::BTreeMap;
use std::time::Duration;

/// Rounds between two checks of the stop rule: drawing it takes time, and a rule that is checked
/// often is met by chance once.
const ASK_EVERY: usize = 4;

/// One way the thing under test can be.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Arm {
    /// Key in JSON: `on`, `off`.
    pub name: String,
    /// What people read.
    pub label: String,
}

/// Name of the arm with the feature, in JSON.
pub const ON: &str = "on";
/// Name of the arm without it.
pub const OFF: &str = "off";
/// Returns the two arms of most experiments.
pub(crate) fn on_off(on: impl Into<String>, off: impl Into<String>) -> Vec<Arm> {
    vec![Arm { name: ON.into(), label: on.into() }, Arm { name: OFF.into(), label: off.into() }]
}

/// When enough has been measured: the first condition that holds ends the run.
#[derive(Clone, Copy, Debug)]
pub struct StopRule {
    /// Most intervals per arm.
    pub repetitions: usize,
    /// Width of the confidence interval (0.02: two per cent) that ends the run once all measures
    /// are narrower; `None` never ends it early.
    pub narrow: Option<f64>,
    /// Intervals per arm before which the run does not end early.
    pub least: usize,
}

/// What one run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Key: `rsc`.
    pub name: &'static str,
    /// The arm that should be better, the baseline, and further arms that the first is compared
    /// with; with `steps`, the baseline and then each step; or a single arm.
    pub arms: Vec<Arm>,
    /// Number of leading arms that are cumulative steps; 0 if none are. Of the arms after them, the
    /// first is compared with each further one.
    pub steps: usize,
    /// Measures that each interval yields.
    pub measures: &'static [Measure],
    /// Time under load before the first interval; its traffic is discarded.
    pub warm_up: Duration,
    /// Time under load after each switch of arms; its traffic is discarded.
    pub settle: Duration,
    /// Length of an interval, which yields one sample.
    pub interval: Duration,
    /// Phases of each interval; empty if the load is the same all the time.
    pub phases: Vec<Phase>,
    /// When to stop.
    pub stop: StopRule,
    /// Ratio of throughput that is to be found, if it is known beforehand.
    pub truth: Option<f64>,
}

/// A part of an interval.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Phase {
    /// What its keys begin with. Figures of the phase that an interval is about, which has no
    /// limit, stand without.
    pub keys: String,
    /// What people read.
    pub label: String,
    /// Most that all connections together send; absent: as much as they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_s: Option<u64>,
    /// How long it is.
    pub seconds: f64,
}

/// Key of the entries and queues that load moved.
pub(crate) const MOVES: &str = "moves";
/// Keys of counters that cover a whole phase, because most events happen at its beginning.
const COUNTS: [&str; 7] = [
    "seconds",
    "lost_frames",
    "egress_frames",
    "coalesced_packets",
    "retransmits",
    "sent_segments",
    MOVES,
];
/// Figures, besides [`COUNTS`], of the phases with limited load.
const OF_A_PHASE: &[&str] = &["throughput_bps", "switch_run_s_per_s", "workers_in_use"];

impl Phase {
    /// Returns the key of a figure in this phase.
    pub(crate) fn key(&self, figure: &str) -> String {
        format!("{}{figure}", if self.bits_per_s.is_none() { "" } else { &self.keys })
    }

    /// Returns what this phase adds to an interval's values, from the values of its settled part
    /// and of the whole phase.
    pub(crate) fn part(&self, settled: Values, whole: Values) -> Values {
        let kept = |key: &str| self.bits_per_s.is_none() || OF_A_PHASE.contains(&key);
        let settled = settled.into_iter().filter(|(key, _)| kept(key));
        let figures = settled.map(|(key, value)| (self.key(&key), value));
        let counts = COUNTS.iter().filter_map(|key| Some((key, *whole.get(*key)?)));
        figures.chain(counts.map(|(key, value)| (format!("{}{key}", self.keys), value))).collect()
    }

    /// Returns this phase's values from those of an interval.
    pub(crate) fn own(&self, values: &Values) -> Values {
        let figures = OF_A_PHASE.iter().map(|key| (key, self.key(key)));
        let counts = COUNTS.iter().map(|key| (key, format!("{}{key}", self.keys)));
        let own =
            figures.chain(counts).map(|(key, name)| Some(((*key).to_owned(), *values.get(&name)?)));
        own.flatten().collect()
    }
}

/// Raw numbers of one interval, by key. The measures are among them; the others explain.
pub type Values = BTreeMap<String, f64>;

/// One interval of one arm.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Sample {
    /// Each round has every arm once.
    pub round: usize,
    /// Name of the arm.
    pub arm: String,
    /// When it began, in seconds on the bench's clock.
    pub started_s: f64,
    /// All raw numbers.
    pub values: Values,
    /// Who used the processor within it, in the order of time; empty where it was too short to
    /// look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Processors used by each side in a part of an interval.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Usage {
    /// Its middle, in seconds on the bench's clock.
    pub at_s: f64,
    /// By the keys of an interval: `sender_cpu_s_per_s`.
    #[serde(flatten)]
    pub sides: Values,
}

/// Result of one interval on a bench.
#[derive(Debug)]
pub struct Measured {
    /// All raw numbers.
    pub values: Values,
    /// Processor time of each side within it.
    pub usage: Vec<Usage>,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All repetitions done.
    Complete,
    /// The interval was narrow enough.
    NarrowEnough,
    /// Someone pressed Ctrl-C.
    Interrupted,
    /// It broke; the message says how. What was measured before is kept.
    Failed(String),
}

/// Result of a run: every sample, in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// Why there are no more.
    pub ended: Ended,
}

/// Hosts and load of a run, which the engine switches from arm to arm.
pub trait Bench {
    /// Brings an arm into force without disturbing the load.
    ///
    /// # Errors
    /// The arm cannot be brought into force.
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError>;

    /// Lets time pass while the load runs.
    ///
    /// # Errors
    /// [`LabError::Interrupted`] after Ctrl-C, and an error if the switch has died.
    fn pass(&mut self, time: Duration) -> Result<(), LabError>;

    /// Measures one interval of the load.
    ///
    /// # Errors
    /// A host, the switch or the load broke, or Ctrl-C was pressed.
    fn measure(&mut self, arm: &Arm, interval: Duration) -> Result<Measured, LabError>;

    /// Decides about an arm that could not be brought into force or measured: the run goes on
    /// without it if this returns `Ok`.
    ///
    /// # Errors
    /// The error that ends the run; by default the one given.
    fn give_up(&mut self, _arm: &Arm, error: LabError) -> Result<(), LabError> {
        Err(error)
    }

    /// Returns the time since the bench was set up.
    fn now(&self) -> Duration;
}

/// Progress of a run, for the line on the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
    /// The arm in force; `None` while warming up.
    pub arm: Option<&'a Arm>,
    /// Intervals done.
    pub done: usize,
    /// Intervals of the whole run.
    pub total: usize,
    /// Time that the rest of the run takes at most.
    pub left: Duration,
    /// Values of the last interval; `None` before the first.
    pub last: Option<&'a Values>,
}

impl Plan {
    /// Returns the time that a whole run takes.
    pub fn length(&self) -> Duration {
        self.warm_up + self.left(0)
    }

    /// Returns the number of intervals of a whole run.
    fn total(&self) -> usize {
        self.arms.len() * self.stop.repetitions
    }

    fn left(&self, done: usize) -> Duration {
        let intervals = u32::try_from(self.total().saturating_sub(done)).unwrap_or(u32::MAX);
        (self.settle + self.interval).saturating_mul(intervals)
    }

    /// Runs until the stop rule, an interruption or a failure ends it. The samples measured until
    /// then are kept in any case.
    pub fn run(&self, bench: &mut dyn Bench, progress: &mut dyn FnMut(&Step<'_>)) -> Run {
        let mut samples = Vec::new();
        let ended = match self.measure_all(bench, progress, &mut samples) {
            Ok(ended) => ended,
            Err(LabError::Interrupted) => Ended::Interrupted,
            Err(error) => Ended::Failed(error.to_string()),
        };
        Run { samples, ended }
    }

    fn measure_all(
        &self,
        bench: &mut dyn Bench,
        progress: &mut dyn FnMut(&Step<'_>),
        samples: &mut Vec<Sample>,
    ) -> Result<Ended, LabError> {
        let total = self.total();
        progress(&Step { arm: None, done: 0, total, left: self.length(), last: None });
        bench.pass(self.warm_up)?;
        let (mut in_force, mut given_up) = (None, Vec::new());
        for (round, place) in sequence(self.arms.len(), self.stop.repetitions) {
            let Some(arm) = self.arms.get(place).filter(|_| !given_up.contains(&place)) else {
                continue;
            };
            let done = samples.len();
            if samples.last().is_none_or(|last| last.round != round) && self.enough(samples) {
                return Ok(Ended::NarrowEnough);
            }
            let (left, last) = (self.left(done), samples.last().map(|sample| &sample.values));
            progress(&Step { arm: Some(arm), done, total, left, last });
            let changes = in_force != Some(place);
            in_force = Some(place);
            match self.sample(bench, round, arm, changes) {
                Ok(sample) => samples.push(sample),
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => {
                    bench.give_up(arm, error)?;
                    given_up.push(place);
                    in_force = None;
                }
            }
        }
        Ok(Ended::Complete)
    }

    /// Measures one interval of an arm, after bringing it into force if it `changes`.
    fn sample(
        &self,
        bench: &mut dyn Bench,
        round: usize,
        arm: &Arm,
        changes: bool,
    ) -> Result<Sample, LabError> {
        if changes {
            bench.switch_to(arm)?;
        }
        bench.pass(self.settle)?;
        let started_s = bench.now().as_secs_f64();
        let Measured { values, usage } = bench.measure(arm, self.interval)?;
        Ok(Sample { round, arm: arm.name.clone(), started_s, values, usage })
    }

    /// Whether every measure is known closely. Called between rounds, never within one.
    fn enough(&self, samples: &[Sample]) -> bool {
        let rounds = samples.last().map_or(0, |last| last.round + 1);
        let beyond = rounds.checked_sub(self.stop.least);
        let Some(narrow) = self.stop.narrow.filter(|_| self.arms.len() > 1) else { return false };
        let known = |measure| {
            self.compare(samples, measure).is_some_and(|found| found.interval.width() < narrow)
        };
        beyond.is_some_and(|rounds| rounds.is_multiple_of(ASK_EVERY))
            && self.measures.iter().all(known)
    }

    /// Compares the arm that should be better with the baseline; of steps, the last with the
    /// first. Returns `None` if there are too few arms or samples.
    pub fn compare(&self, samples: &[Sample], measure: &Measure) -> Option<Comparison> {
        let names: Vec<String> = self.arms.iter().map(|arm| arm.name.clone()).collect();
        let question = questions(&names, self.steps).into_iter().next()?;
        compare_arms(samples, measure, question, CONFIDENCE)
    }
}

/// Returns the pairs of arms that are compared, the baseline second: the last step with the first,
/// each step with the one before it, and of the other arms the first with each further one.
pub(crate) fn questions(arms: &[String], steps: usize) -> Vec<[&str; 2]> {
    let (own, others) = arms.split_at(steps.min(arms.len()));
    let whole = match own {
        [first, .., last] => Some([last, first]),
        _ => None,
    };
    let pairs = own.windows(2).filter_map(|pair| Some([pair.last()?, pair.first()?]));
    let others = others.iter().skip(1).filter_map(|other| Some([others.first()?, other]));
    let all = whole.into_iter().chain(pairs).chain(others);
    all.map(|pair| pair.map(String::as_str)).collect()
}

/// Compares one arm with another in one measure, over whole rounds only.
pub(crate) fn compare_arms(
    samples: &[Sample],
    measure: &Measure,
    arms: [&str; 2],
    confidence: f64,
) -> Option<Comparison> {
    let [on, off] = arms.map(|arm| -> BTreeMap<usize, f64> {
        let own = samples.iter().filter(|sample| sample.arm == arm);
        own.filter_map(|sample| Some((sample.round, *sample.values.get(measure.key)?))).collect()
    });
    let (on, off): (Vec<f64>, Vec<f64>) =
        on.iter().filter_map(|(round, value)| Some((*value, *off.get(round)?))).unzip();
    compare(&on, &off, measure.rule(confidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::{Better, Verdict};

    const MEASURES: &[Measure] = &[Measure {
        key: "speed",
        improvement: "speed",
        label: "Speed",
        scale: 1.0,
        decimals: 1,
        better: Better::Higher,
        equal_within: None,
    }];

    /// A bench on virtual time with speed 2 in arm `on` and 1 in arm `off`, which logs what is done
    /// to it.
    #[derive(Default)]
    struct FakeBench {
        clock: Duration,
        in_force: String,
        log: Vec<String>,
        interrupt_at: Option<Duration>,
        die_at: Option<Duration>,
        /// An arm that cannot be brought into force from this time on.
        breaks: Option<(&'static str, u64)>,
        given_up: Vec<String>,
        noise: f64,
    }

    impl FakeBench {
        fn advance(&mut self, time: Duration) -> Result<(), LabError> {
            self.clock += time;
            if self.die_at.is_some_and(|at| self.clock >= at) {
                return Err(LabError::Switch("gone".into()));
            }
            match self.interrupt_at.is_some_and(|at| self.clock >= at) {
                true => Err(LabError::Interrupted),
                false => Ok(()),
            }
        }
    }

    impl Bench for FakeBench {
        fn give_up(&mut self, arm: &Arm, error: LabError) -> Result<(), LabError> {
            if arm.name != "peer" {
                return Err(error);
            }
            self.given_up.push(format!("{}: {error}", arm.name));
            Ok(())
        }

        fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
            if self.breaks.is_some_and(|(name, at)| name == arm.name && self.clock.as_secs() >= at)
            {
                return Err(LabError::Switch("broken".into()));
            }
            self.in_force = arm.name.clone();
            self.log.push(format!("{}s {}", self.clock.as_secs(), arm.name));
            Ok(())
        }

        fn pass(&mut self, time: Duration) -> Result<(), LabError> {
            self.advance(time)
        }

        fn measure(&mut self, arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
            assert_eq!(self.in_force, arm.name);
            self.advance(interval)?;
            self.noise = -self.noise;
            let speed = if arm.name == "on" { 2.0 } else { 1.0 + self.noise };
            let values = Values::from([("speed".to_owned(), speed)]);
            Ok(Measured { values, usage: Vec::new() })
        }

        fn now(&self) -> Duration {
            self.clock
        }
    }

    fn experiment(repetitions: usize) -> Plan {
        let arm = |name: &str| Arm { name: name.into(), label: name.to_uppercase() };
        Plan {
            name: "fake",
            arms: vec![arm("on"), arm("off")],
            steps: 0,
            measures: MEASURES,
            warm_up: Duration::from_secs(5),
            settle: Duration::from_secs(1),
            interval: Duration::from_secs(2),
            phases: Vec::new(),
            stop: StopRule { repetitions, narrow: None, least: repetitions / 2 },
            truth: None,
        }
    }

    #[test]
    fn a_phase_has_counts_of_all_of_it_and_figures_of_its_settled_part() {
        const KEYS: [&str; 4] = ["lost_frames", MOVES, "throughput_bps", "cpu_percent"];
        let phase = |keys: &str, bits_per_s| Phase {
            keys: keys.into(),
            label: String::new(),
            bits_per_s,
            seconds: 1.0,
        };
        let values = |of: f64| Values::from(KEYS.map(|key| (key.to_owned(), of)));
        let (low, full) = (phase("low_", Some(1)), phase("full_", None));
        let mut all = low.part(values(1.0), values(2.0));
        all.extend(full.part(values(3.0), values(4.0)));
        let own = |phase: &Phase| KEYS.map(|key| phase.own(&all).get(key).copied());
        assert_eq!(own(&low), [Some(2.0), Some(2.0), Some(1.0), None]);
        assert_eq!(own(&full), [Some(4.0), Some(4.0), Some(3.0), None]);
        // What stands without a phase is of one time.
        assert_eq!(KEYS.map(|key| all[key]), [3.0; 4]);
    }

    fn run(experiment: &Plan, bench: &mut FakeBench) -> (Run, Vec<(Option<String>, u64)>) {
        let mut steps = Vec::new();
        let run = experiment.run(bench, &mut |step| {
            steps.push((step.arm.map(|arm| arm.name.clone()), step.left.as_secs()));
        });
        (run, steps)
    }

    #[test]
    fn a_peer_that_breaks_is_left_out_and_the_others_go_on() {
        let mut experiment = experiment(4);
        experiment.arms.push(Arm { name: "peer".into(), label: "Peer".into() });
        let mut bench = FakeBench { breaks: Some(("peer", 20)), ..FakeBench::default() };
        let (ended, _) = run(&experiment, &mut bench);
        assert_eq!(ended.ended, Ended::Complete);
        let of = |arm: &str| ended.samples.iter().filter(|sample| sample.arm == arm).count();
        assert_eq!([of("on"), of("off"), of("peer")], [4, 4, 2]);
        assert_eq!(bench.given_up.len(), 1, "asked once: {:?}", bench.given_up);
        let all = experiment.arms.iter().map(|arm| arm.name.clone()).collect::<Vec<_>>();
        let pairs = questions(&all, 0);
        assert_eq!(pairs, [["on", "off"], ["on", "peer"]]);
        assert_eq!(questions(&all, 2), [["off", "on"], ["off", "on"]]);
        assert_eq!(questions(&all, usize::MAX).len(), 3, "all are steps");
        assert!(questions(&all[..1], 0).is_empty() && questions(&[], 0).is_empty());
        let found = compare_arms(&ended.samples, &MEASURES[0], pairs[1], 0.99).unwrap();
        assert_eq!(found.pairs, 2, "its whole rounds are compared");
        let mut bench = FakeBench { breaks: Some(("off", 0)), ..FakeBench::default() };
        assert!(matches!(run(&experiment, &mut bench).0.ended, Ended::Failed(_)));
    }

    #[test]
    fn arms_alternate_abba_and_switch_only_where_they_change() {
        let mut bench = FakeBench::default();
        let (run, steps) = run(&experiment(4), &mut bench);
        let order: Vec<&str> = run.samples.iter().map(|sample| sample.arm.as_str()).collect();
        assert_eq!(order, ["on", "off", "off", "on", "on", "off", "off", "on"]);
        assert_eq!(bench.log, ["5s on", "8s off", "14s on", "20s off", "26s on"]);
        assert_eq!(run.ended, Ended::Complete);
        assert_eq!(steps.first(), Some(&(None, 29)));
        assert_eq!(steps.last(), Some(&(Some("on".into()), 3)));
    }

    #[test]
    fn warm_up_and_settling_are_not_measured() {
        let (run, _) = run(&experiment(2), &mut FakeBench::default());
        let started: Vec<f64> = run.samples.iter().map(|sample| sample.started_s).collect();
        assert_eq!(started, [6.0, 9.0, 12.0, 15.0]);
    }

    #[test]
    fn stops_when_the_interval_is_narrow_but_not_before_the_least() {
        let mut plan = experiment(20);
        plan.stop.narrow = Some(0.02);
        let (quiet, _) = run(&plan, &mut FakeBench::default());
        assert_eq!((quiet.ended, quiet.samples.len()), (Ended::NarrowEnough, 20));
        let (noisy, _) = run(&plan, &mut FakeBench { noise: 0.2, ..FakeBench::default() });
        assert_eq!((noisy.ended, noisy.samples.len()), (Ended::Complete, 40));
    }

    #[test]
    fn interruption_keeps_whole_rounds_comparable() {
        let mut bench =
            FakeBench { interrupt_at: Some(Duration::from_secs(19)), ..FakeBench::default() };
        let plan = experiment(20);
        let (run, _) = run(&plan, &mut bench);
        assert_eq!((run.ended, run.samples.len()), (Ended::Interrupted, 4));
        bench.interrupt_at = Some(bench.clock + Duration::from_secs(18));
        let mut samples = run.samples;
        samples.push(Sample {
            round: 2,
            arm: "on".into(),
            started_s: 0.0,
            values: Values::new(),
            usage: Vec::new(),
        });
        let found = plan.compare(&samples, &MEASURES[0]).unwrap();
        assert_eq!((found.pairs, found.ratio), (2, 2.0));
        assert_eq!(found.verdict, Verdict::TooFewSamples);
    }

    #[test]
    fn a_bench_that_dies_ends_the_run_with_its_words_and_the_samples_so_far() {
        let mut bench = FakeBench { die_at: Some(Duration::from_secs(12)), ..FakeBench::default() };
        let (run, _) = run(&experiment(20), &mut bench);
        assert_eq!((run.ended, run.samples.len()), (Ended::Failed("the switch: gone".into()), 2));
    }
}
