//! Hot add and remove: a port comes and goes all the time while others carry a flow, against nobody coming.
//!
//! The port that comes is a TAP that nobody uses, so whatever it costs the others is the switch's doing.

use super::{Feature, OFF, ON, PROOF, no_checks, on_off, rsc};
use crate::report::{Case, Check};
use crate::topology::Way;

/// `millrace validate hotplug`. Here the arm that should not be worse is the one in which ports come and go.
pub const FEATURE: &Feature = &Feature {
    name: "hotplug",
    title: "Hot add and remove: a port every 100 ms, or none",
    arms: |_| on_off("A port is added and removed every 100 ms", "No port is added"),
    steps: false,
    measures: rsc::MEASURES,
    way: Way::ToVnic,
    whole_guide: false,
    switch: |_, daemon, arm| daemon.come_and_go(arm == ON),
    checks: no_checks,
    proof: Some(proof),
    note: Some(
        "The cost of hot add and remove to a flow between two other ports: \"no difference seen\" is the result to hope for.",
    ),
};

/// That ports did come and go, and that the two others lost nothing by it.
fn proof(case: &Case) -> Option<Check> {
    let sum = |arm, key| case.total(arm, key);
    let (on, off) = (sum(ON, "ports_added")?, sum(OFF, "ports_added")?);
    let lost = sum(ON, "lost_frames")?;
    Some(Check {
        name: PROOF.into(),
        passed: on > 0.0 && off <= 1.0 && lost == 0.0,
        seen: format!(
            "{on:.0} ports were added and removed in the one arm, {off:.0} in the other; the two others lost {lost:.0} \
             frames meanwhile ({:.0} in the quiet arm)",
            sum(OFF, "lost_frames").unwrap_or_default()
        ),
    })
}
