//! Fuzz target: whatever a guest says about a train, cutting it keeps its promises: nothing panics,
//! no segment is longer than the way out takes, and together they carry the bytes of the train.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, plain};
use datapath::PortSettings;
use ports::Offloads;
use ports::memory::MemoryFrame;

#[test]
fn fuzz_segment() {
    bolero::check!().with_type::<(u16, u16, u8, [u8; 12], Vec<(u8, u8)>)>().for_each(|input| {
        let (payload, size, choice, vnet, edits) = input;
        let train = Segment {
            payload: u32::from(*payload).min(60_000),
            gso: *size,
            v6: choice & 1 != 0,
            vlan: if choice & 2 != 0 { 7 } else { 0 },
            ip_option: choice & 4 != 0,
            ..Segment::parse("1+0 .P ts=1/2")
        };
        let mut frame = train.frame();
        if choice & 8 != 0 {
            frame.vnet = zerocopy::transmute!(*vnet);
        }
        for (at, value) in edits {
            let len = frame.bytes.len();
            frame.bytes[usize::from(*at) % len] = *value;
        }
        cut(&frame);
    });
}

/// Sends a frame through a switch to a port without offloads and to one with all.
fn cut(frame: &MemoryFrame) {
    let settings = PortSettings {
        vlan: datapath::Vlan::Trunk { native: 0, allowed: (0..4095).collect() },
        ..plain()
    };
    let mut bench = Bench::new(&[
        (settings.clone(), ALL),
        (settings.clone(), Offloads::empty()),
        (settings, ALL),
    ]);
    bench.send(0, std::slice::from_ref(frame));
    let from = bench.switch.counters(bench.ids[0]).unwrap();
    for port in [1, 2] {
        let to = bench.switch.counters(bench.ids[port]).unwrap();
        let frames = to.egress_frames + to.dropped() + to.segmented_trains - to.segments;
        assert_eq!(from.dropped() + frames, 1);
    }
    let segments = bench.received(1);
    let longest = 14 + 8 + 1500;
    assert!(
        segments.iter().all(|segment| segment.bytes.len() <= longest
            && segment.vnet.gso() == wire::vnet::GsoType::None)
    );
    if segments.len() > 1 {
        // A priority tag goes on the way out, so each frame says where its own payload is.
        let whole = payload(&frame.bytes);
        let together: Vec<u8> =
            segments.iter().flat_map(|segment| payload(&segment.bytes).to_vec()).collect();
        assert_eq!(whole, together);
    }
}

fn payload(bytes: &[u8]) -> &[u8] {
    let parsed = wire::parse(bytes, bytes.len()).unwrap();
    &bytes[usize::from(parsed.payload)..parsed.end as usize]
}
