//! `millrace validate self`: whether this lab's own verdicts can be believed, by real runs on the user's own host.
//!
//! Many whole experiments, with the engine, the order, the stop rule, the interval and the verdict of all others. In half of
//! them both arms are the same, and a difference that is found is wrong; in the others one arm is slowed, and not to find
//! that is wrong. An interval at 99 % misses by chance now and then, so 19 of 20 must be right and not all. A try that is at
//! its cap before its interval is narrow has no answer, which counts as a wrong one.
//!
//! The load is requests of 64 KiB, one at a time, from a TCP stack through the real switch to another one. A sender that
//! is slowed wastes 1/19 of the time a request took, in a loop, before the request counts as done. On a machine left alone
//! that leaves 95 % of the throughput, whoever is the slowest on the request's way. Where others want the processor it leaves
//! less: the scheduler takes it sooner from who uses more of it. No other experiment has such an arm.

use super::{Feature, Load, no_checks, rsc};
use crate::campaign::{Campaign, Part, Point};
use crate::experiment::{Arm, Ended, Experiment, Measure};
use crate::options::Options;
use crate::report::{Case, Check};
use crate::statistics::{Comparison, Verdict, median};
use crate::topology::Way;
use serde::Serialize;
use std::time::Duration;

/// Tries of each kind.
pub const TRIES: usize = 20;
/// The same for a first look.
pub const QUICK_TRIES: usize = 5;
/// Most intervals per arm and try, 44 s: a try that is not decided by then is a wrong one.
pub const MAX_REPETITIONS: usize = 400;
/// Least intervals per arm and try: with fewer, the ends of an interval of medians are rough.
pub const LEAST: usize = 40;
/// Length of an interval. Those of a pair are close in time, so most of what else the machine does is in both.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// A try is decided once its interval is narrower than this: 5 % lie outside of it then.
pub const NARROW: f64 = 0.04;
/// Runs after each switch of arms and is thrown away: some requests.
const SETTLE: Duration = Duration::from_millis(5);
/// Bytes of a request.
const REQUEST: u32 = 64 * 1024;

/// Name of the arm whose sender wastes time.
pub(crate) const SLOWED: &str = "slowed";
/// What it wastes after each request, in millionths of the time that took: 1/19, so that 95 % are left, or fewer where others
/// want the processor.
pub(crate) const WASTED_MILLIONTHS: u32 = 52_632;

/// Key of [`SPEED`].
pub(crate) const KEY: &str = "request_throughput_bps";

/// The one figure that is compared: a request's bytes by the time it took on the wall clock, of the median request of an
/// interval. Bytes by seconds of the whole interval would be the same on a quiet machine; on one where others take the
/// processor for milliseconds at a time it needs ten times as many intervals for the same answer.
const SPEED: Measure = Measure {
    key: KEY,
    improvement: "request_throughput",
    label: "Throughput of the median request (MB/s)",
    ..rsc::THROUGHPUT
};
const MEASURES: &[Measure] = &[SPEED];

const FEATURE: &Feature = &Feature {
    name: "self",
    title: "The lab itself: the same twice, and a small slow-down",
    arms: |_| Kind::Same.arms(),
    steps: false,
    measures: MEASURES,
    way: Way::ToVnic,
    whole_guide: false,
    switch: |_, _, _| Ok(()),
    checks: no_checks,
    proof: None,
    note: Some(
        "Each try is an experiment of its own: requests of 64 KiB, one at a time, measured by the clock on the wall. The \
         slowed sender wastes 1/19 of the time of each request after it. On a machine left alone that leaves 95 % of the \
         throughput; where others want the processor, less. A try goes on until its 99 % interval is narrower than 4 %; such \
         an interval misses about once in a hundred tries, which is why one try in twenty may be wrong. A try that has all \
         its intervals before that is undecided, which counts as wrong.",
    ),
};

