//! Switching: which ports get a frame, and which may send one.

use crate::common::trace::Segment;
use crate::common::{self, ALL, Bench, access, drops, plain, trunk};
use datapath::{DropReason, HealthEvent, PortRole, PortSettings, PortState, RateLimit, StormLimit};
use ports::memory::MemoryFrame;
use ports::{Capabilities, Nanos, Offloads};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::Mac;

/// Returns a frame between two stations, given by the last byte of their addresses; 255 is
/// broadcast.
fn frame(source: u8, destination: u8, vlan: u16) -> MemoryFrame {
    let mut frame = Segment { vlan, ..Segment::parse("1+100 .") }.frame();
    let to = if destination == 255 { Mac::BROADCAST } else { mac(destination) };
    frame.bytes[..6].copy_from_slice(&to.0);
    frame.bytes[6..12].copy_from_slice(&mac(source).0);
    frame
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn bench(settings: &[PortSettings]) -> Bench {
    Bench::new(&settings.iter().map(|settings| (settings.clone(), ALL)).collect::<Vec<_>>())
}

/// Returns the number of frames that each port received.
fn counts(bench: &Bench) -> Vec<usize> {
    (0..bench.peers.len()).map(|port| bench.received(port).len()).collect()
}

#[test]
fn an_unknown_station_is_flooded_and_a_learned_one_is_not() {
    let mut bench = bench(&[plain(), plain(), plain()]);
    bench.send(0, &[frame(1, 2, 0)]);
    assert_eq!(counts(&bench), [0, 1, 1]);
    bench.send(1, &[frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0, 0]);
    bench.send(0, &[frame(1, 2, 0)]);
    assert_eq!(counts(&bench), [0, 1, 0]);
    assert_eq!(bench.switch.counters(bench.ids[2]).unwrap().flooded_frames, 1);
    bench.send(2, &[frame(3, 255, 0)]);
    assert_eq!(counts(&bench), [1, 1, 0]);
}

#[test]
fn a_station_moves_with_its_frames_and_ages() {
    let mut bench = bench(&[plain(), plain(), plain()]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.send(1, &[frame(1, 255, 0)]);
    counts(&bench);
    bench.send(2, &[frame(3, 1, 0)]);
    assert_eq!(counts(&bench), [0, 1, 0]);
    bench.now = Nanos(400 * Nanos::SECOND.0);
    bench.send(2, &[frame(3, 1, 0)]);
    assert_eq!(counts(&bench), [1, 1, 0], "forgotten after 300 s of silence");
}

#[test]
fn a_frame_to_its_own_port_is_dropped() {
    let mut bench = bench(&[plain(), plain()]);
    bench.send(0, &[frame(1, 255, 0), frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [0, 1]);
    assert_eq!(drops(&bench, 0, DropReason::SamePort), 1);
}

#[test]
fn runts_and_group_sources_are_dropped() {
    let mut bench = bench(&[plain(), plain()]);
    let mut group = frame(1, 2, 0);
    group.bytes[6] |= 1;
    bench.send(0, &[MemoryFrame { bytes: vec![0; 13], ..Default::default() }, group]);
    assert_eq!(counts(&bench), [0, 0]);
    assert_eq!(
        (drops(&bench, 0, DropReason::Runt), drops(&bench, 0, DropReason::BadSource)),
        (1, 1)
    );
}

#[test]
fn vlans_are_kept_apart_and_tags_follow_the_port() {
    let mut bench =
        bench(&[access(10), access(10), access(20), trunk(1, &[10, 20]), trunk(10, &[30])]);
    bench.send(0, &[frame(1, 255, 0)]);
    assert!(bench.received(2).is_empty());
    let (same, tagged, native) = (bench.received(1), bench.received(3), bench.received(4));
    assert_eq!(same[0].bytes, frame(1, 255, 0).bytes);
    assert_eq!(tagged[0].bytes, frame(1, 255, 10).bytes);
    assert_eq!(native[0].bytes, frame(1, 255, 0).bytes);

    bench.send(3, &[frame(9, 255, 20), frame(9, 255, 30), frame(9, 255, 0)]);
    assert_eq!(counts(&bench), [0, 0, 1, 0, 0]);
    assert_eq!(drops(&bench, 3, DropReason::VlanNotAllowed), 1);
    assert_eq!(drops(&bench, 3, DropReason::NoPort), 1, "nobody else is in VLAN 1");

    bench.send(0, &[frame(1, 255, 10)]);
    assert_eq!(drops(&bench, 0, DropReason::VlanNotAllowed), 1, "an access port takes no tags");
    bench.send(3, &[frame(9, 1, 10)]);
    assert_eq!(bench.received(0)[0].bytes, frame(9, 1, 0).bytes);
}

#[test]
fn a_second_tag_is_carried_and_never_laid_bare() {
    let mut bench = bench(&[trunk(0, &[10]), trunk(0, &[10]), access(10)]);
    let mut qinq = frame(1, 255, 10);
    qinq.bytes.splice(16..16, [0x81, 0, 0, 99]);
    bench.send(0, &[qinq.clone()]);
    assert_eq!(bench.received(1)[0].bytes, qinq.bytes);
    assert!(bench.received(2).is_empty());
    assert_eq!(drops(&bench, 2, DropReason::InnerTag), 1);
}

#[test]
fn a_retagged_train_keeps_its_offload_places_right() {
    let mut bench = Bench::new(&[
        (access(10), ALL),
        (trunk(0, &[10]), ALL),
        (trunk(0, &[10]), Offloads::empty()),
    ]);
    let train = Segment::parse("1+3000 . gso=1000");
    bench.send(0, &[train.frame()]);
    let tagged = Segment::read(&bench.received(1)[0]);
    assert_eq!(tagged.to_string(), "1+3000 . vlan=10 gso=1000");
    let cut: Vec<String> =
        bench.received(2).iter().map(|frame| Segment::read(frame).to_string()).collect();
    assert_eq!(cut, ["1+1000 . vlan=10", "1001+1000 . vlan=10 id=1", "2001+1000 . vlan=10 id=2"]);
}

#[test]
fn the_guard_lets_only_its_addresses_send() {
    let guarded = PortSettings { mac: Some(mac(1)), mac_guard: true, ..plain() };
    let mut bench = bench(&[guarded, plain()]);
    bench.send(0, &[frame(1, 255, 0), frame(2, 255, 0)]);
    assert_eq!(counts(&bench), [0, 1]);
    assert_eq!(drops(&bench, 0, DropReason::MacSpoofed), 1);
    assert!(
        bench.switch.macs().is_empty(),
        "a spoofed address is not learned, its own needs no entry"
    );
}

#[test]
fn without_a_configured_address_the_guard_holds_the_first() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[]);
    let (_, live) = bench.add_queues(guarded, ALL, 1);
    bench.add(plain(), ALL);
    bench.send(0, &[frame(1, 255, 0), frame(2, 255, 0)]);
    bench.send(0, &[frame(2, 255, 0), frame(1, 255, 0)]);
    assert_eq!(counts(&bench), [0, 2]);
    assert_eq!(drops(&bench, 0, DropReason::MacSpoofed), 2);
    assert_eq!(bench.switch.ports()[0].held_mac, Some(mac(1)));
    live.replace_guest();
    bench.send(0, &[frame(2, 255, 0)]);
    assert_eq!(counts(&bench), [0, 1], "the next guest may have another address");
}

#[test]
fn no_port_takes_over_an_address_that_belongs_to_another() {
    let owner = PortSettings { mac: Some(mac(1)), ..access(10) };
    let mut bench = bench(&[owner, access(10), trunk(0, &[10, 20]), trunk(0, &[10, 20])]);
    bench.send(1, &[frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0, 0, 0], "known without being learned");
    bench.send(1, &[frame(1, 255, 0)]);
    bench.send(2, &[frame(1, 255, 10)]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.send(2, &[frame(1, 255, 10)]);
    assert_eq!(counts(&bench), [0, 1, 1, 1]);
    assert_eq!(
        (drops(&bench, 1, DropReason::AddressTaken), drops(&bench, 2, DropReason::AddressTaken)),
        (1, 2)
    );
    bench.send(2, &[frame(1, 255, 20)]);
    assert_eq!(counts(&bench), [0, 0, 0, 1], "another VLAN's address is another's");
}

#[test]
fn a_configured_address_is_taken_back_from_the_port_that_had_learned_it() {
    let mut bench = bench(&[plain(), plain()]);
    bench.send(1, &[frame(1, 255, 0)]);
    bench.received(0);
    let owner = PortSettings { mac: Some(mac(1)), ..plain() };
    bench.switch.change_port(bench.ids[0], owner).unwrap();
    bench.step();
    assert_eq!(counts(&bench), [0, 1], "the address is announced");
    bench.send(1, &[frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0]);
}

/// Whoever opened a port in another VLAN had the switch forget a neighbour's address, and could
/// take it there next.
#[test]
fn an_address_that_is_configured_in_another_vlan_is_left_to_its_owner() {
    let held = PortSettings { mac_guard: true, ..access(10) };
    let mut bench = bench(&[held, access(10), access(20)]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.send(1, &[frame(2, 255, 0)]);
    let learned = bench.switch.macs();
    for stolen in [1, 2] {
        let thief = PortSettings { mac: Some(mac(stolen)), ..access(20) };
        bench.switch.change_port(bench.ids[2], thief).unwrap();
    }
    assert_eq!(bench.switch.ports()[0].held_mac, Some(mac(1)));
    assert_eq!(bench.switch.macs(), learned);
}

#[test]
fn an_address_that_a_guard_holds_is_not_taken_over() {
    let held = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[held.clone(), held, plain()]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.send(1, &[frame(1, 255, 0)]);
    bench.now = Nanos(400 * Nanos::SECOND.0);
    bench.send(2, &[frame(1, 255, 0)]);
    assert_eq!(counts(&bench), [0, 1, 1]);
    assert_eq!(
        (drops(&bench, 1, DropReason::AddressTaken), drops(&bench, 2, DropReason::AddressTaken)),
        (1, 1)
    );
    bench.send(1, &[frame(2, 255, 0)]);
    assert_eq!(counts(&bench), [1, 0, 1], "its guard was left to hold its own");
}

#[test]
fn a_port_that_fills_the_address_table_evicts_its_own() {
    let limited = PortSettings { mac_limit: 4, ..plain() };
    let mut bench = bench(&[limited, plain(), plain()]);
    bench.send(1, &[frame(200, 255, 0)]);
    for source in 1..=100 {
        bench.send(0, &[frame(source, 255, 0)]);
    }
    let at = |id| bench.switch.macs().iter().filter(|entry| entry.port == id).count();
    assert_eq!((at(bench.ids[0]), at(bench.ids[1])), (4, 1));
    assert_eq!(bench.switch.counters(bench.ids[0]).unwrap().evicted_addresses, 96);
    counts(&bench);
    bench.send(2, &[frame(201, 200, 0)]);
    assert_eq!(counts(&bench), [0, 1, 0], "the other port's address is still known");
}

#[test]
fn reserved_addresses_are_not_forwarded() {
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[plain(), plain(), uplink]);
    let to = |last| {
        let mut frame = frame(1, 2, 0);
        frame.bytes[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, last]);
        frame
    };
    bench.send(0, &(0..=15).map(to).collect::<Vec<_>>());
    bench.send(2, &[to(0)]);
    assert_eq!(counts(&bench), [0, 0, 0]);
    assert_eq!(drops(&bench, 0, DropReason::ReservedAddress), 16);
    assert_eq!(drops(&bench, 2, DropReason::ReservedAddress), 1);
    bench.send(0, &[to(16)]);
    assert_eq!(counts(&bench), [0, 1, 1], "the next address is a group like any other");
}

fn stormy(frames_per_second: u64, bytes_per_second: u64) -> PortSettings {
    PortSettings { storm: Some(StormLimit { frames_per_second, bytes_per_second }), ..plain() }
}

#[test]
fn storm_control_limits_what_is_flooded_and_nothing_else() {
    let mut bench = bench(&[stormy(100, 1 << 30), plain(), plain()]);
    bench.send(1, &[frame(2, 255, 0)]);
    counts(&bench);
    let mut multicast = frame(1, 9, 0);
    multicast.bytes[0] |= 1;
    bench.send(
        0,
        &[vec![frame(1, 255, 0), frame(1, 9, 0), multicast], vec![frame(1, 255, 0); 97]].concat(),
    );
    assert_eq!(counts(&bench), [0, 10, 10], "a tenth of a second's worth");
    assert_eq!(drops(&bench, 0, DropReason::Storm), 90);
    bench.send(0, &vec![frame(1, 2, 0); 100]);
    assert_eq!(counts(&bench), [0, 100, 0], "frames to a known station are no storm");
    bench.now = Nanos(2 * Nanos::SECOND.0);
    bench.send(0, &vec![frame(1, 255, 0); 20]);
    assert_eq!(counts(&bench), [0, 10, 10]);
}

#[test]
fn a_broadcast_burst_is_copied_to_each_port_no_more_than_storm_control_allows() {
    let ports = 8;
    let storm = stormy(1_000_000, 1 << 30);
    let mut bench = bench(&[vec![storm], vec![plain(); ports]].concat());
    let mut long = frame(1, 255, 0);
    long.bytes.resize(1514, 0);
    bench.send(0, &vec![long; 256]);
    let copied: usize = (1..=ports).map(|port| bench.received(port).len() * 1514).sum();
    assert_eq!(copied, 64 * 1024 / 1514 * 1514 * ports);
}

#[test]
fn an_unknown_station_that_one_port_may_be_is_no_storm() {
    let mut bench = bench(&[stormy(10, 100), plain()]);
    bench.send(0, &vec![frame(1, 9, 0); 100]);
    assert_eq!(counts(&bench), [0, 100]);
    bench.send(0, &vec![frame(1, 255, 0); 100]);
    assert_eq!(counts(&bench), [0, 1], "broadcast is limited all the same");
}

#[test]
fn workers_with_different_clocks_earn_no_time_twice() {
    let slow = RateLimit { bits_per_second: 8_000_000, burst_bytes: 10_000 };
    let mut bench = bench(&[PortSettings { rate: Some(slow), ..plain() }, plain()]);
    let len = frame(1, 2, 0).bytes.len();
    let mut passed = 0;
    bench.send(0, &vec![frame(1, 2, 0); 1000]);
    // Two clocks a millisecond apart, seen in turn: a millisecond of the rate is 1000 bytes.
    for turn in 0..100 {
        bench.now = Nanos(Nanos::SECOND.0 + 1_000_000 * (turn % 2));
        bench.step();
        passed += bench.received(1).len();
    }
    assert!(passed * len <= 10_000 + 1_100 + len, "{passed} frames");
}

#[test]
fn a_change_of_the_guard_releases_the_held_address() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[guarded, plain()]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.switch.change_port(bench.ids[0], plain()).unwrap();
    assert_eq!(bench.switch.ports()[0].held_mac, None);
    bench.send(1, &[frame(1, 255, 0)]);
    assert_eq!(drops(&bench, 1, DropReason::AddressTaken), 0);
}

