//! Checksum offload of a guest that sends: the guest leaves the transport checksum of each frame
//! partial, or computes it itself.
//!
//! LSO is off in both arms: it needs checksum offload, and would otherwise be the larger effect,
//! with one train in place of 45 frames.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::experiments::guest_offload::GuestOffload;
use crate::load::Way;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::topology::{Topology, VNIC, Wiring};
use ports::link::LinkOffload;

const CHECKSUM: GuestOffload =
    GuestOffload { which: LinkOffload::TxCsum, words: "Checksum offload" };

/// `millrace validate checksum`.
#[derive(Debug)]
pub(crate) struct Checksum;

impl Experiment for Checksum {
    fn description(&self) -> Description {
        Description {
            name: "checksum",
            title: "Checksum offload of the guest: on against off",
            note: Some(
                "LSO is off in both arms, because it needs checksum offload. The switch completes a checksum only for a port that \
                 cannot take a partial one. The uplink here can, so the checksum is never computed: between hosts on one machine no \
                 wire needs it.",
            ),
            wiring: Wiring { way: Way::FromVnic, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("Checksum Offload Enabled", "Checksum Offload Disabled")
    }

    fn switch(&self, topology: &mut Topology, _: &mut Daemon, arm: &str) -> Result<(), LabError> {
        CHECKSUM.switch(topology, arm)
    }

    fn checks(&self, topology: &mut Topology, _: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate checksum`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Checksum, options)
}

/// Turns LSO off for good, and checks that checksum offload can be toggled.
fn checks(topology: &mut Topology) -> Result<Vec<Check>, LabError> {
    topology.guest().set_offloads(VNIC, &[(LinkOffload::Tso, false)])?;
    CHECKSUM.check(topology)
}

/// Proves the arms by the switch's count of frames with a partial checksum. Frames of the same size
/// in both arms show that there was no LSO.
fn proof(case: &Case) -> Option<Check> {
    let percent = |arm| Some(100.0 * case.median(arm, "unfinished_checksums_of_frames")?);
    let (on, off) = (percent(ON)?, percent(OFF)?);
    let size = case.median(ON, "ingress_frame_bytes")? / case.median(OFF, "ingress_frame_bytes")?;
    let finished = case.total(ON, "finished_checksums")? + case.total(OFF, "finished_checksums")?;
    let seen = format!(
        "the guest sent {on:.1} % of its frames with a partial checksum with the offload on, and {off:.1} % with it off; the \
         switch completed {finished:.0} of them for the uplink; frames with it on had {size:.2} times the size of those with \
         it off"
    );
    proven(on > 95.0 && off < 5.0 && (0.9..1.1).contains(&size), seen)
}