/// What is tried, and so what is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Both arms are the same: no difference must be seen.
    Same,
    /// One arm is slowed: that must be seen.
    Slowed,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Same, Kind::Slowed];

    fn arms(self) -> Vec<Arm> {
        let (name, label) = match self {
            Kind::Same => ("same", "The same again"),
            Kind::Slowed => (SLOWED, "Slowed"),
        };
        let arm = |name: &str, label: &str| Arm { name: name.into(), label: label.into() };
        vec![arm(name, label), arm("as_it_is", "As it is")]
    }

    fn of(case: &Case) -> Option<Kind> {
        let treatment = case.order.first()?;
        Kind::ALL.into_iter().find(|kind| kind.arms().first().is_some_and(|a| a.name == *treatment))
    }

    fn right(self) -> Verdict {
        match self {
            Kind::Same => Verdict::NoDifferenceSeen,
            Kind::Slowed => Verdict::Worse,
        }
    }

    /// What people read.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Kind::Same => "The same arm twice",
            Kind::Slowed => "An arm that is slowed",
        }
    }
}

/// How often the answer was right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    /// What was tried.
    pub kind: Kind,
    /// Tries that ran to their end.
    pub tries: usize,
    /// Of these, with the right verdict.
    pub right: usize,
    /// Of these, at their cap before the interval was narrow. None of them is right.
    pub undecided: usize,
    /// Right ones that are wanted.
    pub wanted: usize,
    /// Median of the tries' ratios.
    pub ratio: f64,
}

/// `millrace validate self`.
pub fn campaign(options: &Options) -> Campaign {
    let plan = FEATURE.experiment(options.mtu, options.interval, options.stop());
    let plan = Experiment { settle: SETTLE, ..plan };
    let point = |kind: Kind| Point {
        feature: FEATURE,
        part: Part::Bulk,
        load: Load::RoundTrips(REQUEST),
        experiment: Experiment { arms: kind.arms(), ..plan.clone() },
    };
    // In turn, so that both kinds meet the same machine.
    let points = (0..options.tries).flat_map(|_| Kind::ALL).map(point).collect();
    Campaign { name: FEATURE.name, title: FEATURE.title, points }
}

/// What a try found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    kind: Kind,
    pub(crate) found: Comparison,
    /// The interval was narrow before the cap was reached.
    decided: bool,
}

impl Try {
    /// `None` where it did not run to its end, or where this is no try.
    pub(crate) fn of(case: &Case) -> Option<Try> {
        let decided = match case.ended {
            Ended::NarrowEnough => true,
            Ended::Complete | Ended::TimeUp => false,
            Ended::Interrupted | Ended::Failed(_) => return None,
        };
        let found = *case.comparisons.get(SPEED.improvement)?;
        Some(Try { kind: Kind::of(case)?, found, decided })
    }

    /// Whether it found what there was.
    pub(crate) fn is_right(&self) -> bool {
        self.decided && self.found.verdict == self.kind.right()
    }
}

/// The tries of a kind, in the order of time.
pub(crate) fn of_kind(cases: &[Case], kind: Kind) -> Vec<Try> {
    cases.iter().filter_map(Try::of).filter(|one| one.kind == kind).collect()
}

/// Counts the tries of each kind; nothing where these are no tries.
pub(crate) fn tally(cases: &[Case]) -> Vec<Tally> {
    let count = |kind: Kind| {
        let tries = of_kind(cases, kind);
        let ratios: Vec<f64> = tries.iter().map(|one| one.found.ratio).collect();
        Some(Tally {
            kind,
            tries: tries.len(),
            right: tries.iter().filter(|one| one.is_right()).count(),
            undecided: tries.iter().filter(|one| !one.decided).count(),
            wanted: tries.len() - tries.len() / TRIES,
            ratio: median(&ratios)?,
        })
    };
    Kind::ALL.into_iter().filter_map(count).collect()
}

