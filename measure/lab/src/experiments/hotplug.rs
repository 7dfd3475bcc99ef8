//! Hot add and remove: a port is added and removed continuously while two others carry a flow,
//! against no such port.
//!
//! The port is an unused TAP, so any cost to the others comes from the switch.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::measure::NO_WORSE;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::topology::Topology;
use statistics::{Better, FEWEST_PAIRS, Verdict, compare};

/// Key of the frames that the two other ports lost.
const LOST: &str = "lost_frames";

/// `millrace validate hotplug`. Here the arm that should not be worse is the one in which ports
/// come and go.
#[derive(Debug)]
pub(crate) struct Hotplug;

impl Experiment for Hotplug {
    fn description(&self) -> Description {
        Description {
            name: "hotplug",
            title: "Hot add and remove: a port every 100 ms, or none",
            measures: NO_WORSE,
            note: Some(
                "Measures the cost of hot add and remove for a flow between two other ports. The hoped-for result is no difference above 5 %.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("A port is added and removed every 100 ms", "No port is added")
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.churn_ports(arm == ON)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate hotplug`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Hotplug, options)
}

/// Proves that ports were added and removed, and that the two others lost no more frames by it.
fn proof(case: &Case) -> Option<Check> {
    let sum = |arm, key| case.total(arm, key);
    let (on, off) = (sum(ON, "ports_added")?, sum(OFF, "ports_added")?);
    let (lost, lost_off) = (sum(ON, LOST)?, sum(OFF, LOST)?);
    let seen = format!(
        "{on:.0} ports were added and removed in one arm, {off:.0} in the other; meanwhile the two other ports lost \
         {lost:.0} frames ({lost_off:.0} in the quiet arm)"
    );
    proven(on > 0.0 && off <= 1.0 && (lost <= lost_off || by_chance(case)?), seen)
}

/// Whether more loss may be chance: the quiet arm loses frames as well, and enough rounds show no
/// difference.
fn by_chance(case: &Case) -> Option<bool> {
    let [lost, quiet] = [ON, OFF].map(|arm| case.column(arm, LOST));
    let found = compare(&lost, &quiet, Better::Lower.into())?;
    let told = found.pairs >= FEWEST_PAIRS && found.verdict == Verdict::NoDifferenceSeen;
    Some(told && case.total(OFF, LOST)? > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Ended, Run, Sample, StopRule, Values};
    use crate::report::Setting;
    use statistics::sequence;
    use std::time::Duration;

    /// Eight rounds in which each arm lost so many frames, by turns.
    fn passes(on: [u32; 2], off: [u32; 2]) -> bool {
        let sample = |(round, place): (usize, usize)| {
            let (arm, added, lost) = [(ON, 10.0, on), (OFF, 0.0, off)][place];
            let lost = f64::from(lost[round % 2]);
            let values = Values::from([(LOST.into(), lost), ("ports_added".into(), added)]);
            Sample { round, arm: arm.into(), started_s: 0.0, values, usage: Vec::new() }
        };
        let stop = StopRule { repetitions: 8, narrow: None, least: 4 };
        let run = Run { samples: sequence(2, 8).map(sample).collect(), ended: Ended::Complete };
        let experiment = Hotplug.plan(1500, Duration::from_secs(1), stop);
        proof(&Case::new(&experiment, Setting::default(), run, None)).unwrap().passed
    }

    #[test]
    fn loss_is_held_against_the_quiet_arms_loss() {
        assert!(passes([0, 0], [0, 0]));
        assert!(passes([500, 400], [500, 400]), "a machine that loses frames anyway");
        assert!(passes([560, 380], [500, 400]), "more by chance");
        assert!(!passes([1, 0], [0, 0]), "nothing is lost without");
        assert!(!passes([1000, 900], [500, 400]), "twice as much in each round");
    }
}
