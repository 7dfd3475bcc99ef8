//! The report of a campaign: its figures, the checks behind them, and notes for the reader.

use crate::campaign::Campaign;
use crate::experiment::{PROOF, Proof};
use crate::experiments::self_test;
use crate::host::Command;
use crate::options::{Options, RscOptions};
use crate::plan::Ended;
use crate::report::{self, Account, ArmFigures, BenchFacts, Case, Check, Machine, Report, SCHEMA};
use crate::state::State;
use crate::{LabError, round_trips};

/// Ethernet header of a frame, in bytes.
const ETHERNET: f64 = 14.0;

/// Description of a bench whose hosts are network namespaces.
const HOSTS: &str = "Sender, switch and receiver are processes on this machine, each in its own network namespace. ";

/// Note for a bench between existing hosts.
const BETWEEN: &str = "Avg. CPU % and Cycles/Byte cover the switch's whole machine, including its guests. Sender and \
Receiver cover a whole machine each if they run on separate machines, and otherwise a process.";

/// Most cases for which the report shows passed checks one by one.
const MANY: usize = 12;

/// Returns the report of a campaign so far.
///
/// # Errors
/// Nothing was measured.
pub(crate) fn report(
    campaign: &Campaign,
    options: &Options,
    state: &State,
) -> Result<Report, LabError> {
    let all = state.cases().into_iter();
    let (mut latency, mut cases): (Vec<_>, Vec<_>) =
        all.partition(|case| case.setting.is_round_trips());
    if let Some(point) = campaign.points.first() {
        let bulk = cases.iter_mut().map(|case| (case, point.experiment.description().measures));
        let trips = latency.iter_mut().map(|case| (case, round_trips::MEASURES));
        report::adjust_confidence(&mut bulk.chain(trips).collect::<Vec<_>>());
    }
    let (Some(first), Some(point)) = (cases.first(), campaign.points.first()) else {
        return Err(LabError::Interrupted);
    };
    let mut bench = state.bench.clone().unwrap_or_default();
    let one_machine = bench.hosts.is_empty();
    if !bench.in_process && one_machine && point.experiment.site().is_none() {
        bench.description.insert_str(0, HOSTS);
    }
    let mut checks = state.checks.clone();
    checks.extend(proofs(campaign, options, &cases));
    let all = cases.iter().chain(&latency);
    let accounts: Vec<Account> = all.filter_map(|case| case.account).collect();
    checks.extend(report::account_checks(&accounts));
    checks.extend(self_test::checks(&cases));
    let mut notes = state.notes.clone();
    notes.extend(explanations(&cases, &bench));
    let hz = first.arms_in_order().next().and_then(|arm| arm.median("time_stamp_hz"));
    // A run that fell back to one process prints `--in-process`, whatever was requested.
    let rsc = RscOptions { in_process: bench.in_process, ..options.rsc.clone() };
    let run = Options { rsc, ..options.clone() };
    let run = Command { host: "here".into(), command: run.command(campaign.name) };
    let mut report = Report {
        schema: SCHEMA,
        experiment: campaign.name.into(),
        title: campaign.title.into(),
        millrace: env!("CARGO_PKG_VERSION").into(),
        date: state.date.clone(),
        bench,
        machine: Machine::read(hz),
        cases,
        latency,
        checks,
        commands: std::iter::once(run).chain(state.commands.iter().cloned()).collect(),
        notes,
        measures: point.experiment.description().measures,
        latency_measures: round_trips::MEASURES,
        thresholds: Vec::new(),
    };
    report.thresholds = report::evaluate_thresholds(&options.fail_if, &report);
    Ok(report)
}

/// Returns the checks of each case, named by the case if there are several.
fn proofs(campaign: &Campaign, options: &Options, cases: &[Case]) -> Vec<Check> {
    let experiment_of = |case: &Case| {
        let mut points = campaign.points.iter().map(|point| point.experiment);
        points.find(|experiment| {
            let own = experiment.description().wiring.way;
            case.setting.way.is_none_or(|way| way == own)
        })
    };
    let mut checks = Vec::new();
    for case in cases.iter().filter(|case| case.rounds() > 0) {
        let proof = experiment_of(case)
            .and_then(|experiment| experiment.proof())
            .map(|proof| proven(case, proof));
        for mut check in proof.into_iter().chain(wire_check(case, options.mtu)) {
            if cases.len() > 1 {
                check.name = format!("{} ({})", check.name, case.setting.words());
            }
            // With many cases, and for the self test's similar ones, only failed checks are shown.
            let is_told = case.order.len() > 1 && cases.len() <= MANY && case.truth.is_none();
            if is_told || !check.passed {
                checks.push(check);
            }
        }
    }
    checks
}

