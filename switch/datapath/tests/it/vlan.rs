//! VLANs are kept apart whatever tags a guest writes: a frame leaves in the VLAN it was admitted
//! to, and behind the outer tag nothing changes.

use crate::common::{ALL, Bench, access, drops, plain, trunk};
use datapath::{DropReason, PortRole, PortSettings, Vlan};
use ports::memory::MemoryFrame;
use proptest::prelude::*;

/// A tag: type and TCI.
type Tag = (u16, u16);

const PRIORITY: u16 = 0x6000;

/// Two that send, and a way out of each kind, among them uplinks where VLAN 10 leaves untagged.
fn ports() -> Vec<PortSettings> {
    let mut ports = vec![
        access(10),
        trunk(10, &[10, 30]),
        access(10),
        access(20),
        access(0),
        trunk(10, &[20, 30]),
        trunk(20, &[10, 30]),
        PortSettings { vlan: Vlan::Trunk { native: 0, allowed: (0..4095).collect() }, ..plain() },
    ];
    ports.iter_mut().skip(5).for_each(|port| port.role = PortRole::Uplink);
    ports
}

fn bench() -> Bench {
    Bench::new(&ports().into_iter().map(|settings| (settings, ALL)).collect::<Vec<_>>())
}

/// Returns a frame to a station, behind so many tags, cut short where that is asked for.
fn frame(to: u8, tags: &[Tag], number: u8) -> MemoryFrame {
    let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 1];
    for (tpid, tci) in tags {
        bytes.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    }
    bytes.extend([0x88, 0xb5, number]);
    bytes.extend([0x5a; 46]);
    MemoryFrame { bytes, ..Default::default() }
}

/// Station 9 of VLAN 10 lives behind a port: frames to it go there and are decided by the run.
fn learn(bench: &mut Bench, port: usize) {
    let tags = [(0x8100, 10)];
    let mut hello = frame(0xff, &tags[..usize::from(port > 5)], 0);
    hello.bytes[11] = 9;
    bench.send(port, &[hello]);
    received(bench);
}

/// Returns the first tag, if there is one, and what is behind it.
fn outer_tag(bytes: &[u8]) -> (Option<Tag>, &[u8]) {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match word(12) {
        0x8100 | 0x88a8 if bytes.len() >= 18 => (Some((word(12), word(14))), &bytes[16..]),
        _ => (None, &bytes[12..]),
    }
}

/// Returns the VLAN of a frame on the wire of a port, and what it carries there.
fn on_wire<'b>(port: &PortSettings, bytes: &'b [u8]) -> (u16, &'b [u8]) {
    let untagged = match port.vlan {
        Vlan::Access(vlan) | Vlan::Trunk { native: vlan, .. } => vlan,
    };
    match outer_tag(bytes) {
        (Some((_, tci)), rest) if tci & 0xfff != 0 => (tci & 0xfff, rest),
        (Some(_), rest) => (untagged, rest),
        (None, rest) => (untagged, rest),
    }
}

/// Returns the frames that came out, by port.
fn received(bench: &Bench) -> Vec<Vec<Vec<u8>>> {
    let bytes = |port| bench.received(port).into_iter().map(|frame| frame.bytes).collect();
    (0..bench.peers.len()).map(bytes).collect()
}

#[test]
fn a_priority_tag_with_a_vlan_tag_behind_it_does_not_leave_as_that_vlan() {
    let mut bench = bench();
    bench.send(0, &[frame(0xff, &[(0x8100, 0), (0x8100, 20)], 0)]);
    assert!(received(&bench).iter().all(Vec::is_empty));
    assert_eq!(drops(&bench, 0, DropReason::VlanNotAllowed), 1);
}

#[test]
fn a_double_tag_does_not_pass_behind_a_plain_priority_tag() {
    let mut bench = bench();
    learn(&mut bench, 6);
    let run = [
        frame(9, &[(0x8100, PRIORITY)], 0),
        frame(9, &[(0x8100, PRIORITY), (0x8100, 20)], 1),
        frame(9, &[(0x8100, PRIORITY)], 2),
    ];
    bench.send(0, &run);
    assert_eq!(received(&bench)[6].len(), 2);
    assert_eq!(drops(&bench, 0, DropReason::VlanNotAllowed), 1);
}

