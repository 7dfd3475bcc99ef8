//! RSC in the vSwitch, on against off: activities 2 and 3 of Microsoft's validation guide. The
//! campaign is that of the whole guide, in [`validate`](crate::validate).

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::running::Toggle;
use crate::topology::{Topology, Wiring};

/// `millrace validate rsc`, by what receives. The arms are called as in the guide's table.
#[derive(Debug, PartialEq)]
pub(crate) enum Rsc {
    /// Toward a TAP without GRO of its own, or a veth.
    Plain,
    /// Toward a receiver that coalesces by itself (GRO), as most guests do.
    TowardGro,
    /// Toward a virtual machine, each instruction of which is emulated.
    TowardQemu,
}

/// The note on figures that QEMU's emulation distorts.
const EMULATED: &str = "QEMU emulates the receiver's virtual machine without hardware virtualisation (TCG): each instruction of its kernel \
                        takes many of this machine's. Its rates and costs say little about a guest in production; the meaningful figure is \
                        the ratio of RSC on to off, toward a kernel with its own GRO.";

impl Experiment for Rsc {
    fn description(&self) -> Description {
        let is_emulated = *self == Rsc::TowardQemu;
        Description {
            name: "rsc",
            title: "RSC in the vSwitch: on against off",
            note: is_emulated.then_some(EMULATED),
            wiring: Wiring {
                bridge: !is_emulated,
                receiver_gro: *self == Rsc::TowardGro,
                ..Wiring::PLAIN
            },
            whole_guide: !is_emulated,
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("RSC in the vSwitch Enabled", "RSC in the vSwitch Disabled")
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.vnic.set_rsc(arm == ON)
    }

    fn toggle(&self) -> Option<Toggle> {
        Some(|port, arm| port.set_rsc(arm == ON))
    }

    fn checks(&self, _: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        daemon.vnic.rsc_checks()
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Fewest segments per frame with RSC on that make a comparison: below, both arms do the same.
pub const FEWEST: f64 = 1.5;

/// Percentage of frames that arrive coalesced from which on this is named as the reason.
pub const MANY_ARRIVE: f64 = 10.0;

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off) = (depth(ON)?, depth(OFF)?);
    let arrived = 100.0 * case.median(OFF, "arrived_coalesced_of_frames").unwrap_or_default();
    let mut seen =
        format!("{on:.2} segments per frame to the receiver with RSC on, {off:.2} with RSC off");
    if on < FEWEST {
        seen.push_str(&format!("; at least {FEWEST} wanted: RSC has had nothing to coalesce"));
    }
    if arrived >= MANY_ARRIVE {
        seen.push_str(&format!(
            "; {arrived:.0} % of the frames with RSC off arrived already coalesced: `ethtool -K DEVICE gro off lro off` \
             at the uplink's device, and `ethtool -K DEVICE tso off gso off` at a sender on this host"
        ));
    }
    proven(on >= FEWEST && off <= 1.0 && arrived < MANY_ARRIVE, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    /// By hand, with the sender's TSO or the uplink's GRO on, both arms measured the same and the
    /// proof passed with 1.0006 segments per frame.
    #[test]
    fn a_comparison_of_nothing_fails_the_proof_and_names_the_remedy() {
        let check = |segments: f64, arrived: f64| {
            let stop = StopRule { repetitions: 4, narrow: None, least: 2 };
            let plan = Rsc::Plain.plan(1500, Duration::from_secs(1), stop);
            let case = case_of(&plan, 4, |_, place| {
                let segments = [segments, 1.0][place];
                Values::from([
                    ("received_bytes".into(), 1e6),
                    ("segments_per_train".into(), segments),
                    ("arrived_coalesced_of_frames".into(), arrived),
                ])
            });
            proof(&case).unwrap()
        };
        assert!(check(28.0, 0.01).passed);
        let nothing = check(1.0006, 0.0);
        assert!(!nothing.passed && nothing.seen.contains("nothing to coalesce"), "{nothing:?}");
        let before = check(1.2, 0.98);
        assert!(!before.passed && before.seen.contains("ethtool -K"), "{before:?}");
    }
}
