//! What is too big for its way is answered as a router would, to its sender alone; and a black hole
//! behind the switch is told. smoltcp reads the answers.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, access, plain, rsc, trunk};
use datapath::{
    HealthEvent, PathMtu, PortSettings, RscPolicy, Switch, SwitchOptions, WorkerOptions,
};
use ports::memory::MemoryFrame;
use ports::{Nanos, Offloads};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, Icmpv6Message, Icmpv6Packet, Ipv4Packet,
    Ipv6Packet,
};

/// Returns a bench with a port of MTU 9000 and one of 1500, behind which the receiver is known to
/// be.
fn bench(first: PortSettings, second: PortSettings) -> Bench {
    let mut bench = Bench::new(&[(first, ALL), (second, Offloads::empty())]);
    let mut greeting = Segment::parse("1+0 .").frame();
    greeting.bytes[..12].rotate_left(6);
    bench.send(1, &[greeting]);
    assert_eq!(bench.received(0).len(), 1);
    bench
}

fn jumbo() -> PortSettings {
    PortSettings { mtu: 9000, ..plain() }
}

/// Returns the answers to a frame.
fn answers(bench: &mut Bench, frame: MemoryFrame) -> Vec<Vec<u8>> {
    bench.send(0, &[frame]);
    bench.received(0).into_iter().map(|frame| frame.bytes).collect()
}

fn answer_to(line: &str) -> Option<Vec<u8>> {
    let mut found = answers(&mut bench(jumbo(), plain()), Segment::parse(line).frame());
    assert!(found.len() <= 1);
    found.pop()
}

/// Reads an answer about `frame`: its MTU.
fn read(answer: &[u8], frame: &[u8]) -> u32 {
    assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]), "to its sender");
    let (packet, sent) = (&answer[14..], &frame[14..]);
    let quote_of = |quote: &[u8]| assert!(quote.len() >= 28 && sent.starts_with(quote));
    if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum());
        let sent = Ipv4Packet::new_unchecked(sent);
        assert_eq!((ip.src_addr(), ip.dst_addr()), (sent.dst_addr(), sent.src_addr()));
        let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
        assert!(icmp.verify_checksum());
        assert_eq!(ip.payload()[..2], [3, 4]);
        quote_of(icmp.data());
        let read = Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default());
        if let Ok(Icmpv4Repr::DstUnreachable { reason, .. }) = read {
            assert_eq!(reason, Icmpv4DstUnreachable::FragRequired);
        }
        u32::from(u16::from_be_bytes([ip.payload()[6], ip.payload()[7]]))
    } else {
        let ip = Ipv6Packet::new_checked(packet).unwrap();
        let sent = Ipv6Packet::new_unchecked(sent);
        assert_eq!((ip.src_addr(), ip.dst_addr()), (sent.dst_addr(), sent.src_addr()));
        let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        assert!(icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
        assert_eq!(icmp.msg_type(), Icmpv6Message::PktTooBig);
        quote_of(icmp.payload());
        icmp.pkt_too_big_mtu()
    }
}

#[test]
fn a_packet_too_big_is_answered_in_both_families_trains_too() {
    for line in [
        "1+4000 .",
        "1+4000 . v6",
        "1+8000 . gso=4000",
        "1+8000 . v6 gso=4000",
        "1+4000 . ts=1/2 opt=sack v6",
    ] {
        let answer = answer_to(line).unwrap_or_else(|| panic!("{line}: no answer"));
        assert_eq!(read(&answer, &Segment::parse(line).frame().bytes), 1500, "{line}");
    }
    let fits = ["1+1460 .", "1+8000 . gso=1460"];
    assert!(fits.iter().all(|line| answer_to(line).is_none()));
}

#[test]
fn what_a_router_leaves_alone_is_not_answered() {
    assert!(answer_to("1+4000 . df=0").is_none(), "it may be fragmented");
    assert!(answer_to("1+4000 . bad=ip").is_some());
    let sent = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Segment::parse("1+4000 .").frame();
        change(&mut frame.bytes);
        let ip = wire::ipv4::fill_checksum;
        ip(&mut frame.bytes[14..34]);
        answers(&mut bench(jumbo(), plain()), frame).len()
    };
    assert_eq!(sent(&|_| ()), 1);
    assert_eq!(sent(&|bytes| (bytes[20], bytes[21]) = (0x40, 1)), 0, "a later fragment");
    assert_eq!(sent(&|bytes| bytes[20] = 0x60), 1, "a first fragment");
    assert_eq!(sent(&|bytes| (bytes[23], bytes[34]) = (1, 3)), 0, "an error");
    assert_eq!(sent(&|bytes| (bytes[23], bytes[34]) = (1, 8)), 1, "a ping");
    assert_eq!(sent(&|bytes| bytes[26..30].fill(0)), 0, "from nowhere");
    assert_eq!(sent(&|bytes| bytes[26..30].fill(255)), 0, "from all");
    assert_eq!(sent(&|bytes| bytes[30] = 224), 0, "to a group");
    assert_eq!(sent(&|bytes| bytes[..6].fill(255)), 0, "by broadcast");
    assert_eq!(sent(&|bytes| bytes[5] = 0xcc), 0, "flooded");
}

