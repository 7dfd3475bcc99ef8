//! Coalescing limits: trains as long as IP allows, against trains of at most four segments.
//!
//! FreeBSD's hn(4) has such limits per connection, because very long trains mean few
//! acknowledgements.

use crate::experiments::{Feature, PLAIN, proven};
use crate::plan::{OFF, ON, on_off};
use crate::report::{Case, Check};
use serde_json::{Value, json};

/// Payload of a limited train, in multiples of the MTU.
const SEGMENTS: u8 = 4;

/// `millrace validate limits`.
pub const FEATURE: &Feature = &Feature {
    name: "limits",
    title: "RSC: unlimited trains or short ones",
    arms: |_| on_off("RSC without limits", format!("RSC with length-limit {SEGMENTS}")),
    switch: |_, daemon, arm| daemon.vnic.change(&change(arm)),
    toggle: Some(|port, arm| {
        port.set_rsc(true)?;
        port.change(&change(arm))
    }),
    proof: Some(proof),
    ..PLAIN
};

/// What an arm changes at the vNIC's port.
fn change(arm: &str) -> Value {
    json!({ "length-limit": (arm == OFF).then_some(SEGMENTS) })
}

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off) = (depth(ON)?, depth(OFF)?);
    let seen = format!(
        "{on:.2} segments per frame to the receiver without limits, {off:.2} with length-limit {SEGMENTS}"
    );
    // Four MTUs are a little more payload than four segments have.
    proven(on > off && off <= f64::from(SEGMENTS) + 0.5, seen)
}
