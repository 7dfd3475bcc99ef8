//! Fuzz target: whatever frames arrive, with whatever virtio headers, coalescing keeps its
//! promises: nothing panics, no frame gets lost uncounted, and every train that leaves is a packet
//! its receiver can take.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told.

use crate::common::trace::Segment;
use crate::common::{Bench, rsc};
use datapath::RscPolicy;
use ports::memory::MemoryFrame;

/// Bytes to change in otherwise good segments: where, and to what.
type Edit = (u8, u16, u8);

#[test]
fn fuzz_coalesce() {
    bolero::check!().with_type::<(bool, Vec<(u8, u8, Vec<Edit>)>)>().for_each(|(gro, choices)| {
        let policy = if *gro { RscPolicy::Gro } else { RscPolicy::Ndis };
        let mut bench = Bench::coalescing(rsc(policy));
        let mut next = [0u32; 4];
        let frames: Vec<MemoryFrame> = choices
            .iter()
            .take(200)
            .map(|(flow, len, edits)| edited(&mut next, *flow, *len, edits))
            .collect();
        bench.send(0, &frames);
        let (from, to) = (
            bench.switch.counters(bench.ids[0]).unwrap(),
            bench.switch.counters(bench.ids[1]).unwrap(),
        );
        let out = bench.received(1);
        assert_eq!(out.len() as u64, to.egress_frames);
        assert_eq!(
            from.dropped() + to.dropped() + to.egress_frames + to.coalesced_packets,
            frames.len() as u64
        );
        out.iter()
            .filter(|frame| frame.vnet.gso() != wire::vnet::GsoType::None)
            .for_each(check_train);
    });
}

/// Returns the next segment of a flow with some bytes changed; low places are the virtio header.
fn edited(next: &mut [u32; 4], flow: u8, len: u8, edits: &[Edit]) -> MemoryFrame {
    let place = usize::from(flow % 4);
    let payload = u32::from(len);
    let segment = Segment {
        flow: flow % 4,
        v6: flow & 4 != 0,
        sequence: next[place],
        payload,
        ..Segment::parse(".")
    };
    next[place] = next[place].wrapping_add(payload);
    let mut frame = segment.frame();
    frame.vnet.set_flags(wire::vnet::Flags::DATA_VALID);
    for (vnet, at, value) in edits {
        if *vnet < 8 {
            let mut bytes: [u8; 12] = zerocopy::transmute!(frame.vnet);
            bytes[usize::from(*at) % 12] = *value;
            frame.vnet = zerocopy::transmute!(bytes);
        } else {
            let len = frame.bytes.len();
            frame.bytes[usize::from(*at) % len] = *value;
        }
    }
    frame
}

/// Lengths that agree with each other, a checksum that is to be finished inside the frame.
fn check_train(frame: &MemoryFrame) {
    let parsed = wire::parse(&frame.bytes, frame.bytes.len()).unwrap();
    assert!(matches!(parsed.kind, wire::Kind::Tcp | wire::Kind::Udp), "{parsed:?}");
    assert!(
        frame.vnet.gso_size.get() > 0
            && u32::from(frame.vnet.gso_size.get()) < parsed.payload_len()
    );
    assert_eq!(frame.vnet.csum_start.get(), parsed.l4);
    assert_eq!(frame.vnet.hdr_len.get(), parsed.payload);
}