#[test]
fn the_option_decides_and_ports_of_one_mtu_are_silent() {
    let with = |path_mtu, mtu| PortSettings { path_mtu, mtu, ..plain() };
    let count = |first, second| {
        answers(&mut bench(first, second), Segment::parse("1+4000 .").frame()).len()
    };
    assert_eq!(count(with(PathMtu::WhereMtusDiffer, 9000), plain()), 1);
    assert_eq!(count(with(PathMtu::WhereMtusDiffer, 1500), plain()), 0);
    assert_eq!(count(with(PathMtu::On, 1500), plain()), 1);
    assert_eq!(count(with(PathMtu::Off, 9000), plain()), 0);
}

#[test]
fn an_answer_has_the_tag_that_its_port_takes_and_is_counted_there() {
    let mut bench = Bench::new(&[
        (PortSettings { mtu: 9000, ..trunk(0, &[7]) }, ALL),
        (PortSettings { ..access(7) }, ALL),
    ]);
    let mut greeting = Segment::parse("1+0 .").frame();
    greeting.bytes[..12].rotate_left(6);
    bench.send(1, &[greeting]);
    bench.received(0);
    let answer = answers(&mut bench, Segment::parse("1+4000 . vlan=7").frame()).pop().unwrap();
    assert_eq!(answer[12..18], [0x81, 0, 0, 7, 8, 0]);
    let counters = bench.switch.counters(bench.ids[0]).unwrap();
    assert_eq!((counters.path_mtu_messages, counters.egress_frames), (1, 2));
}

#[test]
fn coalesced_segments_are_answered_and_no_port_is_flooded_with_answers() {
    let receiver = PortSettings { rsc: rsc(RscPolicy::Ndis), ..plain() };
    let mut bench = Bench::new(&[(jumbo(), ALL), (receiver, ALL)]);
    let mut greeting = Segment::parse("1+0 .").frame();
    greeting.bytes[..12].rotate_left(6);
    bench.send(1, &[greeting]);
    bench.received(0);
    let burst: Vec<_> = (0..200)
        .map(|at| Segment::parse(&format!("{}+4000 . id={at}", 1 + at * 4000)).frame())
        .collect();
    bench.send(0, &burst);
    assert_eq!(bench.received(0).len(), 64);
    bench.now = bench.now + Nanos(9_500_000);
    bench.send(0, &burst);
    assert_eq!(bench.received(0).len(), 10, "one more each millisecond");
}

proptest! {
    /// Whatever a guest sends, answers reach no other port, are about what it sent, and are
    /// shorter.
    #[test]
    fn answers_go_to_nobody_else(
        noise in prop::collection::vec(any::<u8>(), 64..4000), v6: bool, at in 12..60usize, byte: u8, tail: bool,
    ) {
        let mut bench = Bench::new(&[(jumbo(), ALL), (plain(), ALL), (jumbo(), ALL)]);
        let mut greeting = Segment::parse("1+0 .").frame();
        greeting.bytes[..12].rotate_left(6);
        bench.send(1, &[greeting]);
        bench.received(0);
        bench.received(2);
        let mut frame = Segment::parse(if v6 { "1+4000 . v6" } else { "1+4000 ." }).frame();
        frame.bytes[at] = byte;
        if tail {
            let length = noise.len().min(frame.bytes.len() - 14);
            frame.bytes[14..14 + length].copy_from_slice(&noise[..length]);
        }
        bench.send(0, std::slice::from_ref(&frame));
        prop_assert!(bench.received(1).is_empty() && bench.received(2).is_empty());
        for answer in bench.received(0) {
            prop_assert!(answer.bytes.len() < frame.bytes.len());
            prop_assert_eq!(&answer.bytes[..6], &frame.bytes[6..12]);
        }
    }
}

/// Sends segments of a flow at milliseconds, each a burst; the events.
fn watched(segments: &[(u64, &str)]) -> Vec<HealthEvent> {
    let mut bench = bench(jumbo(), jumbo());
    let start = bench.now;
    for (at_ms, line) in segments {
        bench.now = bench.now.max(start + Nanos(at_ms * 1_000_000));
        bench.send(0, &[Segment::parse(line).frame()]);
    }
    bench.switch.take_events()
}

