//! The cases: traffic, direction and the measured figure.

use crate::area::{MAX_RING_SIZE, Shape};
use crate::stream::TRAIN;
use serde::Serialize;
use std::time::Duration;
use wire::vnet::VnetHeader;

/// Kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// As many UDP frames as get through.
    Frames,
    /// As many TCP trains as get through: one virtio header for 45 segments, to be delivered as one
    /// frame.
    Train,
    /// One frame in flight at a time.
    PingPong,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    /// Million frames that arrived per second, both directions together.
    #[serde(rename = "Mpps")]
    Mpps,
    /// 10^9 bits of frames that arrived per second.
    #[serde(rename = "Gb/s")]
    Gbps,
    /// The median time from one guest to the other, in 10^-6 s.
    #[serde(rename = "us")]
    Microseconds,
}

impl Unit {
    /// Returns the unit as it is printed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Mpps => "Mpps",
            Unit::Gbps => "Gb/s",
            Unit::Microseconds => "µs",
        }
    }
}

/// What the guest's driver asks for, which decides by which path a switch serves it. DPDK's own
/// tests have the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Driver {
    /// Offloads and mergeable buffers, as Linux.
    Full,
    /// Offloads, but a frame is in one buffer.
    OneBuffer,
    /// Neither: what DPDK's vectorised receive path asks for.
    Bare,
    /// As [`Driver::Full`], and buffers that come back in order, where the switch offers that.
    InOrder,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    /// The name that `--only` matches.
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) unit: Unit,
    /// Bytes of a frame, from the destination address to the last byte of payload.
    pub(crate) frame: usize,
    /// Whether both guests send at once; otherwise only the first sends.
    pub(crate) both_ways: bool,
    /// Whether the rings are packed; otherwise they are split.
    pub(crate) packed: bool,
    pub(crate) driver: Driver,
    /// Flows, each with frames in every direction of the case.
    pub(crate) flows: u16,
    /// MAC addresses behind each of the two vNICs.
    pub(crate) hosts: u16,
    /// Seconds before the measurement.
    pub(crate) warm_up_s: f64,
    /// Pause before each frame of a ping-pong, long enough for any switch that sleeps to fall
    /// asleep.
    pub(crate) rest: Duration,
}

/// The case that all others derive from.
pub(crate) const PLAIN: Case = Case {
    name: "64 B",
    load: Load::Frames,
    unit: Unit::Mpps,
    frame: 64,
    both_ways: true,
    packed: false,
    driver: Driver::Full,
    flows: 1,
    hosts: 1,
    warm_up_s: 0.5,
    rest: Duration::ZERO,
};

const PACKED: Case = Case { name: "64 B, packed", packed: true, ..PLAIN };

/// All cases, in the order of the table.
pub(crate) const CASES: [Case; 14] = [
    PLAIN,
    Case {
        name: "64 B, 10,000 flows, 1,000 MACs",
        flows: 10_000,
        hosts: 500,
        // Long enough for a switch with a flow table to fill it.
        warm_up_s: 3.0,
        ..PLAIN
    },
    Case { name: "64 B, one buffer", driver: Driver::OneBuffer, ..PLAIN },
    Case { name: "64 B, no offloads", driver: Driver::Bare, ..PLAIN },
    Case { name: "64 B, in order", driver: Driver::InOrder, ..PLAIN },
    PACKED,
    Case { name: "64 B, packed, one buffer", driver: Driver::OneBuffer, ..PACKED },
    Case { name: "64 B, packed, no offloads", driver: Driver::Bare, ..PACKED },
    Case { name: "64 B, packed, in order", driver: Driver::InOrder, ..PACKED },
    Case { name: "1518 B", unit: Unit::Gbps, frame: 1518, both_ways: false, ..PLAIN },
    Case { name: "9014 B", unit: Unit::Gbps, frame: 9014, both_ways: false, ..PLAIN },
    Case {
        name: "64 KiB trains",
        load: Load::Train,
        unit: Unit::Gbps,
        frame: TRAIN,
        both_ways: false,
        ..PLAIN
    },
    Case { name: "latency, 64 B", load: Load::PingPong, unit: Unit::Microseconds, ..PLAIN },
    Case {
        name: "latency after 1 ms of rest, 64 B",
        load: Load::PingPong,
        unit: Unit::Microseconds,
        rest: Duration::from_millis(1),
        ..PLAIN
    },
];

impl Case {
    /// Returns whether the frames are longer than a switch accepts by default.
    pub(crate) fn jumbo(&self) -> bool {
        self.load != Load::Train && self.frame > 1518
    }

    /// Returns the sizes of a queue: one buffer per frame. Frames in flight are limited to a few
    /// MiB, as by a guest's TCP windows.
    pub(crate) fn shape(&self, writable: bool) -> Shape {
        let (size, buffer) = match self.frame {
            0..=1518 => (MAX_RING_SIZE, 2048),
            1519..=9014 => (256, 9216),
            _ => (64, TRAIN + VnetHeader::LEN),
        };
        #[allow(clippy::cast_possible_truncation, reason = "at most the bytes of a train")]
        let buffer = if writable { buffer } else { self.frame + VnetHeader::LEN } as u32;
        Shape { size, window: size, buffer, writable }
    }

    /// Returns the number of frames that are published together.
    pub(crate) fn burst(&self) -> u16 {
        if self.load == Load::Train { 4 } else { 32 }
    }
}
