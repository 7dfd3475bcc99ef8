//! Shares: what dear frames cost their sender, and that no turn grows with them.

use crate::common::trace::Segment;
use crate::common::{self, ALL, Bench, access, drops, plain, trunk};
use datapath::{DropReason, Guards, PortRole, PortSettings, PortState};
use ports::capture::{Capture, CaptureOptions};
use ports::memory::{self, MemoryFrame, Peer};
use ports::{Nanos, Offloads};
use std::sync::Arc;

/// Returns a frame of about 1500 bytes from one station to another, given by the last byte of their
/// addresses; 255 is broadcast.
fn frame(source: u8, destination: u8) -> MemoryFrame {
    let mut frame = Segment::parse("1+1400 .").frame();
    let to = if destination == 255 { [255; 6] } else { [2, 0, 0, 0, 0, destination] };
    frame.bytes[..6].copy_from_slice(&to);
    frame.bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    frame
}

fn fill(bench: &Bench, port: usize, frame: &MemoryFrame) {
    while bench.peers[port].send(frame.vnet, &frame.bytes) {}
}

fn empty(bench: &Bench) {
    for peer in &bench.peers {
        while let Some(frame) = peer.receive() {
            peer.recycle(frame);
        }
    }
}

/// Returns the number of frames taken from each of the first two ports in many rounds, both with
/// more to send than is taken.
fn taken(bench: &mut Bench, frames: [MemoryFrame; 2]) -> [u64; 2] {
    taken_of(bench, &frames[..1], &frames[1])
}

/// [`taken`], the first port sending these frames over and over.
fn taken_of(bench: &mut Bench, several: &[MemoryFrame], one: &MemoryFrame) -> [u64; 2] {
    let mut next = several.iter().cycle().peekable();
    for _ in 0..400 {
        while next.peek().is_some_and(|frame| bench.peers[0].send(frame.vnet, &frame.bytes)) {
            next.next();
        }
        fill(bench, 1, one);
        bench.step();
        empty(bench);
    }
    [0, 1].map(|port| bench.switch.counters(bench.ids[port]).unwrap().ingress_frames)
}

#[test]
fn two_senders_of_the_same_frames_get_the_same() {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL), (plain(), ALL)]);
    bench.send(2, &[frame(3, 255)]);
    let [one, other] = taken(&mut bench, [frame(1, 3), frame(2, 3)]);
    assert!(one.abs_diff(other) <= one / 20, "{one} and {other}");
}

#[test]
fn a_sender_of_broadcasts_pays_for_each_copy() {
    let mut bench = Bench::new(&vec![(plain(), ALL); 32]);
    bench.send(2, &[frame(3, 255)]);
    let [broadcasts, addressed] = taken(&mut bench, [frame(1, 255), frame(2, 3)]);
    assert!(addressed > 20 * broadcasts, "{addressed} beside {broadcasts} broadcasts to 31 ports");
}

#[test]
fn a_sender_of_trains_pays_for_their_segments() {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL), (plain(), Offloads::empty())]);
    bench.send(2, &[frame(3, 255)]);
    let mut train = Segment { payload: 60_000, ..Segment::parse(". gso=48") }.frame();
    train.bytes[..6].copy_from_slice(&frame(1, 3).bytes[..6]);
    let [trains, plain] = taken(&mut bench, [train, frame(2, 3)]);
    let bytes = trains * 60_000;
    assert!(plain * 1454 > 8 * bytes, "{plain} frames beside {trains} trains of 1250 segments");
}

#[test]
fn a_sender_to_a_captured_port_pays_for_the_copies() {
    let mut bench = Bench::new(&vec![(plain(), ALL); 4]);
    bench.send(2, &[frame(3, 255)]);
    bench.send(3, &[frame(4, 255)]);
    let options = CaptureOptions::new("p2", std::time::SystemTime::UNIX_EPOCH);
    let capture = Arc::new(Capture::start(std::io::sink(), options).unwrap());
    bench.switch.set_capture(bench.ids[2], Some(capture)).unwrap();
    let [captured, plain] = taken(&mut bench, [frame(1, 3), frame(2, 4)]);
    assert!(5 * plain > 6 * captured, "{plain} beside {captured} that are captured");
}

#[test]
fn a_turn_ends_at_its_work_limit() {
    let mut bench = Bench::new(&vec![(plain(), ALL); 200]);
    let burst: Vec<_> = (0..256).map(|_| frame(1, 255)).collect();
    bench.send(0, &burst);
    let copies: usize = (1..200).map(|port| bench.received(port).len()).sum();
    let dropped = |bench: &Bench| {
        bench.switch.counters(bench.ids[0]).unwrap().drops[DropReason::WorkLimit as usize]
    };
    let flooded = 256 - dropped(&bench);
    assert_eq!(copies as u64, flooded * 199, "a frame goes to all ports or to none");
    assert!((30..60).contains(&flooded), "{flooded} of 256 frames to 199 ports");
    // From the next burst on it takes no more than it may pass on.
    let before = dropped(&bench);
    for _ in 0..50 {
        bench.send(0, &burst[..5]);
    }
    assert_eq!(dropped(&bench), before);
}