#[test]
fn a_held_address_locks_no_station_of_an_uplink_out() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[guarded, uplink]);
    bench.send(0, &[frame(9, 255, 0)]);
    bench.send(1, &[frame(9, 255, 0)]);
    assert_eq!(drops(&bench, 1, DropReason::AddressTaken), 0);
}

#[test]
fn a_held_address_is_known_however_long_its_port_is_silent() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[guarded, plain(), plain()]);
    bench.send(0, &[frame(1, 255, 0)]);
    counts(&bench);
    bench.now = Nanos(400 * Nanos::SECOND.0);
    bench.send(1, &[frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0, 0], "not flooded");
    bench.switch.forget_macs(None);
    bench.send(2, &[frame(1, 255, 0)]);
    assert_eq!(drops(&bench, 2, DropReason::AddressTaken), 1);
}

#[test]
fn a_held_address_is_held_in_each_vlan_of_its_port() {
    let guarded = PortSettings { mac_guard: true, ..trunk(0, &[10, 20]) };
    let other = PortSettings { mac_guard: true, ..trunk(0, &[20, 30]) };
    let apart = PortSettings { mac_guard: true, ..access(30) };
    let mut bench = bench(&[guarded, access(20), other, apart]);
    bench.send(0, &[frame(1, 255, 10)]);
    bench.send(1, &[frame(1, 255, 0)]);
    bench.send(2, &[frame(1, 255, 30), frame(1, 255, 20)]);
    bench.send(3, &[frame(1, 255, 0)]);
    let taken = |port| drops(&bench, port, DropReason::AddressTaken);
    assert_eq!([0, 1, 2, 3].map(taken), [0, 1, 2, 0]);
    let held = bench.switch.ports().into_iter().map(|port| port.held_mac);
    assert_eq!(held.collect::<Vec<_>>(), [Some(mac(1)), None, None, Some(mac(1))]);
}