/// Returns a feature's proof; it fails if an arm received nothing.
fn proven(case: &Case, proof: Proof) -> Check {
    let dead = case.own_arms().map(|(_, arm)| arm).find(|arm| arm.stalled == arm.intervals);
    let seen = match dead {
        Some(arm) => format!("no byte arrived in any interval of {}", arm.label),
        None => "the switch counted no frames in one of the arms".to_owned(),
    };
    let found = if dead.is_none() { proof(case) } else { None };
    found.unwrap_or(Check { name: PROOF.into(), passed: false, seen })
}

/// Checks that frames on the wire were no longer than the MTU permits: that none were coalesced.
fn wire_check(case: &Case, mtu: u16) -> Option<Check> {
    let largest = f64::from(mtu) + ETHERNET;
    let sizes = case.arms_in_order().filter_map(|arm| arm.median("frame_bytes_on_the_wire"));
    let seen = sizes.reduce(f64::max)?;
    let passed = seen <= largest;
    let seen = format!("{seen:.0} bytes on average; the maximum at this MTU is {largest:.0}");
    Some(Check { name: "Frames on the wire".into(), passed, seen })
}

/// Returns the notes that a reader needs before trusting the numbers.
fn explanations(cases: &[Case], bench: &BenchFacts) -> Vec<String> {
    let known = |arm: &ArmFigures| arm.median("cpu_percent").is_some();
    let of_machine = cases.iter().flat_map(Case::arms_in_order).any(known);
    let mut notes = vec![definitions(cases, of_machine)];
    if !of_machine {
        // A migration has columns of its own, which need no note.
    } else if !bench.hosts.is_empty() {
        notes.push(BETWEEN.to_owned());
    } else if !bench.in_process {
        notes.push(
            "Avg. CPU % covers the whole machine, on which sender, switch and receiver all run; the guide measures \
             only the receiver's machine."
                .to_owned(),
        );
    }
    notes.extend(cases.iter().filter_map(|case| ending(&case.ended)));
    notes
}

fn definitions(cases: &[Case], of_machine: bool) -> String {
    let compared = if cases.iter().any(|case| case.order.len() > 1) {
        "A change is the median of the paired ratios of A B B A rounds, with the exact confidence interval of a median and \
         its level. All verdicts together hold with 99 % confidence by Holm's correction if there are enough pairs, 10 for 5 \
         verdicts and 13 for 30; with fewer pairs each verdict holds on its own, at its level. "
    } else {
        ""
    };
    let cycles = match of_machine {
        true => {
            "; bytes are those that the receiver's application read. Cycles/Byte is NTttcp's formula with the measured frequency of \
             the time stamp counter."
        }
        false => ".",
    };
    format!("{compared}MB are 2^20 bytes, as NTttcp counts, Gb are 10^9 bits{cycles}")
}