/// Returns the number of frames taken from a port of one queue, and from one of 8 queues of which
/// some are busy.
fn taken_beside_a_port_of_8_queues(busy: usize) -> [u64; 2] {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
    let open = || memory::open(common::DEPTH, ALL, 1500).unwrap();
    let (mut device, peer) = open();
    let (queues, more): (Vec<_>, Vec<_>) = (1..8).map(|_| open()).unzip();
    device.ingress.extend(queues.into_iter().flat_map(|queue| queue.ingress));
    let many = bench.switch.add_port("many", device, plain()).unwrap();
    let peers: Vec<Peer> = [peer].into_iter().chain(more).collect();
    bench.send(1, &[frame(3, 255)]);
    for _ in 0..250 {
        fill(&bench, 0, &frame(1, 3));
        for peer in &peers[..busy] {
            while peer.send(frame(2, 3).vnet, &frame(2, 3).bytes) {}
        }
        bench.step();
        empty(&bench);
    }
    [bench.ids[0], many].map(|port| bench.switch.counters(port).unwrap().ingress_frames)
}

#[test]
fn a_port_gets_its_share_with_one_busy_queue_of_8_and_no_more_with_all() {
    for busy in [1, 3, 8] {
        let [one, many] = taken_beside_a_port_of_8_queues(busy);
        assert!(one.abs_diff(many) <= one / 20, "{one}, and {many} by {busy} of 8 queues");
    }
}

/// Returns a frame with other bytes at a place.
fn altered(mut frame: MemoryFrame, at: usize, bytes: [u8; 2]) -> MemoryFrame {
    frame.bytes[at..at + 2].copy_from_slice(&bytes);
    frame
}

#[test]
fn a_sender_pays_for_the_addresses_it_has_learned() {
    let limited = PortSettings { mac_limit: 64, ..plain() };
    let mut bench = Bench::new(&[(limited, ALL), (plain(), ALL), (plain(), ALL)]);
    bench.send(2, &[frame(3, 255)]);
    let many: Vec<_> =
        (0..5000u16).map(|source| altered(frame(1, 3), 8, source.to_be_bytes())).collect();
    let [learned, known] = taken_of(&mut bench, &many, &frame(2, 3));
    assert!(known * 2 > learned * 3, "{known} beside {learned} from as many addresses");
}

#[test]
fn a_sender_pays_for_what_its_guards_and_rules_are_asked() {
    let guards = Guards { dhcp: true, ..Guards::default() };
    let guarded = PortSettings { guards, ..plain() };
    let mut bench = Bench::new(&[(guarded, ALL), (plain(), ALL), (plain(), ALL)]);
    bench.send(2, &[frame(3, 255)]);
    let many: Vec<_> =
        (0..5000u16).map(|port| altered(frame(1, 3), 34, port.to_be_bytes())).collect();
    let [asked, unasked] = taken_of(&mut bench, &many, &frame(2, 3));
    assert!(unasked * 4 > asked * 5, "{unasked} beside {asked} of as many flows");
}

#[test]
fn a_sender_pays_for_checksums_that_coalescing_looks_at() {
    let rsc = common::rsc(datapath::RscPolicy::Ndis);
    let mut bench =
        Bench::new(&[(plain(), ALL), (plain(), ALL), (PortSettings { rsc, ..plain() }, ALL)]);
    bench.send(2, &[frame(3, 255)]);
    let mut valid = frame(2, 3);
    valid.vnet.set_flags(wire::vnet::Flags::DATA_VALID);
    let [summed, said] = taken(&mut bench, [frame(1, 3), valid]);
    assert!(said * 5 > summed * 6, "{said} beside {summed} whose checksum is looked at");
}

#[test]
fn a_flood_pays_for_ports_that_get_it() {
    let mut bench = Bench::new(&vec![(plain(), ALL); 200]);
    for port in 2..200 {
        bench.set_state(port, PortState::Broken("its device has gone".to_owned()));
    }
    bench.send(0, &(0..256).map(|_| frame(1, 255)).collect::<Vec<_>>());
    assert_eq!(bench.received(1).len(), 256);
}

#[test]
fn the_flood_of_one_vlan_leaves_room_for_that_of_another() {
    let uplink = PortSettings { role: PortRole::Uplink, ..trunk(0, &[10, 20]) };
    let ports = [vec![(uplink, ALL)], vec![(access(10), ALL); 200], vec![(access(20), ALL); 4]];
    let mut bench = Bench::new(&ports.concat());
    let tagged = |vlan| {
        let mut frame = frame(1, 255);
        frame.bytes.splice(12..12, [0x81, 0, 0, vlan]);
        frame
    };
    bench.send(0, &[vec![tagged(10); 200], vec![tagged(20); 50]].concat());
    assert!(bench.received(1).len() < 200, "the first VLAN has reached its limit");
    assert_eq!(bench.received(201).len(), 50);
}

/// A thousand guests that started together, each with a few frames of neighbour discovery, held
/// their worker for seconds.
#[test]
fn floods_of_many_ports_together_take_a_part_of_the_worker() {
    const PORTS: usize = 300;
    let mut bench = Bench::new(&vec![(plain(), ALL); PORTS]);
    let flooded = |bench: &Bench| -> u64 {
        let of = |port| bench.switch.counters(bench.ids[port]).unwrap();
        (0..PORTS).map(|port| of(port).ingress_frames).sum::<u64>()
            - (0..PORTS).map(|port| drops(bench, port, DropReason::WorkLimit)).sum::<u64>()
    };
    for port in 0..PORTS {
        let source = u8::try_from(port % 250).unwrap();
        for _ in 0..4 {
            assert!(bench.peers[port].send(frame(source, 255).vnet, &frame(source, 255).bytes));
        }
    }
    (0..200).for_each(|_| bench.step());
    let at_once = flooded(&bench);
    // 25 ms by 120 ns a copy.
    assert!((600..800).contains(&at_once), "{at_once} of {} frames", 4 * PORTS);
    bench.now = bench.now + Nanos::SECOND;
    bench.send(7, &[frame(7, 255)]);
    assert_eq!(flooded(&bench), at_once + 1, "a later one passes");
}