#[test]
fn a_burst_in_which_a_port_takes_its_address_back_sends_no_more_to_where_it_was() {
    let owner = PortSettings { mac: Some(mac(1)), ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[owner, uplink]);
    bench.set_state(0, PortState::Down("its guest left".to_owned()));
    bench.send(1, &[frame(1, 255, 0)]);
    counts(&bench);
    bench.set_state(0, PortState::Down("its guest left".to_owned()));
    bench.send(0, &[frame(2, 1, 0), frame(1, 255, 0), frame(2, 1, 0)]);
    assert_eq!(drops(&bench, 0, DropReason::SamePort), 1);
    assert_eq!(counts(&bench), [0, 2]);
}

#[test]
fn a_held_address_is_refused_to_the_port_that_had_it_before() {
    let guarded = PortSettings { mac_guard: true, ..trunk(10, &[10, 20]) };
    let mut bench = bench(&[trunk(10, &[10, 20]), guarded]);
    bench.send(0, &[frame(1, 255, 20)]);
    bench.send(1, &[frame(1, 255, 10)]);
    bench.send(0, &[frame(1, 255, 20), frame(1, 255, 20)]);
    assert_eq!(drops(&bench, 0, DropReason::AddressTaken), 2);
}

/// Both first frames are of one round. No port held an address at its start.
#[test]
fn two_ports_cannot_hold_one_address_in_one_round() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[guarded.clone(), guarded, plain()]);
    for peer in 0..2 {
        let frame = frame(1, 255, 0);
        assert!(bench.peers[peer].send(frame.vnet, &frame.bytes));
    }
    bench.step();
    let held = bench.switch.ports().into_iter().map(|port| port.held_mac);
    assert_eq!(held.collect::<Vec<_>>(), [Some(mac(1)), None, None]);
    assert_eq!(drops(&bench, 1, DropReason::AddressTaken), 1);
}

