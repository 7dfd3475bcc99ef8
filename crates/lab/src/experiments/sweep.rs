//! `millrace sweep`: throughput by block size and number of connections, for a guest that sends and for one that
//! receives, all offloads at their defaults.

use super::{Bulk, Feature, Load, PLAIN, rsc};
use crate::campaign::{Campaign, Part, Point};
use crate::experiment::{Arm, Measure};
use crate::options::Options;
use crate::statistics::Better;
use crate::topology::Way;

/// Throughput in the unit that network people compare, and what it cost.
pub(super) const MEASURES: &[Measure] = &[
    Measure {
        key: "throughput_bps",
        improvement: "throughput",
        label: "Throughput (Gb/s)",
        scale: 1e-9,
        decimals: 2,
        better: Better::Higher,
        equal_within: None,
    },
    Measure { decimals: 1, ..rsc::CPU },
    Measure { decimals: 2, ..rsc::CYCLES },
];

/// Connections of a whole sweep.
pub const CONNECTIONS: &[u32] = &[1, 2, 4, 8, 16];
/// Blocks of a whole sweep, in bytes: 512 B to 512 KiB.
pub const BLOCKS: &[u32] = &[
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
];
/// The same for a first look.
pub const QUICK_CONNECTIONS: &[u32] = &[1, 4, 16];
/// The same for a first look.
pub const QUICK_BLOCKS: &[u32] = &[512, 4 << 10, 32 << 10, 512 << 10];

/// The guest sends.
const SEND: &Feature = &Feature {
    name: "sweep",
    title: "Throughput by block size and connections",
    arms: |_| vec![measured()],
    measures: MEASURES,
    way: Way::FromVnic,
    note: Some(
        "All offloads are at their defaults. Both ends send and receive in blocks of the size given.",
    ),
    ..PLAIN
};

/// The guest receives.
const RECEIVE: &Feature = &Feature { way: Way::ToVnic, ..*SEND };

/// The only arm: nothing is switched.
pub(super) fn measured() -> Arm {
    Arm { name: "measured".into(), label: "Measured".into() }
}

/// `millrace sweep`.
pub fn campaign(options: &Options) -> Campaign {
    let mut points = Vec::new();
    for feature in [SEND, RECEIVE] {
        for connections in options.connections.iter().copied() {
            for buffer_bytes in options.blocks.iter().copied() {
                points.push(Point {
                    feature,
                    part: Part::Bulk,
                    load: Load::Bulk(Bulk { connections, buffer_bytes }),
                    experiment: feature.experiment(options.mtu, options.interval, options.stop()),
                });
            }
        }
    }
    Campaign { name: SEND.name, title: SEND.title, points }
}
