//! `millrace validate self`: checks the lab's own verdicts by experiments with a known answer.
//!
//! Every other try has the same arm twice, and must find no difference. In the others the sender of
//! one arm sends 5 % less, which must be found. Only the traffic is slowed; hosts, bench, order,
//! intervals and verdict are those of all experiments.
//!
//! A sender with a fixed rate makes the difference exactly 5 %, whatever the host could carry. It
//! catches up when it is late: a process that takes the processor for milliseconds moves bytes from
//! one interval to the next, and none are lost.

use crate::LabError;
use crate::campaign::{Campaign, Point};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment};
use crate::load::{Bulk, Load};
use crate::measure::{Measure, THROUGHPUT};
use crate::options::{Options, Quick, SelfTestOptions};
use crate::plan::{Arm, Plan};
use crate::report::{Case, Check};
use crate::topology::Topology;
use statistics::Verdict;
use std::path::PathBuf;
use std::time::Duration;

/// Tries of each kind.
pub const TRIES: usize = 20;
/// Tries of each kind with `--quick`.
pub const QUICK_TRIES: usize = 5;
/// Most intervals per arm; the fewest are half as many. Verdicts on forty tries that hold together
/// need more than the usual number.
pub const REPETITIONS: usize = 64;
/// Width of the interval at which a try ends: then the interval cannot hold both answers, even at
/// the level at which all tries hold together.
pub const NARROW: f64 = 0.025;
/// Length of an interval.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Bits per second of a sender that is not slowed: less than a busy host of two processors carries.
const RATE: u64 = 400_000_000;
/// Fraction of [`RATE`] at which a slowed sender sends.
const SLOWED: f64 = 0.95;
/// Bytes of one call: few, because the rate is kept to within one call.
const CALL_BYTES: u32 = 16 * 1024;
const MEASURES: &[Measure] = &[THROUGHPUT];
const BASELINE: &str = "as_it_is";

/// `millrace validate self`.
#[derive(Debug)]
pub(crate) struct SelfTest;