#[test]
fn a_ports_own_address_takes_no_entry_however_many_its_vlans() {
    let vlans: Vec<u16> = (1..=100).collect();
    let configured = PortSettings { mac: Some(mac(1)), mac_limit: 4, ..trunk(0, &vlans) };
    let held = PortSettings { mac_guard: true, mac_limit: 4, ..trunk(0, &vlans) };
    let mut bench = bench(&[configured, held, trunk(0, &vlans)]);
    let of = |source| vlans.iter().map(|vlan| frame(source, 255, *vlan)).collect::<Vec<_>>();
    bench.send(0, &of(1));
    bench.send(1, &of(2));
    assert!(bench.switch.macs().is_empty());
    let evicted = |port| bench.switch.counters(bench.ids[port]).unwrap().evicted_addresses;
    assert_eq!([evicted(0), evicted(1)], [0, 0]);
    counts(&bench);
    bench.send(2, &[frame(9, 1, 1), frame(9, 2, 1), frame(9, 1, 100), frame(9, 2, 100)]);
    assert_eq!(counts(&bench), [2, 2, 0], "known in the first VLAN and in the last");
}

#[test]
fn an_address_moves_to_an_uplink_only_while_its_port_is_down() {
    let owner = PortSettings { mac: Some(mac(1)), ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[owner, plain(), uplink]);
    let taken = |bench: &Bench| [1, 2].map(|port| drops(bench, port, DropReason::AddressTaken));
    bench.send(1, &[frame(3, 255, 0)]);
    bench.send(2, &[frame(1, 3, 0)]);
    assert_eq!(taken(&bench), [0, 1], "its port is up");
    bench.set_state(0, PortState::Down("its guest left".to_owned()));
    bench.send(2, &[frame(1, 3, 0)]);
    bench.send(1, &[frame(1, 255, 0)]);
    assert_eq!(
        taken(&bench),
        [1, 1],
        "the guest may be on another host, and is not at a vNIC here"
    );
    counts(&bench);
    bench.send(1, &[frame(3, 1, 0)]);
    assert_eq!(counts(&bench), [0, 0, 1]);
    bench.set_state(0, PortState::Up);
    bench.send(1, &[frame(3, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0, 0], "before it sends");
    bench.send(2, &[frame(1, 3, 0)]);
    assert_eq!(taken(&bench), [1, 2], "though the uplink had it until now");
    bench.send(0, &[frame(1, 3, 0)]);
    bench.send(2, &[frame(1, 3, 0)]);
    assert_eq!(taken(&bench), [1, 3]);
}

#[test]
fn a_held_address_is_where_it_sent_from_last_its_port_or_an_uplink() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[guarded, plain(), uplink]);
    let sequence = [(2, [0, 0, 1]), (0, [1, 0, 0]), (2, [0, 0, 1]), (0, [1, 0, 0])];
    for (from, arrives) in sequence {
        bench.send(from, &[frame(1, 255, 0)]);
        counts(&bench);
        bench.send(1, &[frame(3, 1, 0)]);
        assert_eq!(counts(&bench), arrives, "after {from} has sent from it");
    }
}

#[test]
fn a_configured_address_is_taken_from_the_port_that_holds_it() {
    let guarded = PortSettings { mac_guard: true, ..plain() };
    let mut bench = bench(&[guarded, plain()]);
    bench.send(0, &[frame(1, 255, 0)]);
    let owner = PortSettings { mac: Some(mac(1)), ..plain() };
    bench.switch.change_port(bench.ids[1], owner).unwrap();
    bench.send(0, &[frame(1, 255, 0)]);
    assert_eq!(drops(&bench, 0, DropReason::AddressTaken), 1);
    assert_eq!(bench.switch.ports()[0].held_mac, None);
}

#[test]
fn a_port_that_moves_into_a_vlan_does_not_bring_an_address_that_is_held_there() {
    let guarded = |vlan| PortSettings { mac_guard: true, ..access(vlan) };
    let mut bench = bench(&[guarded(20), guarded(10)]);
    bench.send(0, &[frame(1, 255, 0)]);
    bench.send(1, &[frame(1, 255, 0)]);
    bench.switch.change_port(bench.ids[0], guarded(10)).unwrap();
    bench.send(0, &[frame(1, 255, 0)]);
    assert_eq!(drops(&bench, 0, DropReason::AddressTaken), 1);
}

