//! Which queue of a port a frame goes to: by hash and table, as a plain second implementation says,
//! and by where the guest last sent the flow from.

use crate::common::packet::{
    GUEST, PEER, Packet, Scene, TCP, UDP, VLAN, memory_frame, packet, toeplitz,
};
use crate::common::{ALL, plain, trunk};
use datapath::{
    AclAction, AclEnd, AclProtocol, AclRule, PortId, PortSettings, Rss, Steer, Switch, SwitchError,
    SwitchOptions,
};
use ports::Nanos;
use ports::capture::Direction;
use ports::vhost::{self, Features, GuestHash, GuestSettings, GuestTable, Session, VhostOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use tempfile::TempDir;
use test_guest::Guest;
use wire::Mac;
use wire::toeplitz::{HashTypes, Key};

/// Returns a flow that the guest opens.
fn flow(number: u16, transport: u8, v6: bool) -> Packet {
    let [high, low] = number.to_be_bytes();
    let (mut source, mut destination) = ([0xfd; 16], [0xfd; 16]);
    source[..4].copy_from_slice(&[10, 0, high, 1]);
    destination[..4].copy_from_slice(&[10, 0, 0, 2]);
    let ports = [0x80, low, 0, 80];
    let chain = Vec::new();
    Packet { tags: 0, v6, source, destination, chain, fragment: false, transport, ports }
}

impl Scene {
    /// Returns a guest of four queue pairs with flow following. By the table all flows would go to
    /// queue 0.
    fn following() -> Scene {
        Scene::following_with(trunk(0, &[VLAN]))
    }

    fn following_with(settings: PortSettings) -> Scene {
        let rss = Rss { steer: Steer::Follow, ..Rss::default() };
        let mut scene = Scene::new(4, PortSettings { rss, ..settings });
        let all: Vec<_> = (0..128).map(|entry| (entry, 0)).collect();
        scene.bench.switch.set_rss_entries(scene.guest, &all).unwrap();
        scene
    }

    /// The guest sends a packet from a queue.
    fn sends(&mut self, packet: &Packet, queue: usize) {
        self.bench.send(1 + queue, &[memory_frame(packet.frame(GUEST, PEER))]);
        self.bench.received(0).clear();
    }

    fn pass(&mut self, time: Nanos) {
        self.bench.now = self.bench.now + time;
    }
}

/// More than a tick.
const TICK: Nanos = Nanos(5_000_000);

proptest! {
    #[test]
    fn the_queue_is_the_one_that_a_plain_second_implementation_says(
        key: ([u8; 20], [u8; 20]),
        types in (0..0x200u16).prop_map(HashTypes::from_bits_truncate),
        table in vec(0..5usize, 128),
        packets in vec(packet(), 1..20),
    ) {
        let key: [u8; 40] = [key.0, key.1].concat().try_into().unwrap();
        let rss = Rss { key: Some(Key(key)), types, ..Rss::default() };
        let mut scene = Scene::new(5, PortSettings { rss, ..trunk(0, &[VLAN]) });
        let entries: Vec<_> = table.iter().copied().enumerate().collect();
        scene.bench.switch.set_rss_entries(scene.guest, &entries).unwrap();
        for packet in packets {
            let hash = packet.hashed(types).map_or(0, |input| toeplitz(&key, &input));
            prop_assert_eq!(scene.receives(&packet), table[hash as usize % 128], "{:?}", packet);
        }
    }

    #[test]
    fn an_answer_comes_by_the_queue_that_the_flow_was_sent_from(
        mut sent in vec((packet(), 0..4usize), 1..20),
    ) {
        let mut scene = Scene::following();
        // A destination of its own for each, so that no two are one flow.
        for (number, (packet, _)) in sent.iter_mut().enumerate() {
            packet.destination[0] = number as u8;
        }
        sent.iter().for_each(|(packet, queue)| scene.sends(packet, *queue));
        for (packet, queue) in sent {
            // What has no ports is not followed.
            let whole = !packet.fragment && matches!(packet.transport, TCP | UDP);
            let expected = if whole { queue } else { 0 };
            prop_assert_eq!(scene.receives(&packet.reversed()), expected, "{:?}", packet);
        }
    }
}

#[test]
fn within_a_run_of_frames_each_goes_by_its_own_flow() {
    let mut scene = Scene::following();
    let flows: Vec<_> = (0..4).map(|number| flow(number, TCP, number % 2 == 0)).collect();
    flows.iter().enumerate().for_each(|(queue, packet)| scene.sends(packet, queue));
    let frames: Vec<_> = [0, 0, 1, 2, 2, 3, 1, 0]
        .map(|number: usize| memory_frame(flows[number].reversed().frame(PEER, GUEST)))
        .to_vec();
    scene.bench.send(0, &frames);
    let counts = [1, 2, 3, 4].map(|peer| scene.bench.received(peer).len());
    assert_eq!(counts, [3, 2, 2, 1]);
}

#[test]
fn a_flooded_flow_goes_to_a_queue_of_each_port() {
    let mut scene = Scene::following();
    scene.bench.add_queues(plain(), ALL, 4);
    let packet = flow(1, UDP, false);
    scene.sends(&packet, 3);
    (5..9).for_each(|peer| scene.bench.received(peer).clear());
    let unknown = memory_frame(packet.reversed().frame(PEER, Mac([2, 0, 0, 0, 0, 9])));
    scene.bench.send(0, &[unknown]);
    let counts =
        [1..5, 5..9].map(|peers| peers.map(|peer| scene.bench.received(peer).len()).sum::<usize>());
    assert_eq!(counts, [1, 1]);
}

/// A guest that sends each frame of a flow from another queue had its answers jump as often.
#[test]
fn a_flow_changes_its_queue_once_a_tick_at_most() {
    let mut scene = Scene::following();
    let packet = flow(7, UDP, false);
    scene.pass(TICK);
    scene.sends(&packet, 1);
    for _ in 0..100 {
        scene.sends(&packet, 2);
        scene.sends(&packet, 3);
        assert_eq!(scene.receives(&packet.reversed()), 1);
    }
    scene.pass(TICK);
    scene.sends(&packet, 3);
    assert_eq!(scene.receives(&packet.reversed()), 3);
}

/// Frames that were dropped said where a flow is.
#[test]
fn dropped_frames_note_nothing() {
    let rule = AclRule {
        action: AclAction::Deny,
        direction: Direction::Ingress,
        protocol: AclProtocol::Ip(UDP),
        from: AclEnd::default(),
        to: AclEnd::default(),
    };
    let mut scene = Scene::following_with(PortSettings {
        mac_guard: true,
        acl: vec![rule],
        ..trunk(0, &[VLAN])
    });
    let (spoofed, denied) = (flow(1, TCP, false), flow(2, UDP, true));
    scene.bench.send(3, &[memory_frame(spoofed.frame(PEER, GUEST))]);
    scene.bench.send(3, &[memory_frame(spoofed.frame(Mac([2, 0, 0, 0, 0, 9]), PEER))]);
    scene.sends(&denied, 2);
    for packet in [spoofed, denied] {
        assert_eq!(scene.receives(&packet.reversed()), 0, "{packet:?}");
    }
}

#[test]
fn a_flood_from_others_evicts_no_flow_of_the_guest() {
    let mut scene = Scene::following();
    let kept = flow(1, TCP, false);
    scene.sends(&kept, 3);
    for chunk in (0..40_000u32).collect::<Vec<_>>().chunks(200) {
        let frames: Vec<_> = chunk
            .iter()
            .map(|number| {
                let mut packet = flow(0, TCP, false);
                packet.source[..4].copy_from_slice(&number.to_be_bytes());
                memory_frame(packet.frame(PEER, GUEST))
            })
            .collect();
        scene.bench.send(0, &frames);
        (1..=4).for_each(|peer| scene.bench.received(peer).clear());
    }
    assert_eq!(scene.receives(&kept.reversed()), 3);
}

/// A guest that floods fills only its own flow table, so other guests lose no flows.
#[test]
fn a_flood_from_a_guest_costs_its_own_flows_alone() {
    let mut scene = Scene::following();
    let rss = Rss { steer: Steer::Follow, ..Rss::default() };
    let settings = PortSettings { rss, mac: Some(Mac([2, 0, 0, 0, 0, 3])), ..plain() };
    let (other, _) = scene.bench.add_queues(settings, ALL, 4);
    let all: Vec<_> = (0..128).map(|entry| (entry, 0)).collect();
    scene.bench.switch.set_rss_entries(other, &all).unwrap();
    let kept = flow(1, TCP, false);
    scene.sends(&kept, 3);
    let flood = |number: u32| {
        let mut packet = flow(0, TCP, false);
        packet.source[..4].copy_from_slice(&number.to_be_bytes());
        packet
    };
    let send = |scene: &mut Scene, numbers: Range<u32>| {
        for chunk in numbers.collect::<Vec<_>>().chunks(200) {
            let frames = chunk.iter().map(|it| flood(*it).frame(Mac([2, 0, 0, 0, 0, 3]), PEER));
            let frames: Vec<_> = frames.map(memory_frame).collect();
            scene.bench.send(6, &frames);
            scene.bench.received(0).clear();
            scene.pass(Nanos(1_000_000));
        }
    };
    let count_followed = |scene: &mut Scene, numbers: Range<u32>| {
        let is_followed = |number: &u32| {
            let frame = flood(*number).reversed().frame(PEER, Mac([2, 0, 0, 0, 0, 3]));
            scene.bench.send(0, &[memory_frame(frame)]);
            scene.bench.received(5).clear();
            !scene.bench.received(6).is_empty()
        };
        numbers.filter(is_followed).count()
    };
    send(&mut scene, 0..20_000);
    assert_eq!(scene.receives(&kept.reversed()), 3);
    let (first, last) =
        (count_followed(&mut scene, 0..2_000), count_followed(&mut scene, 2_000..20_000));
    assert!(first > 1_900, "places are kept for a second: {first}");
    // The flow table holds 4096 flows; two of the 20,000 flows may match the tag of another.
    assert!((1_000..=4_098 - first).contains(&last), "{last}");
    scene.pass(Nanos(1_200_000_000));
    send(&mut scene, 20_000..21_000);
    let new = count_followed(&mut scene, 20_000..21_000);
    assert!(new > 950, "silent flows give way: {new}");
}

#[test]
fn a_flow_is_followed_for_30_seconds_wherever_in_a_second_it_was_noted() {
    for start in [0, 1, 500_000_000, 999_000_000, 999_999_000] {
        let packet = flow(9, TCP, true);
        for (silent, expected) in [(1_000, 2), (29_990_000_000, 2), (30_010_000_000, 0)] {
            let mut scene = Scene::following();
            scene.pass(Nanos(7_000_000_000 + start));
            scene.sends(&packet, 2);
            scene.pass(Nanos(silent));
            assert_eq!(scene.receives(&packet.reversed()), expected, "{start} {silent}");
        }
    }
}

/// A port of four queues of which one is in use noted every flow at queue 0.
#[test]
fn only_queues_in_use_are_followed() {
    let mut scene = Scene::following();
    let all: Vec<_> = (0..128).map(|entry| (entry, 3)).collect();
    scene.bench.switch.set_rss_entries(scene.guest, &all).unwrap();
    let (early, late) = (flow(1, TCP, false), flow(2, TCP, false));
    scene.live.set_queues(1);
    scene.sends(&early, 0);
    assert_eq!(scene.receives(&early.reversed()), 0);
    scene.live.set_queues(4);
    assert_eq!(scene.receives(&early.reversed()), 3);
    scene.sends(&late, 2);
    assert_eq!(scene.receives(&late.reversed()), 2);
    scene.live.set_queues(2);
    assert!(scene.receives(&late.reversed()) < 2);
}

#[test]
fn an_entry_whose_queue_is_not_in_use_goes_to_its_number_modulo_those_that_are() {
    let mut scene = Scene::new(4, plain());
    let entries = [(0, 3), (1, 1), (2, 3), (3, 3)];
    scene.bench.switch.set_rss_entries(scene.guest, &entries).unwrap();
    scene.live.set_queues(2);
    let info = scene.bench.switch.rss(scene.guest).unwrap();
    assert_eq!((info.queues, info.in_use), (4, 2));
    assert_eq!(info.configured[..6], [3, 1, 3, 3, 0, 1]);
    assert_eq!(info.in_force[..6], [0, 1, 0, 1, 0, 1]);
    let shown: Vec<_> =
        scene.bench.switch.queues_of(scene.guest).iter().map(|queue| queue.entries).collect();
    assert_eq!(shown, [64, 64, 0, 0]);
}

#[test]
fn of_entries_with_one_that_is_wrong_none_is_set() {
    let mut scene = Scene::new(4, plain());
    let before = scene.bench.switch.rss(scene.guest).unwrap().configured;
    let mut set = |entries: &[_]| scene.bench.switch.set_rss_entries(scene.guest, entries);
    assert!(matches!(set(&[(0, 3), (128, 0)]), Err(SwitchError::NoSuchEntry(128))));
    assert!(matches!(
        set(&[(0, 3), (1, 4)]),
        Err(SwitchError::NoSuchQueue { queue: 4, queues: 4, .. })
    ));
    assert_eq!(scene.bench.switch.rss(scene.guest).unwrap().configured, before);
}

/// Who knows the key can aim all flows at one queue.
#[test]
fn keys_are_drawn_for_each_port_and_last_as_long() {
    let mut scene = Scene::new(4, plain());
    let (other, _) = scene.bench.add_queues(plain(), ALL, 4);
    let key = |scene: &Scene, port| scene.bench.switch.rss(port).unwrap().key;
    let drawn = key(&scene, scene.guest);
    assert!(drawn != key(&scene, other) && drawn != Key::MICROSOFT);
    let (packets, mut by): (Vec<_>, _) =
        ((0..64).map(|number| flow(1021 * number, TCP, false)).collect(), vec![]);
    by.extend(packets.iter().map(|packet| scene.receives(packet)));
    let configured =
        |key| PortSettings { rss: Rss { key, ..Rss::default() }, mac: Some(GUEST), ..plain() };
    scene.bench.switch.change_port(scene.guest, configured(Some(Key::MICROSOFT))).unwrap();
    assert_eq!(key(&scene, scene.guest), Key::MICROSOFT);
    assert!(packets.iter().map(|packet| scene.receives(packet)).ne(by.iter().copied()));
    scene.bench.switch.change_port(scene.guest, configured(None)).unwrap();
    assert_eq!(key(&scene, scene.guest), drawn);
    assert!(packets.iter().map(|packet| scene.receives(packet)).eq(by));
}

/// Two guests of four queue pairs, each with its session.
struct Guests {
    switch: Switch,
    guests: [Guest; 2],
    ports: [PortId; 2],
    now: Nanos,
    _sessions: [Session; 2],
    _folder: TempDir,
}

impl Guests {
    fn new(steer: Steer) -> Guests {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::stepped(SwitchOptions::default());
        let wanted = Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ;
        let opened = [GUEST, PEER].map(|mac| {
            let path = folder.path().join(mac.to_string());
            let opened =
                vhost::open(&VhostOptions { queues: 4, ..VhostOptions::new(&path) }).unwrap();
            let rss = Rss { steer, key: Some(Key::MICROSOFT), ..Rss::default() };
            let settings = PortSettings { mac: Some(mac), rss, ..plain() };
            let port = switch.add_port(&mac.to_string(), opened.device, settings).unwrap();
            (Guest::connect(&path, wanted.bits(), 4).unwrap(), port, opened.session)
        });
        let [(one, first, session), (other, second, other_session)] = opened;
        let (guests, ports) = ([one, other], [first, second]);
        let sessions = [session, other_session];
        let now = Nanos::SECOND;
        Guests { switch, guests, ports, now, _sessions: sessions, _folder: folder }
    }

    /// Sends a packet from one guest by a pair. Returns the pair by which the other receives it.
    fn pass(&mut self, from: usize, packet: &Packet, pair: usize) -> usize {
        let (own, others) = if from == 0 { (GUEST, PEER) } else { (PEER, GUEST) };
        let frame = packet.frame(own, others);
        assert!(self.guests[from].send(pair, &[0; 12], &frame));
        self.now = self.now + TICK;
        self.switch.step(self.now);
        let arrived: Vec<_> = (0..4)
            .filter(|pair| {
                let received = self.guests[1 - from].receive(*pair);
                received.inspect(|(_, bytes)| assert!(*bytes == frame)).is_some()
            })
            .collect();
        assert_eq!(arrived.len(), 1, "{packet:?}");
        arrived[0]
    }
}

#[test]
fn guests_answer_each_other_on_the_queues_they_send_from() {
    let mut guests = Guests::new(Steer::Follow);
    for number in 0..32 {
        let (mine, theirs) = (usize::from(number % 4), usize::from(number / 4 % 4));
        let packet = flow(number, if number % 3 == 0 { UDP } else { TCP }, number % 2 == 0);
        guests.pass(0, &packet, mine);
        for _ in 0..3 {
            assert_eq!(guests.pass(1, &packet.reversed(), theirs), mine);
            assert_eq!(guests.pass(0, &packet, mine), theirs);
        }
    }
}

#[test]
fn with_rss_every_queue_of_a_guest_carries_traffic_both_ways_by_its_table() {
    let mut guests = Guests::new(Steer::Rss);
    let mut carried = [[0; 4]; 2];
    for number in 0..64 {
        let packet = flow(number, if number % 3 == 0 { UDP } else { TCP }, number % 2 == 0);
        for (from, packet) in [(0, packet.clone()), (1, packet.reversed())] {
            let to = 1 - from;
            let info = guests.switch.rss(guests.ports[to]).unwrap();
            let input = packet.hashed(HashTypes::PLAIN).unwrap();
            let entry = toeplitz(&info.key.0, &input) as usize % 128;
            let pair = guests.pass(from, &packet, usize::from(number % 4));
            assert_eq!(pair, usize::from(info.in_force[entry]));
            carried[to][pair] += 1;
        }
    }
    assert!(carried.iter().flatten().all(|frames| *frames > 0), "{carried:?}");
}

/// Returns settings as a guest's driver makes them.
fn of_guest(key: [u8; 40], types: HashTypes, entries: Vec<u16>, other: u16) -> Arc<GuestSettings> {
    Arc::new(GuestSettings {
        hash: Some(Arc::new(GuestHash::new(Key(key), types))),
        table: Some(Arc::new(GuestTable::new(entries, other))),
        filter: None,
    })
}

proptest! {
    /// The operator's key, types and table are others.
    #[test]
    fn the_queue_is_the_one_that_the_guest_has_set(
        key: ([u8; 20], [u8; 20]),
        types in (0..0x200u16).prop_map(HashTypes::from_bits_truncate),
        size in 0..8u32,
        table in vec(0..5u16, 128),
        unclassified in 0..5u16,
        packets in vec(packet(), 1..20),
    ) {
        let key: [u8; 40] = [key.0, key.1].concat().try_into().unwrap();
        let rss = Rss { steer: Steer::Guest, ..Rss::default() };
        let mut scene = Scene::new(5, PortSettings { rss, ..trunk(0, &[VLAN]) });
        let entries = table[..1 << size].to_vec();
        scene.live.set_guest_settings(of_guest(key, types, entries.clone(), unclassified));
        for packet in packets {
            let hash = packet.hashed(types).map(|input| toeplitz(&key, &input));
            let queue = hash.map_or(unclassified, |hash| entries[hash as usize % entries.len()]);
            prop_assert_eq!(scene.receives(&packet), usize::from(queue), "{:?}", packet);
        }
    }
}

#[test]
fn what_the_operator_says_wins_over_the_guest_and_the_guest_over_the_default() {
    let mut scene = Scene::following();
    let rss = |steer| PortSettings {
        rss: Rss { steer, ..Rss::default() },
        mac: Some(GUEST),
        ..trunk(0, &[VLAN])
    };
    let (packet, guest) = (flow(1, TCP, false), scene.guest);
    let set = of_guest([7; 40], HashTypes::all(), vec![2], 2);
    scene.live.set_guest_settings(set.clone());
    scene.sends(&packet, 3);
    assert_eq!(scene.receives(&packet.reversed()), 3, "`follow` was said");
    scene.bench.switch.change_port(guest, rss(Steer::Rss)).unwrap();
    assert_eq!(scene.receives(&packet.reversed()), 0, "`rss` was said");
    scene.bench.switch.change_port(guest, rss(Steer::Guest)).unwrap();
    assert_eq!(scene.receives(&packet.reversed()), 2);
    let info = scene.bench.switch.rss(guest).unwrap();
    assert_eq!((info.is_by_guest, info.in_force, info.configured), (true, [2; 128], [0; 128]));
    scene.live.set_guest_settings(Arc::default());
    scene.pass(TICK);
    scene.sends(&packet, 1);
    assert_eq!(scene.receives(&packet.reversed()), 1, "the guest says nothing any more");
    let info = scene.bench.switch.rss(guest).unwrap();
    assert!(!info.is_by_guest && info.guest.is_none());
}

/// The table was set before fewer queues were in use, or its queues come into use later.
#[test]
fn a_queue_of_the_guest_that_is_not_in_use_is_not_taken() {
    let rss = Rss { steer: Steer::Guest, ..Rss::default() };
    let mut scene = Scene::new(4, PortSettings { rss, ..trunk(0, &[VLAN]) });
    scene.live.set_guest_settings(of_guest([7; 40], HashTypes::all(), vec![3], 3));
    assert_eq!(scene.receives(&flow(1, TCP, false)), 3);
    scene.live.set_queues(2);
    assert_eq!(scene.receives(&flow(1, TCP, false)), 1);
}
