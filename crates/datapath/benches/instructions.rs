//! Instructions of a turn, counted by Callgrind: `cargo bench -p millrace-datapath --bench instructions`.
//!
//! Needs valgrind and `gungraun-runner` (the version of the gungraun dependency). A turn takes 256 frames from one memory
//! port and delivers them to another; the memory ports' own queues are in the count, filling and emptying them is not.
//! Each limit is for the whole turn of 256 frames; over it the run fails. docs/performance.md says where they go.
//!
//! The budgets are 250 instructions for a smallest frame, all in, and 120 for coalescing a segment above switching it.
//! Measured are 274 for a smallest frame, so the first is missed by 24 and its limit is what is reached and 5 %;
//! 556 for a segment alone, the copy of its 1448 bytes among them, and 675 for one that is coalesced: 119 more.

#![allow(missing_docs, reason = "gungraun's macros make public items without docs")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a bench is a test")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::trace::Segment;
use common::{ALL, Bench, plain, rsc};
use datapath::{PortSettings, RscPolicy};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use ports::memory::MemoryFrame;
use std::hint::black_box;

/// Frames of a turn.
const FRAMES: u64 = 256;

/// The most instructions a frame may take in this bench.
fn limit(per_frame: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, per_frame * FRAMES)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A switch that has learned both stations and run some turns of the same frames, filled for the next.
fn warm(policy: RscPolicy, frame: impl Fn(u32) -> MemoryFrame) -> Bench {
    let receiver = PortSettings { rsc: rsc(policy), ..plain() };
    let mut bench = Bench::new(&[(plain(), ALL), (receiver, ALL)]);
    let mut back = frame(0);
    let (to, from) = back.bytes[..12].split_at_mut(6);
    to.swap_with_slice(from);
    bench.send(1, &[back]);
    fill(&bench, &frame);
    for _ in 0..3 {
        bench.step();
        while let Some(frame) = bench.peers[1].receive() {
            bench.peers[1].recycle(frame);
        }
        fill(&bench, &frame);
    }
    bench
}

fn fill(bench: &Bench, frame: impl Fn(u32) -> MemoryFrame) {
    for number in 0..FRAMES as u32 {
        let frame = frame(number);
        assert!(bench.peers[0].send(frame.vnet, &frame.bytes));
    }
}

/// 64 bytes with the FCS that no port carries: 6 bytes of payload.
fn smallest(_: u32) -> MemoryFrame {
    Segment::parse("1+6 .").frame()
}

/// The segments of one connection, in order, their checksum vouched for by the device.
fn segment(number: u32) -> MemoryFrame {
    let segment = Segment {
        sequence: number.wrapping_mul(1448),
        payload: 1448,
        timestamps: Some((1, 2)),
        ..Segment::parse(".")
    };
    let mut frame = segment.frame();
    frame.vnet.set_flags(wire::vnet::Flags::DATA_VALID);
    frame
}

fn smallest_frames() -> Bench {
    warm(RscPolicy::Off, smallest)
}

fn segments_plain() -> Bench {
    warm(RscPolicy::Off, segment)
}

fn segments_coalesced() -> Bench {
    warm(RscPolicy::Ndis, segment)
}

#[library_benchmark]
#[bench::smallest(args = (), setup = smallest_frames, config = limit(287))]
// 556 as measured and 5 %.
#[bench::segments(args = (), setup = segments_plain, config = limit(584))]
// 675 as measured and 2 %; 556 of plain switching and the budget of 120 are 676.
#[bench::coalesced(args = (), setup = segments_coalesced, config = limit(690))]
fn turn(mut bench: Bench) -> Bench {
    let now = bench.now;
    assert_eq!(black_box(bench.switch.step(black_box(now))) as u64, FRAMES);
    bench
}

library_benchmark_group!(name = turns, benchmarks = [turn]);
main!(library_benchmark_groups = turns);