#[test]
fn isolated_ports_reach_uplinks_only() {
    let isolated = PortSettings { isolated: true, ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[isolated.clone(), isolated, plain(), uplink]);
    bench.send(0, &[frame(1, 255, 0)]);
    assert_eq!(counts(&bench), [0, 0, 0, 1]);
    bench.send(3, &[frame(9, 255, 0)]);
    assert_eq!(counts(&bench), [1, 1, 1, 0]);
    bench.send(2, &[frame(3, 1, 0)]);
    assert_eq!(counts(&bench), [0, 0, 0, 0]);
    assert_eq!(drops(&bench, 2, DropReason::Isolated), 1);
}

/// Two uplinks on one bridge turned one broadcast into a storm.
#[test]
fn uplinks_exchange_frames_only_if_both_allow_transit() {
    let uplink = |transit| PortSettings { role: PortRole::Uplink, transit, ..plain() };
    let mut bench = bench(&[uplink(false), uplink(true), uplink(true), plain()]);
    for (from, reached) in [(0, [0, 0, 0, 1]), (1, [0, 0, 1, 1]), (3, [1, 1, 1, 0])] {
        bench.send(from, &[frame(10 + from as u8, 255, 0)]);
        assert_eq!(counts(&bench), reached, "from port {from}");
    }
    bench.send(0, &[frame(10, 11, 0)]);
    assert_eq!(counts(&bench), [0; 4]);
    assert_eq!(drops(&bench, 0, DropReason::UplinkToUplink), 1);
    let mut alone = self::bench(&[uplink(false), uplink(true)]);
    alone.send(0, &[frame(10, 255, 0)]);
    assert_eq!(drops(&alone, 0, DropReason::UplinkToUplink), 1);
}

#[test]
fn frames_that_return_with_the_address_of_a_vnic_are_counted() {
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let owner = PortSettings { mac: Some(Mac([2, 0, 0, 0, 0, 1])), ..plain() };
    let mut bench = bench(&[owner, plain(), uplink]);
    bench.send(1, &[frame(2, 255, 0)]);
    bench.send(2, &[frame(1, 255, 0), frame(2, 255, 0), frame(9, 255, 0)]);
    assert_eq!(bench.switch.counters(bench.ids[2]).unwrap().returned_frames, 2);
    assert_eq!(drops(&bench, 2, DropReason::AddressTaken), 1);
}

/// A guest's broadcast comes back by the second of two uplinks to one network. The finding
/// `own_frames_return` says what happens then: with `mac` nothing, without it the guest misses
/// frames until it sends again.
#[test]
fn a_copy_that_returns_by_a_second_uplink_is_refused_only_if_the_port_has_a_mac() {
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    for mac in [Some(Mac([2, 0, 0, 0, 0, 1])), None] {
        let guest = PortSettings { mac, mac_guard: true, ..plain() };
        let mut bench = bench(&[guest, uplink.clone(), uplink.clone()]);
        bench.send(0, &[frame(1, 255, 0)]);
        assert_eq!(counts(&bench), [0, 1, 1]);
        bench.send(2, &[frame(1, 255, 0)]);
        bench.send(1, &[frame(1, 255, 0)]);
        let returned =
            |port: usize| bench.switch.counters(bench.ids[port]).unwrap().returned_frames;
        assert!(returned(1) > 0 && returned(2) > 0, "{mac:?}");
        let refused = drops(&bench, 2, DropReason::AddressTaken);
        assert_eq!(refused, u64::from(mac.is_some()));
        bench.received(0);
        bench.send(1, &[frame(9, 1, 0)]);
        assert_eq!(bench.received(0).len(), usize::from(mac.is_some()), "an answer");
        bench.send(0, &[frame(1, 9, 0)]);
        bench.send(1, &[frame(9, 1, 0)]);
        assert_eq!(bench.received(0).len(), 1, "after it has sent again");
    }
}

#[test]
fn frames_above_the_rate_wait_at_the_port_and_none_is_lost() {
    let slow = PortSettings {
        rate: Some(RateLimit { bits_per_second: 8_000, burst_bytes: 500 }),
        ..plain()
    };
    let mut bench = bench(&[slow, plain(), plain()]);
    let each = frame(1, 2, 0).bytes.len();
    bench.send(0, &vec![frame(1, 2, 0); 20]);
    let mut passed = bench.received(1).len();
    assert_eq!(passed, 500usize.div_ceil(each), "the bucket, and a part of the last frame");
    bench.send(2, &[frame(3, 2, 0)]);
    assert_eq!(bench.received(1).len(), 1, "another port's frames wait for no debt");
    let start = bench.now;
    while passed < 20 {
        bench.now = bench.now + Nanos(10_000_000);
        bench.step();
        passed += bench.received(1).len();
        let elapsed = (bench.now.since(start).0 / 1_000_000) as usize;
        assert!(passed * each <= 500 + each + elapsed, "{passed} frames in {elapsed} ms");
        assert!(elapsed < 20 * each, "{passed} frames in {elapsed} ms");
    }
    assert_eq!(bench.switch.counters(bench.ids[0]).unwrap().drops.iter().sum::<u64>(), 0);
}

/// A rate that was lifted must not leave the port waiting for a debt of minutes.
#[test]
fn a_port_whose_rate_is_lifted_goes_on_soon() {
    let slow = RateLimit { bits_per_second: 8, burst_bytes: 1 };
    let mut bench = bench(&[PortSettings { rate: Some(slow), ..plain() }, plain()]);
    bench.send(0, &vec![frame(1, 2, 0); 2]);
    bench.step();
    assert_eq!(counts(&bench), [0, 1]);
    bench.switch.change_port(bench.ids[0], plain()).unwrap();
    bench.now = bench.now + Nanos(100_000_000);
    bench.step();
    assert_eq!(counts(&bench), [0, 1]);
}

