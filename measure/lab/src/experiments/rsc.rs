//! RSC in the vSwitch, on against off: activities 2 and 3 of Microsoft's validation guide.

use super::{Feature, OFF, ON, PLAIN, on_off, proven};
use crate::experiment::Measure;
use crate::report::{Case, Check};
use statistics::Better;

/// Of the whole machine.
pub(super) const CPU: Measure = Measure {
    key: "cpu_percent",
    improvement: "cpu_percent",
    label: "Avg. CPU %",
    scale: 1.0,
    decimals: 2,
    better: Better::Lower,
    equal_within: None,
};

/// Of the whole machine, by a byte that the receiver's application got.
pub(super) const CYCLES: Measure = Measure {
    key: "cycles_per_byte",
    improvement: "cycles_per_byte",
    label: "Cycles/Byte",
    decimals: 3,
    ..CPU
};

/// What the receiver's application got. Megabytes are 2^20 bytes, as NTttcp counts.
pub(super) const THROUGHPUT: Measure = Measure {
    key: "throughput_bps",
    improvement: "throughput",
    label: "Throughput (MB/s)",
    scale: 1.0 / 8.0 / 1_048_576.0,
    decimals: 1,
    better: Better::Higher,
    equal_within: None,
};

/// Of the switch, the receiver and their kernel, whatever the sender used.
pub(super) const RECEIVING: Measure = Measure {
    key: "receiving_cpu_s_per_gib",
    improvement: "receiving_cpu",
    label: "Receiving CPU s/GiB",
    ..CPU
};

/// The guide's three columns, and its question by itself: what receiving costs.
pub const MEASURES: &[Measure] = &[CPU, CYCLES, THROUGHPUT, RECEIVING];

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