impl Experiment for SelfTest {
    fn description(&self) -> Description {
        Description {
            name: "self",
            title: "The lab itself: equal arms, and an arm slowed by 5 %",
            measures: MEASURES,
            note: Some(
                "Each try is a separate experiment: TCP from the sender to the guest at 400 Mb/s, through the switch. The slowed \
                 sender sends at 380 Mb/s. A try is right if its interval holds the true change and not the other, undecided if it \
                 holds both 0 % and -5 %, and wrong otherwise.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        arms(1.0)
    }

    fn switch(&self, topology: &mut Topology, _: &mut Daemon, arm: &str) -> Result<(), LabError> {
        let rate = if arm == "slowed" { RATE as f64 * SLOWED } else { RATE as f64 };
        #[allow(clippy::cast_possible_truncation, reason = "below the rate")]
        topology.sender.limit(Some(rate as u64))
    }
}

/// Returns the arms of a try. `truth` is the first arm's throughput as a fraction of the second's.
fn arms(truth: f64) -> Vec<Arm> {
    let (name, label) = match truth < 1.0 {
        true => ("slowed", "Slowed by 5 %"),
        false => ("same", "The same again"),
    };
    let arm = |name: &str, label: &str| Arm { name: name.into(), label: label.into() };
    vec![arm(name, label), arm(BASELINE, "As it is")]
}

impl Options {
    /// Returns the defaults of `validate self`: 20 tries of each kind.
    pub fn self_test(program: PathBuf) -> Options {
        let plain = Options::new(program);
        Options {
            repetitions: REPETITIONS,
            interval: INTERVAL,
            narrow: Some(NARROW),
            self_test: SelfTestOptions { tries: TRIES },
            quick: Quick { tries: QUICK_TRIES, ..plain.quick.clone() },
            ..plain
        }
    }
}

/// Returns the campaign of `millrace validate self`.
pub fn campaign(options: &Options) -> Campaign {
    let plan = SelfTest.plan(options.mtu, options.interval, options.stop());
    let load = Load::Bulk(Bulk::new(1, CALL_BYTES));
    let point = |truth: f64| {
        let experiment = Plan { arms: arms(truth), truth: Some(truth), ..plan.clone() };
        Point { experiment: &SelfTest, load, plan: experiment }
    };
    // In turn, so that both kinds run under the same conditions.
    let points = (0..options.self_test.tries).flat_map(|_| [1.0, SLOWED]).map(point).collect();
    Campaign::new(&SelfTest, points)
}

/// Result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Right,
    Wrong,
    /// The interval holds both answers, or there is none.
    Undecided,
}

impl Answer {
    fn of(case: &Case, truth: f64) -> Answer {
        let Some(found) = case.comparisons.get(THROUGHPUT.improvement) else {
            return Answer::Undecided;
        };
        let holds = |ratio: f64| (found.interval.low..=found.interval.high).contains(&ratio);
        let right = if truth < 1.0 { found.interval.high < 1.0 } else { holds(1.0) };
        match right {
            _ if found.verdict == Verdict::TooFewSamples => Answer::Undecided,
            _ if holds(1.0) && holds(SLOWED) => Answer::Undecided,
            true => Answer::Right,
            false => Answer::Wrong,
        }
    }
}

/// Checks that the known answers were found: none wrong, because all verdicts hold together, and no
/// more than one in twenty undecided. Returns nothing for cases without a known answer.
pub(crate) fn checks(cases: &[Case]) -> Vec<Check> {
    let kind = |truth: f64, name: &str, told: &str| {
        let tries = cases.iter().filter(|case| case.truth == Some(truth) && case.rounds() > 0);
        let answers: Vec<Answer> = tries.map(|case| Answer::of(case, truth)).collect();
        let count = |answer| answers.iter().filter(|one| **one == answer).count();
        let (right, wrong) = (count(Answer::Right), count(Answer::Wrong));
        let undecided = count(Answer::Undecided);
        let all = answers.len();
        let passed = wrong == 0 && undecided <= all / TRIES;
        let seen =
            format!("{told} in {right} of {all} tries, {wrong} wrong, {undecided} undecided");
        (all > 0).then(|| Check { name: name.into(), passed, seen })
    };
    let same = kind(1.0, "The same arm twice", "no difference seen");
    let slowed = kind(SLOWED, "An arm that is slowed by 5 %", "found to be slower");
    same.into_iter().chain(slowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Values;
    use crate::report::case_of;

    /// Returns a try with a first arm that had between `low` and `high` of the other's throughput.
    fn tried(truth: f64, low: f64, high: f64) -> Case {
        let options = Options::self_test("unused".into());
        let plan = campaign(&options).points.remove(usize::from(truth < 1.0)).plan;
        case_of(&plan, REPETITIONS, |round, place| {
            let factor = if round % 2 == 0 { low } else { high };
            let rate = if place == 0 { factor } else { 1.0 };
            Values::from([("throughput_bps".into(), rate)])
        })
    }

    #[test]
    fn an_interval_that_holds_both_is_undecided_and_one_that_holds_the_other_is_wrong() {
        for (truth, low, high, answer) in [
            (1.0, 0.99, 1.01, Answer::Right),
            (1.0, 0.94, 1.01, Answer::Undecided),
            (1.0, 0.94, 0.96, Answer::Wrong),
            (1.0, 1.01, 1.02, Answer::Wrong),
            (SLOWED, 0.94, 0.96, Answer::Right),
            (SLOWED, 0.90, 0.92, Answer::Right),
            (SLOWED, 0.96, 0.99, Answer::Right),
            (SLOWED, 0.94, 1.01, Answer::Undecided),
            (SLOWED, 0.96, 1.01, Answer::Wrong),
            (SLOWED, 1.01, 1.02, Answer::Wrong),
        ] {
            assert_eq!(Answer::of(&tried(truth, low, high), truth), answer, "{truth} {low} {high}");
        }
    }

    #[test]
    fn one_undecided_of_twenty_is_borne_and_one_wrong_is_not() {
        let passed = |others: &[(f64, f64)]| {
            let rest = others.len()..20;
            let slowed = others.iter().map(|(low, high)| tried(SLOWED, *low, *high));
            let slowed = slowed.chain(rest.map(|_| tried(SLOWED, 0.95, 0.95)));
            let same = (0..20).map(|_| tried(1.0, 1.0, 1.0));
            let checks = checks(&slowed.chain(same).collect::<Vec<_>>());
            checks.iter().map(|check| check.passed).collect::<Vec<_>>()
        };
        let (undecided, wrong) = ((0.94, 1.01), (0.99, 1.01));
        assert_eq!(passed(&[]), [true, true]);
        assert_eq!(passed(&[undecided]), [true, true]);
        assert_eq!(passed(&[undecided, undecided]), [true, false]);
        assert_eq!(passed(&[wrong]), [true, false]);
        assert_eq!(checks(&[]), []);
    }
}