/// A port in debt counted as waiting for its share of an uplink, and held the others' frames.
#[test]
fn a_port_in_debt_holds_no_share_of_an_uplink() {
    let slow = RateLimit { bits_per_second: 8_000_000, burst_bytes: 6_000 };
    let vnic = |rate| PortSettings { rate, weight: Some(1), ..plain() };
    let uplink = PortSettings { role: PortRole::Uplink, ..plain() };
    let mut bench = bench(&[vnic(Some(slow)), vnic(None), uplink]);
    let long = |source| {
        let mut frame = frame(source, 9, 0);
        frame.bytes.resize(1514, 0);
        frame
    };
    bench.send(2, &[frame(9, 255, 0)]);
    // Less than half of the uplink's room is left, so that weights apply.
    for _ in 0..30 {
        bench.send(1, &vec![long(2); 40]);
    }
    let taken =
        |bench: &Bench, port| bench.switch.counters(bench.ids[port]).unwrap().ingress_frames;
    assert_eq!(taken(&bench, 1), 1200);
    // It is the first to send, and then in debt.
    bench.send(0, &vec![long(1); 2]);
    bench.send(0, &vec![long(1); 20]);
    assert_eq!(taken(&bench, 0), 4);
    bench.send(1, &vec![long(2); 40]);
    (0..60).for_each(|_| bench.step());
    assert_eq!(taken(&bench, 0), 4);
    assert_eq!(taken(&bench, 1), 1240);
}

