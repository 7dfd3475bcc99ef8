//! LSO: the guest sends, and hands the switch whole trains or one frame at a time.
//!
//! With it off the guest's own stack cuts every send into frames of its MTU, and each makes the way to the switch by
//! itself. What leaves the uplink is the uplink's matter: it takes trains where the kernel behind it does, and is cut for
//! in the switch where it does not.

use super::{Feature, OFF, ON, PROOF, on_off, rsc};
use crate::LabError;
use crate::daemon::Daemon;
use crate::report::{Case, Check};
use crate::topology::{Topology, VNIC, Way};
use ports::link::LinkOffload;

/// `millrace validate lso`.
pub const FEATURE: &Feature = &Feature {
    name: "lso",
    title: "LSO of the guest: on against off",
    arms: |_| on_off("LSO Enabled", "LSO Disabled"),
    steps: false,
    measures: rsc::MEASURES,
    way: Way::FromVnic,
    whole_guide: false,
    switch: |topology, _, arm| switch(topology, arm == ON),
    checks,
    proof,
    note: Some("The guest is the sender here: its processor time is what LSO saves first."),
};

fn switch(topology: &mut Topology, on: bool) -> Result<(), LabError> {
    topology.guest().set_offload(VNIC, LinkOffload::Tso, "tso", on)
}

/// That the vNIC lets LSO be turned off and on.
fn checks(topology: &mut Topology, _: &mut Daemon) -> Result<Vec<Check>, LabError> {
    let mut states = Vec::new();
    for on in [false, true] {
        switch(topology, on)?;
        states.push(topology.guest().offload(VNIC, LinkOffload::Tso)?);
    }
    Ok(vec![Check {
        name: "LSO of the guest's vNIC".into(),
        passed: states == [false, true],
        seen: format!("turned off it is {:?}, turned on {:?}", states.first(), states.last()),
    }])
}

fn proof(case: &Case) -> Option<Check> {
    let size = |arm| case.median(arm, "ingress_frame_bytes");
    let (on, off) = (size(ON)?, size(OFF)?);
    Some(Check {
        name: PROOF.into(),
        passed: on > 2.0 * off,
        seen: format!("{on:.0} bytes per frame from the guest with LSO on, {off:.0} with LSO off"),
    })
}
