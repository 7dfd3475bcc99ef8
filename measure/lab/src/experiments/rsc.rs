//! RSC in the vSwitch, on against off: activities 2 and 3 of Microsoft's validation guide.

use crate::experiments::{Feature, PLAIN, proven};
use crate::plan::{OFF, ON, on_off};
use crate::report::{Case, Check};

/// `millrace validate rsc`. The arms are called as in the guide's table.
pub const FEATURE: &Feature = &Feature {
    name: "rsc",
    title: "RSC in the vSwitch: on against off",
    arms: |_| on_off("RSC in the vSwitch Enabled", "RSC in the vSwitch Disabled"),
    whole_guide: true,
    switch: |_, daemon, arm| daemon.vnic.set_rsc(arm == ON),
    toggle: Some(|port, arm| port.set_rsc(arm == ON)),
    checks: |_, daemon| daemon.vnic.rsc_checks(),
    proof: Some(proof),
    ..PLAIN
};

/// The same toward a receiver that coalesces by itself, as most guests do.
pub(crate) const TOWARD_GRO: &Feature = &Feature { receiver_gro: true, ..*FEATURE };

/// The same toward a virtual machine, of whose receiving each instruction is emulated.
pub(crate) const TOWARD_QEMU: &Feature = &Feature {
    whole_guide: false,
    note: Some(
        "QEMU emulates the receiver's virtual machine without hardware virtualisation (TCG): each instruction of its kernel \
         takes many of this machine's. Its rates and costs say little about a guest in production; the meaningful figure is \
         the ratio of RSC on to off, toward a kernel with its own GRO.",
    ),
    ..*FEATURE
};

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off) = (depth(ON)?, depth(OFF)?);
    let seen =
        format!("{on:.2} segments per frame to the receiver with RSC on, {off:.2} with RSC off");
    proven(on > 1.0 && off <= 1.0, seen)
}
