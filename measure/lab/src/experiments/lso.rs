//! LSO: the guest sends, and hands the switch whole trains or one frame at a time.
//!
//! With it off the guest's own stack cuts every send into frames of its MTU, and each makes the way
//! to the switch by itself. What leaves the uplink is the uplink's matter: it takes trains where
//! the kernel behind it does, and is cut for in the switch where it does not.

use crate::experiments::vnic::Offload;
use crate::experiments::{Feature, PLAIN, proven};
use crate::load::Way;
use crate::plan::{OFF, ON, on_off};
use crate::report::{Case, Check};
use ports::link::LinkOffload;

const LSO: Offload = Offload { which: LinkOffload::Tso, words: "LSO" };

/// `millrace validate lso`.
pub const FEATURE: &Feature = &Feature {
    name: "lso",
    title: "LSO of the guest: on against off",
    arms: |_| on_off("LSO Enabled", "LSO Disabled"),
    way: Way::FromVnic,
    switch: |topology, _, arm| LSO.switch(topology, arm),
    checks: |topology, _| LSO.check(topology),
    proof: Some(proof),
    note: Some("The guest is the sender here: its processor time is what LSO saves first."),
    ..PLAIN
};

fn proof(case: &Case) -> Option<Check> {
    let size = |arm| case.median(arm, "ingress_frame_bytes");
    let (on, off) = (size(ON)?, size(OFF)?);
    let seen = format!("{on:.0} bytes per frame from the guest with LSO on, {off:.0} with LSO off");
    proven(on > 2.0 * off, seen)
}