/// It left by an uplink's native VLAN, where the next switch read it as a tag.
#[test]
fn a_tag_of_old_switches_does_not_enter_by_an_access_port() {
    let mut bench = bench();
    learn(&mut bench, 6);
    let plain = frame(9, &[], 0);
    for tpid in [0x9100, 0x9200, 0x9300] {
        for tags in [&[(tpid, 20)][..], &[(0x8100, 0), (tpid, 20)]] {
            let before = drops(&bench, 0, DropReason::VlanNotAllowed);
            bench.send(0, &[plain.clone(), frame(9, tags, 1), plain.clone()]);
            assert_eq!(received(&bench)[6].len(), 2, "{tags:x?}");
            assert_eq!(drops(&bench, 0, DropReason::VlanNotAllowed), before + 1);
        }
        // A trunk carries it, and no one strips the tag in front of it.
        bench.send(1, &[frame(0xff, &[(0x8100, 10), (tpid, 20)], 0)]);
        let out = received(&bench);
        assert_eq!((out[6].len(), out[2].len()), (1, 0));
    }
}

#[test]
fn a_priority_tag_is_rewritten_as_the_port_tags_and_keeps_its_priority() {
    let mut bench = bench();
    bench.send(0, &[frame(0xff, &[(0x88a8, PRIORITY)], 0)]);
    let out = received(&bench);
    assert_eq!(out[2], [frame(0xff, &[], 0).bytes]);
    assert_eq!(out[6], [frame(0xff, &[(0x8100, PRIORITY | 10)], 0).bytes]);
}

#[test]
fn a_double_tag_of_a_trunk_is_carried_whole_or_dropped_by_name() {
    let mut bench = bench();
    let double = frame(0xff, &[(0x8100, 10), (0x8100, 20)], 0);
    bench.send(1, std::slice::from_ref(&double));
    let out = received(&bench);
    assert_eq!((&out[6], &out[7]), (&vec![double.bytes.clone()], &vec![double.bytes]));
    for port in [0, 2, 5] {
        assert!(out[port].is_empty());
        assert_eq!(drops(&bench, port, DropReason::InnerTag), 1, "port {port}");
    }
}

#[test]
fn a_trunk_does_not_choose_the_type_of_the_tag_it_leaves_with() {
    let mut bench = bench();
    bench.send(1, &[frame(0xff, &[(0x88a8, PRIORITY | 30)], 0)]);
    let out = received(&bench);
    for uplink in &out[5..8] {
        assert_eq!(*uplink, [frame(0xff, &[(0x8100, PRIORITY | 30)], 0).bytes]);
    }
}

fn tags() -> impl Strategy<Value = Vec<Tag>> {
    let tpid = prop_oneof![4 => Just(0x8100u16), 2 => Just(0x88a8), 1 => Just(0x9100)];
    let id =
        prop_oneof![3 => Just(0u16), 3 => Just(10), 3 => Just(20), 1 => Just(30), 1 => Just(4095)];
    proptest::collection::vec((tpid, (id, 0..16u16).prop_map(|(id, bits)| bits << 12 | id)), 0..4)
}

proptest! {
    #[test]
    fn a_frame_leaves_in_the_vlan_it_was_admitted_to(
        from in 0..2usize,
        known in prop_oneof![Just(None), proptest::sample::select(vec![2usize, 5, 6, 7]).prop_map(Some)],
        stacks in proptest::collection::vec((tags(), 14..80usize), 1..8),
    ) {
        let (mut run, mut alone) = (bench(), bench());
        let to = known.map_or(0xff, |port| {
            learn(&mut run, port);
            learn(&mut alone, port);
            9
        });
        let frames: Vec<_> = stacks.iter().zip(0..).map(|((tags, len), number)| {
            let mut frame = frame(to, tags, number);
            frame.bytes.truncate(*len);
            frame
        }).collect();
        let mut each = vec![vec![]; ports().len()];
        for sent in &frames {
            alone.send(from, std::slice::from_ref(sent));
            let (vlan, carried) = on_wire(&ports()[from], &sent.bytes);
            for (port, out) in received(&alone).into_iter().enumerate() {
                for bytes in &out {
                    prop_assert_eq!(on_wire(&ports()[port], bytes), (vlan, carried), "port {}", port);
                    let tag = outer_tag(bytes).0;
                    let untagged = tag.is_none_or(|(_, tci)| tci & 0xfff != 0);
                    prop_assert!(untagged, "a priority tag left");
                    prop_assert!(tag.is_none_or(|(tpid, _)| tpid == 0x8100));
                }
                each[port].extend(out);
            }
        }
        run.send(from, &frames);
        prop_assert_eq!(received(&run), each, "a run is decided as its frames are alone");
    }
}