/// A frame of 1514 bytes with a number.
fn numbered(source: u8, destination: u8, number: u16) -> MemoryFrame {
    let mut frame = frame(source, destination, 0);
    frame.bytes.resize(1514, 0);
    frame.bytes[1512..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn numbers(frames: &[MemoryFrame]) -> Vec<u16> {
    let number = |frame: &MemoryFrame| u16::from_be_bytes(*frame.bytes.last_chunk().unwrap());
    frames.iter().map(number).collect()
}

/// Lets so many milliseconds pass. Returns what came out of a port.
fn after(bench: &mut Bench, milliseconds: u64, port: usize) -> Vec<MemoryFrame> {
    for _ in 0..milliseconds {
        bench.now = bench.now + Nanos(1_000_000);
        bench.step();
    }
    bench.received(port)
}

const SLOW: u64 = 8_000_000;

fn limited() -> PortSettings {
    PortSettings { rate_to: Some(SLOW), ..plain() }
}

#[test]
fn what_a_port_receives_above_its_rate_waits_and_what_has_no_room_is_dropped() {
    let mut bench = bench(&[plain(), limited(), plain()]);
    bench.send(1, &[frame(2, 255, 0)]);
    bench.send(2, &[frame(3, 255, 0)]);
    counts(&bench);
    bench.send(0, &(0..100).map(|number| numbered(1, 2, number)).collect::<Vec<_>>());
    // 16 ms at the rate pass, and 96 KiB wait.
    let mut all = bench.received(1);
    assert_eq!(all.len(), 10);
    let dropped = drops(&bench, 1, DropReason::RateLimited);
    assert_eq!(dropped, 100 - 10 - 96 * 1024 / 1514);
    bench.send(0, &vec![frame(1, 3, 0); 200]);
    assert_eq!(bench.received(2).len(), 200, "what others receive waits for nothing");
    bench.send(1, &vec![frame(2, 3, 0); 200]);
    // Its flooded frame was dear, so its next burst is short.
    bench.step();
    assert_eq!(bench.received(2).len(), 200, "nor does what the port sends");
    let soon = after(&mut bench, 20, 1);
    assert!((12..=15).contains(&soon.len()), "{} frames in 20 ms", soon.len());
    all.extend(soon);
    all.extend(after(&mut bench, 100, 1));
    assert_eq!(numbers(&all), (0..100 - dropped as u16).collect::<Vec<_>>());
    let counted = bench.switch.counters(bench.ids[1]).unwrap();
    assert_eq!(counted.egress_frames, 1 + all.len() as u64, "and the flooded frame");
}

/// A flow's next frames came first when tokens were back and some of its frames still waited.
#[test]
fn no_frame_overtakes_those_that_wait() {
    let mut bench = bench(&[plain(), limited()]);
    bench.send(1, &[frame(2, 255, 0)]);
    counts(&bench);
    let (mut all, mut sent) = (Vec::new(), 0..);
    for _ in 0..60 {
        bench.send(0, &sent.by_ref().take(20).map(|it| numbered(1, 2, it)).collect::<Vec<_>>());
        all.extend(after(&mut bench, 5, 1));
    }
    all.extend(after(&mut bench, 200, 1));
    let numbers = numbers(&all);
    assert!(numbers.is_sorted() && numbers.len() > 200, "{numbers:?}");
    let dropped = drops(&bench, 1, DropReason::RateLimited);
    assert_eq!(numbers.len() as u64 + dropped, 60 * 20);
}

#[test]
fn trains_wait_as_the_port_takes_them_each_for_its_queue() {
    for offloads in [ALL, Offloads::empty()] {
        let mut bench = Bench::new(&[(plain(), ALL)]);
        bench.add_queues(limited(), offloads, 3);
        let train = Segment::parse("1+43440 .P gso=1448").frame();
        bench.send(0, &[train.clone(), train.clone()]);
        let (mut bytes, mut queues) = (0, Vec::new());
        for peer in (0..200).flat_map(|_| 1..=3) {
            let seen = after(&mut bench, 1, peer);
            queues.extend(seen.first().map(|_| peer));
            for frame in seen {
                assert_eq!(frame.vnet.gso_size.get() > 0, offloads == ALL);
                let at = u32::from_be_bytes(frame.bytes[38..42].try_into().unwrap()) as usize - 1;
                let payload = &frame.bytes[54..];
                assert_eq!(payload, &train.bytes[54 + at..54 + at + payload.len()], "at {at}");
                bytes += payload.len();
            }
        }
        assert_eq!(bytes, 2 * 43_440);
        queues.dedup();
        assert_eq!(queues.len(), 1, "{queues:?}");
    }
}

/// Frames that were made for a guest that took trains reached one that does not.
#[test]
fn frames_that_waited_for_offloads_that_are_gone_are_dropped() {
    let mut bench = Bench::new(&[(plain(), ALL)]);
    let (_, live) = bench.add_queues(limited(), ALL, 1);
    let train = Segment::parse("1+43440 .P gso=1448").frame();
    bench.send(0, &[train.clone(), train, numbered(1, 2, 7)]);
    assert_eq!(bench.received(1).len(), 1);
    live.set_offloads(Offloads::empty());
    let seen = after(&mut bench, 100, 1);
    assert_eq!(numbers(&seen), [7]);
    assert_eq!(drops(&bench, 1, DropReason::EgressRefused), 1);
}

/// They were put into a queue that the guest had turned off, which took the port down, or came to
/// the guest that was there next.
#[test]
fn frames_that_waited_find_the_queues_and_the_guest_of_now() {
    let waits = |change: fn(&Capabilities)| {
        let mut bench = Bench::new(&[(plain(), ALL)]);
        let (_, live) = bench.add_queues(limited(), ALL, 3);
        let flow = |port: u16| {
            let mut frame = Segment::parse("1+1400 .").frame();
            frame.bytes[34..36].copy_from_slice(&port.to_be_bytes());
            frame
        };
        bench.send(0, &(0..60).map(flow).collect::<Vec<_>>());
        (1..=3).for_each(|peer| _ = bench.received(peer));
        change(&live);
        let first = after(&mut bench, 100, 1).len();
        let others = [2, 3].map(|peer| bench.received(peer).len());
        (first, others, drops(&bench, 1, DropReason::RateLimited))
    };
    let (first, others, dropped) = waits(|live| live.set_queues(1));
    assert!(first > 40 && others == [0, 0] && dropped == 0, "{first} {others:?} {dropped}");
    let (first, others, dropped) = waits(Capabilities::replace_guest);
    assert!(first == 0 && others == [0, 0] && dropped > 40, "{first} {others:?} {dropped}");
}

#[test]
fn what_waits_outlives_a_change_of_the_rate_and_no_other_change() {
    let waits = |settings: PortSettings| {
        let mut bench = bench(&[plain(), limited()]);
        bench.send(0, &(0..60).map(|number| numbered(1, 2, number)).collect::<Vec<_>>());
        assert_eq!(bench.received(1).len(), 10);
        bench.switch.change_port(bench.ids[1], settings).unwrap();
        let soon = after(&mut bench, 2, 1).len();
        let later = after(&mut bench, 100, 1).len();
        (soon, later, drops(&bench, 1, DropReason::RateLimited))
    };
    assert_eq!(waits(plain()), (50, 0, 0), "without a rate all leave at once");
    assert_eq!(waits(PortSettings { rate_to: Some(100 * SLOW), ..plain() }), (50, 0, 0));
    let (soon, later, dropped) = waits(limited());
    assert!(soon < 5 && later == 50 - soon && dropped == 0, "{soon}, {later}, {dropped}");
    assert_eq!(waits(PortSettings { isolated: true, ..limited() }), (0, 0, 50));
}

#[test]
fn a_mirror_gets_a_copy_of_both_directions() {
    let mut bench = bench(&[plain(), plain(), plain()]);
    let mirrored = PortSettings { mirror_to: Some(bench.ids[2]), ..plain() };
    bench.switch.change_port(bench.ids[0], mirrored).unwrap();
    bench.send(1, &[frame(2, 255, 0)]);
    bench.send(0, &[frame(1, 255, 0)]);
    counts(&bench);
    bench.send(0, &[frame(1, 2, 0)]);
    assert_eq!(counts(&bench), [0, 1, 1]);
    bench.send(1, &[frame(2, 1, 0)]);
    assert_eq!(counts(&bench), [1, 0, 1]);
    assert!(bench.switch.counters(bench.ids[2]).unwrap().mirrored_frames >= 2);
}

#[test]
fn what_is_too_big_is_dropped_and_told_with_both_mtus() {
    let jumbo = PortSettings { mtu: 9000, ..plain() };
    let mut bench = bench(&[jumbo, plain()]);
    let fits = Segment::parse("1+1460 .").frame();
    let too_big = Segment::parse("1+1461 .").frame();
    let train = Segment::parse("1+8000 . gso=4000").frame();
    bench.send(0, &[fits, too_big, train]);
    assert_eq!(counts(&bench), [0, 1]);
    assert_eq!(drops(&bench, 1, DropReason::TooBig), 2);
    let (from, to) = (bench.ids[0], bench.ids[1]);
    assert_eq!(
        bench.switch.take_events(),
        [HealthEvent::TooBig { from, from_mtu: 9000, to, to_mtu: 1500 }]
    );
}

#[test]
fn a_flood_of_what_is_too_big_is_told_once_a_second_for_each_port() {
    let jumbo = PortSettings { mtu: 9000, ..plain() };
    let mut bench = bench(&[jumbo, plain(), plain()]);
    let mut told = Vec::new();
    for _ in 0..4 {
        bench.send(0, &vec![Segment::parse("1+1461 .").frame(); 10]);
        told.push(bench.switch.take_events().len());
    }
    bench.now = bench.now + Nanos::SECOND;
    bench.send(0, &[Segment::parse("1+1461 .").frame()]);
    told.push(bench.switch.take_events().len());
    assert_eq!(told, [2, 0, 0, 0, 2]);
}

#[test]
fn a_full_port_drops_by_name_and_others_go_on() {
    let mut bench = bench(&[plain(), plain(), plain()]);
    for _ in 0..10 {
        bench.send(0, &(0..256).map(|_| frame(1, 255, 0)).collect::<Vec<_>>());
        while bench.peers[2].receive().is_some() {}
    }
    assert_eq!(drops(&bench, 1, DropReason::EgressFull), 10 * 256 - common::DEPTH as u64);
    assert_eq!(drops(&bench, 2, DropReason::EgressFull), 0);
}

#[test]
fn ports_come_and_go_without_a_frame_lost_on_the_others() {
    let mut bench = bench(&[plain(), plain()]);
    bench.send(1, &[frame(2, 255, 0)]);
    counts(&bench);
    for round in 0..100u8 {
        let id = bench.add(plain(), ALL);
        bench.send(0, &[frame(1, 2, 0), frame(1, 200, 0)]);
        bench.switch.remove_port(id).unwrap();
        bench.peers.pop();
        assert_eq!(bench.ids.pop(), Some(id));
        assert_eq!(bench.received(1).len(), 2, "round {round}");
    }
    assert!(bench.switch.remove_port(datapath::PortId(2)).is_err());
}

#[test]
fn hostile_offload_requests_are_dropped() {
    let train = Segment::parse("1+3000 . gso=1000").frame();
    let spoil: [fn(&mut wire::vnet::VnetHeader); 7] = [
        |vnet| vnet.csum_start.set(60_000),
        |vnet| vnet.csum_offset.set(65_535),
        |vnet| vnet.gso_size.set(0),
        |vnet| vnet.set_gso(wire::vnet::GsoType::Tcp6, false),
        |vnet| vnet.set_gso(wire::vnet::GsoType::UdpL4, false),
        |vnet| vnet.set_gso(wire::vnet::GsoType::Unknown(3), false),
        |vnet| vnet.set_flags(wire::vnet::Flags::empty()),
    ];
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), Offloads::empty())]);
    for (number, spoil) in spoil.iter().enumerate() {
        let mut frame = train.clone();
        spoil(&mut frame.vnet);
        bench.send(0, &[frame]);
        assert_eq!(counts(&bench), [0, 0], "spoiled by {number}");
    }
    assert_eq!(drops(&bench, 0, DropReason::BadOffload), 7);
    let mut tiny = train;
    tiny.vnet.gso_size.set(1);
    bench.send(0, &[tiny]);
    assert_eq!(drops(&bench, 0, DropReason::BadOffload), 8, "3000 segments of one byte");
}