impl Tally {
    /// For people.
    pub(crate) fn sentence(&self) -> String {
        let Tally { tries, right, wanted, undecided, .. } = self;
        let found = match self.kind {
            Kind::Same => "no difference seen",
            Kind::Slowed => "found to be slower",
        };
        let percent = (self.ratio - 1.0) * 100.0;
        let undecided = match undecided {
            0 => String::new(),
            count => format!("{count} undecided after the last interval, "),
        };
        format!(
            "{found} in {right} of {tries} tries, {undecided}{wanted} required; the median try found {percent:+.1} %"
        )
    }
}

/// That enough of each kind were right.
pub(crate) fn checks(tallies: &[Tally]) -> Vec<Check> {
    let check = |tally: &Tally| Check {
        name: tally.kind.words().into(),
        passed: tally.right >= tally.wanted,
        seen: tally.sentence(),
    };
    tallies.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Run, Sample, Values};
    use crate::report::Setting;

    /// A try whose treatment had so much of the baseline's throughput in every pair.
    fn tried(kind: Kind, factor: f64, ended: Ended) -> Case {
        let plan = Experiment {
            arms: kind.arms(),
            ..FEATURE.experiment(1500, INTERVAL, Options::itself("unused".into()).stop())
        };
        let sample = |round: usize, place: usize| Sample {
            round,
            arm: plan.arms[place].name.clone(),
            started_s: 0.0,
            values: Values::from([(KEY.into(), if place == 0 { factor } else { 1.0 })]),
            usage: Vec::new(),
        };
        let samples = crate::statistics::sequence(2, 8).map(|(round, arm)| sample(round, arm));
        Case::new(&plan, Setting::default(), Run { samples: samples.collect(), ended }, None)
    }

    #[test]
    fn one_wrong_answer_in_twenty_is_borne_and_two_are_not() {
        let tries = |wrong: usize| -> Vec<Case> {
            let factor = |place| if place < wrong { 1.0 } else { 0.95 };
            let slowed =
                (0..20).map(|place| tried(Kind::Slowed, factor(place), Ended::NarrowEnough));
            let same = (0..20).map(|_| tried(Kind::Same, 1.0, Ended::NarrowEnough));
            slowed.chain(same).collect()
        };
        for (wrong, passed) in [(0, true), (1, true), (2, false)] {
            let tallies = tally(&tries(wrong));
            assert_eq!(tallies.iter().map(|t| t.tries).collect::<Vec<_>>(), [20, 20]);
            let checks: Vec<bool> = checks(&tallies).iter().map(|check| check.passed).collect();
            assert_eq!(checks, [true, passed], "{wrong} wrong");
        }
    }

    #[test]
    fn a_difference_in_the_wrong_direction_and_a_try_cut_short_do_not_count() {
        let faster = tried(Kind::Slowed, 1.05, Ended::NarrowEnough);
        let cut = tried(Kind::Slowed, 0.95, Ended::Interrupted);
        let tallies = tally(&[faster, cut]);
        assert_eq!(tallies.len(), 1);
        assert_eq!((tallies[0].tries, tallies[0].right, tallies[0].wanted), (1, 0, 1));
    }

    #[test]
    fn a_try_at_its_cap_is_wrong_whatever_it_found_and_that_is_said() {
        let tries = [Ended::Complete, Ended::NarrowEnough].map(|end| tried(Kind::Same, 1.0, end));
        let tallies = tally(&tries);
        assert_eq!((tallies[0].tries, tallies[0].right, tallies[0].undecided), (2, 1, 1));
        assert!(!checks(&tallies)[0].passed);
        assert!(tallies[0].sentence().contains("1 undecided"));
    }

    #[test]
    fn what_is_wasted_leaves_95_percent_of_a_machine_left_alone() {
        let left = 1.0 / (1.0 + f64::from(WASTED_MILLIONTHS) / 1e6);
        assert!((left - 0.95).abs() < 1e-6);
    }
}
