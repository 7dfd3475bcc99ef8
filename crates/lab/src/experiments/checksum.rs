//! Checksum offload of a guest that sends: the guest leaves the transport checksum of each frame to others, or writes it
//! itself.
//!
//! LSO is off in both arms. Without checksum offload there is none, and with it one train in place of 45 frames would
//! be what is measured.

use super::{Feature, OFF, ON, PROOF, on_off, rsc};
use crate::LabError;
use crate::daemon::Daemon;
use crate::report::{Case, Check};
use crate::topology::{Topology, VNIC, Way};
use ports::link::LinkOffload;

/// `millrace validate checksum`.
pub const FEATURE: &Feature = &Feature {
    name: "checksum",
    title: "Checksum offload of the guest: on against off",
    arms: |_| on_off("Checksum Offload Enabled", "Checksum Offload Disabled"),
    steps: false,
    measures: rsc::MEASURES,
    way: Way::FromVnic,
    whole_guide: false,
    switch: |topology, _, arm| switch(topology, arm == ON),
    checks,
    proof,
    note: Some(
        "LSO is off in both arms, because without checksum offload there is none. The switch finishes a checksum only \
         for a port that cannot take the frame without; where it passes it on unfinished, nobody computes it.",
    ),
};

fn switch(topology: &mut Topology, on: bool) -> Result<(), LabError> {
    topology.guest().set_offload(VNIC, LinkOffload::TxCsum, "tx", on)
}

/// That the vNIC lets it be turned off and on, and that LSO stays off.
fn checks(topology: &mut Topology, _: &mut Daemon) -> Result<Vec<Check>, LabError> {
    topology.guest().set_offload(VNIC, LinkOffload::Tso, "tso", false)?;
    let mut states = Vec::new();
    for on in [false, true] {
        switch(topology, on)?;
        let guest = topology.guest();
        let seen =
            (guest.offload(VNIC, LinkOffload::TxCsum)?, guest.offload(VNIC, LinkOffload::Tso)?);
        states.push(seen);
    }
    let [off, on] = states.as_slice() else { return Ok(Vec::new()) };
    Ok(vec![Check {
        name: "Checksum offload of the guest's vNIC".into(),
        passed: (off.0, on.0) == (false, true) && !(off.1 || on.1),
        seen: format!(
            "turned off it is {}, turned on {}; LSO is {} and {}",
            off.0, on.0, off.1, on.1
        ),
    }])
}

/// The link was asked at each interval; frames of one MTU say that there was no LSO in either arm.
fn proof(case: &Case) -> Option<Check> {
    let figure = |arm, key| case.median(arm, key);
    let (on, off) = (figure(ON, "guest_checksum_offload")?, figure(OFF, "guest_checksum_offload")?);
    let size = figure(ON, "ingress_frame_bytes")? / figure(OFF, "ingress_frame_bytes")?;
    let finished = |arm| figure(arm, "finished_checksums").unwrap_or_default();
    Some(Check {
        name: PROOF.into(),
        passed: on > 0.5 && off < 0.5 && (0.9..1.1).contains(&size),
        seen: format!(
            "the guest's link had it {on:.0} and {off:.0} (1 is on); the switch finished {:.0} checksums an interval with it \
             on and {:.0} with it off; frames with it on had {size:.2} of the size of those without",
            finished(ON),
            finished(OFF)
        ),
    })
}