#[test]
fn a_state_of_the_control_plane_shows_and_is_told_once() {
    let mut bench = bench(&[plain()]);
    let down = PortState::Down("no carrier".into());
    bench.set_state(0, down.clone());
    bench.set_state(0, down.clone());
    assert_eq!(bench.switch.ports()[0].state, down);
    assert_eq!(
        bench.switch.take_events(),
        [HealthEvent::PortState { port: bench.ids[0], state: down }]
    );
}

proptest! {
    #[test]
    fn any_bytes_are_switched_or_counted(frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<[u8; 12]>()), 1..50)) {
        let mut bench = Bench::new(&[(plain(), ALL), (PortSettings { rsc: common::rsc(datapath::RscPolicy::Ndis), ..plain() }, ALL), (plain(), Offloads::empty())]);
        let count = frames.len() as u64;
        let frames: Vec<MemoryFrame> = frames.into_iter().map(|(bytes, vnet)| {
            MemoryFrame { vnet: zerocopy::transmute!(vnet), bytes }
        }).collect();
        bench.send(0, &frames);
        let from = bench.switch.counters(bench.ids[0]).unwrap();
        prop_assert_eq!(from.ingress_frames, count);
        for port in [1, 2] {
            let to = bench.switch.counters(bench.ids[port]).unwrap();
            let out = to.egress_frames + to.coalesced_packets - (to.segments - to.segmented_trains) + to.dropped();
            prop_assert_eq!(from.dropped() + out, count, "every frame is somewhere");
        }
    }
}

/// Ports of every kind that decides by addresses, but for one that is to hold an address: it is
/// known as the port's own from the next round on.
fn any_port() -> impl Strategy<Value = PortSettings> {
    select(vec![
        plain(),
        PortSettings { role: PortRole::Uplink, ..plain() },
        PortSettings { mac: Some(mac(1)), ..plain() },
        PortSettings { mac: Some(mac(2)), mac_guard: true, ..plain() },
        PortSettings { isolated: true, ..plain() },
        PortSettings { mac_limit: 2, ..plain() },
        access(10),
        PortSettings { mac_limit: 1, ..access(10) },
        trunk(10, &[10, 20]),
        trunk(0, &[0, 20]),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What a burst remembers of its last frame and its last source changes nothing.
    #[test]
    fn a_burst_is_decided_as_its_frames_are_one_by_one(
        ports in vec(any_port(), 3..5),
        bursts in vec((0..3usize, vec((0..5u8, 0..6u8, select(vec![0, 0, 0, 10, 20u16])), 1..12)), 1..8),
    ) {
        let (mut whole, mut single) = (bench(&ports), bench(&ports));
        for (from, frames) in bursts {
            let station = |number| if number == 5 { 255 } else { number };
            let frames: Vec<_> =
                frames.iter().map(|(source, to, vlan)| frame(*source, station(*to), *vlan)).collect();
            whole.send(from, &frames);
            frames.iter().for_each(|frame| single.send(from, std::slice::from_ref(frame)));
            for port in 0..ports.len() {
                let bytes = |bench: &Bench| -> Vec<_> {
                    bench.received(port).into_iter().map(|frame| frame.bytes).collect()
                };
                prop_assert_eq!(bytes(&whole), bytes(&single), "out of port {}", port);
                let drops = |bench: &Bench| bench.switch.counters(bench.ids[port]).unwrap().drops;
                prop_assert_eq!(drops(&whole), drops(&single), "dropped from port {}", port);
            }
        }
    }
}