fn ending(ended: &Ended) -> Option<String> {
    match ended {
        Ended::Interrupted => {
            Some("Interrupted: the figures cover the intervals measured until then.".into())
        }
        Ended::Failed(why) => Some(format!(
            "Ended early: {why}. The figures cover the intervals measured until then."
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiments::rsc::Rsc;
    use crate::measure::GUIDE;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use crate::switch_counters::put_ratio;
    use crate::validate;
    use crate::vnic::Receivers;
    use statistics::Verdict;
    use std::time::Duration;

    /// Returns a run of RSC whose arm `off` received `frames` frames in each interval.
    fn off_got(frames: u64) -> Case {
        let stop = StopRule { repetitions: 4, narrow: None, least: 2 };
        let experiment = Rsc::Plain.plan(1500, Duration::from_secs(1), stop);
        case_of(&experiment, 4, |_, place| {
            let (frames, joined) = [(100, 900), (frames, 0)][place];
            let mut values = Values::from([("received_bytes".into(), frames as f64 * 1448.0)]);
            put_ratio(&mut values, "segments_per_train", frames + joined, frames);
            values
        })
    }

    #[test]
    fn a_dead_arm_fails_the_proof_that_it_passed_with_its_zero() {
        let check = |case: &Case| proven(case, Rsc::Plain.proof().unwrap());
        assert!(check(&off_got(1000)).passed);
        let dead = check(&off_got(0));
        assert!(!dead.passed && dead.seen.contains("Disabled"), "{dead:?}");
        let mut uncounted = off_got(1000);
        uncounted.arms.get_mut("off").unwrap().figures.remove("segments_per_train");
        assert!(!check(&uncounted).passed);
    }

    #[test]
    fn of_tries_which_are_alike_only_a_check_that_fails_is_told() {
        let options = Options::self_test("".into());
        let campaign = self_test::campaign(&options);
        let told = |frame: f64, truth: Option<f64>| {
            let plan = &campaign.points[0].plan;
            let of_frame = |_, _| Values::from([("frame_bytes_on_the_wire".into(), frame)]);
            let case = Case { truth, ..case_of(plan, 2, of_frame) };
            proofs(&campaign, &options, &[case]).len()
        };
        assert_eq!((told(1500.0, Some(1.0)), told(9000.0, Some(1.0))), (0, 1));
        assert_eq!(told(1500.0, None), 1);
    }

    /// Without namespaces the command was printed as requested, with a `--receiver` that
    /// `--in-process` refuses.
    #[test]
    fn the_command_of_a_run_that_fell_back_in_process_says_so() {
        let options = Options {
            rsc: RscOptions { receivers: Some(Receivers::Both), ..RscOptions::default() },
            ..Options::new("".into())
        };
        let campaign = validate::campaign(&options);
        let command = |bench: BenchFacts| {
            let mut state = State::new("rsc", &options, String::new());
            state.meet(bench, None);
            let mut case = off_got(1000);
            case.setting.buffer_bytes = Some(1024);
            state.keep(0, case);
            super::report(&campaign, &options, &state).unwrap().commands.remove(0).command
        };
        assert!(command(BenchFacts::default()).ends_with(" --mtu 1500 --receiver both"));
        let fallen_back = BenchFacts { in_process: true, ..BenchFacts::default() };
        assert!(command(fallen_back).ends_with(" --mtu 1500 --in-process"));
    }

    #[test]
    fn verdicts_of_a_report_are_held_together_and_each_says_its_level() {
        let level = |case: &Case| case.comparisons["throughput"].level;
        // Fourteen of sixteen pairs agree: enough for a single verdict, not for one of eleven.
        let stop = StopRule { repetitions: 16, narrow: None, least: 8 };
        let of = |rounds: usize, agree: usize| {
            let experiment = Rsc::Plain.plan(1500, Duration::from_secs(1), stop);
            case_of(&experiment, rounds, |round, place| {
                let speed = if place == 0 && round < agree { 2.0 } else { 1.0 };
                let speed = if place == 0 && round >= agree { 0.5 } else { speed };
                Values::from([("throughput_bps".into(), speed)])
            })
        };
        let case = |agree: usize| of(16, agree);
        let verdict = |case: &Case| case.comparisons["throughput"].verdict;
        // Cases of seven pairs can have no verdict at 99 %, and do not weaken the others'.
        let mut beside: Vec<Case> =
            std::iter::once(case(14)).chain((0..20).map(|_| of(7, 7))).collect();
        report::adjust_confidence(
            &mut beside.iter_mut().map(|case| (case, GUIDE)).collect::<Vec<_>>(),
        );
        assert_eq!(verdict(&beside[0]), Verdict::Improved, "among cases of few pairs");
        let mut cases = vec![case(14), case(16)];
        assert_eq!(verdict(&cases[0]), Verdict::Improved, "alone");
        cases.extend(std::iter::repeat_with(|| case(8)).take(9));
        let mut all: Vec<_> = cases.iter_mut().map(|case| (case, GUIDE)).collect();
        report::adjust_confidence(&mut all);
        assert_eq!(verdict(&cases[0]), Verdict::NoDifferenceSeen, "among eleven");
        assert_eq!(verdict(&cases[1]), Verdict::Improved);
        assert!(level(&cases[0]) > 0.999 && level(&cases[1]) > 1.0 - 0.01 / 11.0);
    }
}
