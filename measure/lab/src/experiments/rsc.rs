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

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off) = (depth(ON)?, depth(OFF)?);
    let seen =
        format!("{on:.2} segments per frame to the receiver with RSC on, {off:.2} with RSC off");
    proven(on > 1.0 && off <= 1.0, seen)
}