#[test]
fn a_large_segment_sent_again_and_again_is_told_within_a_second() {
    let hole = [
        (0, "100+0 S"),
        (1, "101+200 P"),
        (2, "301+8000 ."),
        (202, "301+8000 ."),
        (602, "301+8000 ."),
    ];
    let told = watched(&hole);
    let [HealthEvent::BlackHole { from_mtu: 9000, to_mtu: 9000, from, to }] = told[..] else {
        panic!("{told:?}")
    };
    assert_ne!(from, to);
    // A train at first, with a small rest; IPv6; and told once.
    let train = [
        (0, "100+0 S v6"),
        (1, "101+24000 . v6 gso=8000"),
        (2, "24101+100 P v6"),
        (201, "101+8000 . v6"),
        (601, "101+8000 . v6"),
        (1400, "101+8000 . v6"),
        (3000, "101+8000 . v6"),
    ];
    assert_eq!(watched(&train).len(), 1);
}

/// A kernel sends the segments of a flow by several queues until it has an answer. Each worker knew
/// only those of its own.
#[test]
fn a_black_hole_is_told_whichever_queues_and_workers_the_flow_takes() {
    let options =
        SwitchOptions { workers: vec![WorkerOptions::default(); 2], ..Default::default() };
    let (switch, now) = (Switch::stepped(options), Nanos::SECOND);
    let mut bench = Bench { switch, peers: vec![], ids: vec![], now };
    bench.add_queues(jumbo(), ALL, 2);
    bench.add(jumbo(), Offloads::empty());
    let mut greeting = Segment::parse("1+0 .").frame();
    greeting.bytes[..12].rotate_left(6);
    bench.send(2, &[greeting]);
    let start = bench.now;
    let hole = [
        (0, 0, "100+0 S"),
        (1, 1, "101+200 P"),
        (2, 0, "301+8000 ."),
        (202, 1, "301+8000 ."),
        (602, 0, "301+8000 ."),
    ];
    for (at_ms, queue, line) in hole {
        bench.now = bench.now.max(start + Nanos(at_ms * 1_000_000));
        bench.send(queue, &[Segment::parse(line).frame()]);
    }
    assert_eq!(bench.switch.take_events().len(), 1);
}

/// A guest that varied where it sent filled the queue of events, and those of others went first.
#[test]
fn a_sender_that_varies_where_it_sends_is_told_once_a_second() {
    let port = |offloads| (jumbo(), offloads);
    let mut bench = Bench::new(&[port(ALL), port(Offloads::empty()), port(Offloads::empty())]);
    let frame_to = |port: usize, line: &str| {
        let mut frame = Segment::parse(line).frame();
        frame.bytes[5] ^= if port == 2 { 0x40 } else { 0 };
        frame
    };
    for port in [1, 2] {
        let mut greeting = frame_to(port, "1+0 .");
        greeting.bytes[..12].rotate_left(6);
        bench.send(port, &[greeting]);
    }
    let start = bench.now;
    let large = [2, 202, 602].map(|at_ms| (at_ms, "301+8000 ."));
    for (at_ms, line) in [(0, "100+0 S"), (1, "101+200 P")].into_iter().chain(large) {
        bench.now = bench.now.max(start + Nanos(at_ms * 1_000_000));
        bench.send(0, &[frame_to(1, line)]);
        bench.send(0, &[frame_to(2, &format!("{line} v6"))]);
    }
    assert_eq!(bench.switch.take_events().len(), 1);
}

#[test]
fn what_is_no_black_hole_is_not_told() {
    let small = [
        (0, "100+0 S"),
        (1, "101+500 ."),
        (202, "101+500 ."),
        (602, "101+500 ."),
        (1402, "101+500 ."),
    ];
    let once = [
        (0, "100+0 S"),
        (1, "101+8000 ."),
        (202, "101+8000 ."),
        (210, "8101+8000 ."),
        (260, "16101+8000 ."),
    ];
    let late = [
        (0, "100+0 S"),
        (1, "101+8000 ."),
        (50, "900101+8000 ."),
        (250, "900101+8000 ."),
        (650, "900101+8000 ."),
    ];
    let quick = [(0, "100+0 S"), (1, "101+8000 ."), (2, "101+8000 ."), (3, "101+8000 .")];
    let unknown = [(1, "101+8000 ."), (202, "101+8000 ."), (602, "101+8000 .")];
    for segments in [&small[..], &once, &late, &quick, &unknown] {
        assert_eq!(watched(segments), [], "{segments:?}");
    }
}
