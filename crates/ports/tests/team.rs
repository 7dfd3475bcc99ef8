//! A team of memory ports on virtual time: what leaves, by which member, and what is taken of what comes in.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use ports::memory::{self, Peer};
use ports::team::{self, Algorithm, Condition, GAP, Member, Team, TeamOptions};
use ports::{Burst, Device, EgressDrop, Nanos, Offloads, Outgoing, Slice};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::Mac;
use wire::vnet::VnetHeader;

const START: Nanos = Nanos(10 * Nanos::SECOND.0);
const SECOND: Nanos = Nanos::SECOND;

/// The team, and the other side of each member.
struct World {
    device: Device,
    team: Team,
    peers: Arc<Mutex<BTreeMap<String, Peer>>>,
}

fn own_mac(name: &str) -> Mac {
    Mac([2, 0xaa, 0, 0, 0, name.as_bytes()[name.len() - 1]])
}

impl World {
    fn new(members: &[&str], algorithm: Algorithm, depth: usize) -> World {
        let peers: Arc<Mutex<BTreeMap<String, Peer>>> = Arc::default();
        let known = peers.clone();
        let opener = move |name: &str| {
            let (mut device, peer) = memory::open(depth, Offloads::all(), 1500).unwrap();
            device.mac = Some(own_mac(name));
            known.lock().unwrap().insert(name.to_owned(), peer);
            Ok(Member::new(device, None).unwrap())
        };
        let options = TeamOptions { algorithm, ..TeamOptions::new(members) };
        let (device, team) = team::assemble(&options, Box::new(opener)).unwrap();
        World { device, team, peers }
    }

    fn send(&self, now: Nanos, frames: &[Vec<u8>]) -> Vec<(usize, EgressDrop)> {
        let outgoing: Vec<Outgoing<'_>> = frames
            .iter()
            .map(|frame| {
                let (header, payload) = (frame.as_slice(), &[] as &[Slice<'_>]);
                Outgoing {
                    vnet: VnetHeader::default(),
                    header,
                    payload,
                    len: frame.len().try_into().unwrap(),
                }
            })
            .collect();
        let mut drops = Vec::new();
        self.device.egress[0].deliver_at(now, &outgoing, &mut drops).unwrap();
        assert!(drops.is_sorted_by_key(|(place, _)| *place));
        drops
    }

    /// What has left, with the member.
    fn received(&self) -> Vec<(String, Vec<u8>)> {
        let peers = self.peers.lock().unwrap();
        let of = |(name, peer): (&String, &Peer)| {
            let frames =
                std::iter::from_fn(|| peer.receive()).map(|frame| (name.clone(), frame.bytes));
            frames.collect::<Vec<_>>()
        };
        peers.iter().flat_map(of).collect()
    }

    fn bring(&self, member: &str, frame: &[u8]) {
        assert!(self.peers.lock().unwrap()[member].send(VnetHeader::default(), frame));
    }

    /// What the switch gets.
    fn taken(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for queue in &mut self.device.ingress {
            let mut burst = Burst::new();
            queue.take(now, &mut burst).unwrap();
            for frame in burst.frames() {
                let mut bytes = Vec::new();
                burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
                taken.push(bytes);
            }
            drop(burst);
            queue.release();
        }
        taken
    }

    fn set(&self, name: &str, up: bool, now: Nanos) {
        let down = || Condition::Down("pulled".to_owned());
        self.team.note(name, &if up { Condition::Up } else { down() }, now);
    }

    fn current(&self, mac: Mac) -> Option<String> {
        let status = self.team.status();
        let home = status.homes.iter().find(|home| home.mac == mac)?;
        let place = home.current?;
        status.members.iter().find(|member| member.place == place).map(|member| member.name.clone())
    }
}

fn vnic(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

const OUTSIDE: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);

/// A UDP packet of a flow, with a number behind its header.
fn udp(from: Mac, to: Mac, flow: u16, number: u32) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    frame
        .extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from.0[5], 10, 0, 1, 1]);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend([0x13, 0x88, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

fn arp(from: Mac, address: [u8; 4]) -> Vec<u8> {
    let station = wire::announce::Station { mac: from, tci: None };
    wire::announce::gratuitous_arp(&mut [0; 90], station, address).to_vec()
}

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Set(usize, bool),
    Send(Vec<(u8, u16)>),
    Wait(u64),
    Add(usize),
    Remove(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (0usize..4, any::<bool>()).prop_map(|(member, up)| Event::Set(member, up)),
        4 => vec((0u8..12, 0u16..8), 1..30).prop_map(Event::Send),
        2 => prop_oneof![Just(100_000), Just(600_000), Just(2 * Nanos::SECOND.0)].prop_map(Event::Wait),
        1 => (0usize..4).prop_map(Event::Add),
        1 => (0usize..4).prop_map(Event::Remove),
    ];
    vec(event, 1..40)
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::HyperVPort), Just(Algorithm::Dynamic)]
}

const NAMES: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

proptest! {
    /// Every frame leaves at exactly one member that is up, or is counted; a flow without a long pause keeps its member
    /// while the members stay the same.
    #[test]
    fn every_frame_leaves_once_by_a_member_that_is_up(events in events(), algorithm in algorithms()) {
        let world = World::new(&NAMES, algorithm, 1 << 16);
        let mut up = [true; 4];
        let mut members: Vec<&str> = NAMES.to_vec();
        let (mut now, mut number) = (START, 0);
        let mut last: HashMap<(u8, u16), (Nanos, String)> = HashMap::new();
        for event in events {
            match event {
                Event::Set(member, is_up) => {
                    up[member] = is_up;
                    world.set(NAMES[member], is_up, now);
                    last.clear();
                }
                Event::Wait(time) => {
                    now = now + Nanos(time);
                    // As the thread does that watches the links.
                    world.set("no member", true, now);
                    last.clear();
                }
                Event::Add(member) | Event::Remove(member) => {
                    let name = NAMES[member];
                    let is_in = members.contains(&name);
                    match event {
                        Event::Add(_) if !is_in => { members.push(name); up[member] = true; }
                        Event::Remove(_) if is_in && members.len() > 1 => members.retain(|other| *other != name),
                        _ => continue,
                    }
                    let names: Vec<String> = members.iter().map(|name| (*name).to_owned()).collect();
                    world.team.try_members(&names).unwrap();
                    last.clear();
                }
                Event::Send(sent) => {
                    now = now + Nanos(10_000);
                    world.received();
                    let first = number;
                    let frames: Vec<Vec<u8>> = sent.iter().map(|(from, flow)| {
                        number += 1;
                        udp(vnic(*from), OUTSIDE, *flow, number - 1)
                    }).collect();
                    let drops = world.send(now, &frames);
                    let left = world.received();
                    prop_assert_eq!(left.len() + drops.len(), frames.len());
                    let mut seen: HashMap<u32, String> = HashMap::new();
                    for (member, frame) in left {
                        let place = NAMES.iter().position(|name| *name == member).unwrap();
                        prop_assert!(up[place] && members.contains(&NAMES[place]), "{} is down", member);
                        let source = Mac(frame[6..12].try_into().unwrap());
                        let number = number_of(&frame);
                        let from = vnic(sent[(number - first) as usize].0);
                        let at_home = world.current(from).as_deref() == Some(&*member);
                        let wanted = if at_home { from } else { own_mac(&member) };
                        prop_assert_eq!(source, wanted);
                        prop_assert!(at_home || algorithm == Algorithm::Dynamic);
                        prop_assert!(seen.insert(number, member).is_none(), "twice");
                    }
                    if !drops.is_empty() {
                        prop_assert!(members.iter().all(|name| {
                            !up[NAMES.iter().position(|other| other == name).unwrap()]
                        }), "dropped although a member is up");
                    }
                    for (at, (from, flow)) in sent.iter().enumerate() {
                        let Some(member) = seen.get(&(first + u32::try_from(at).unwrap())) else { continue };
                        if let Some((when, before)) = last.insert((*from, *flow), (now, member.clone()))
                            && now.since(when) < Nanos(GAP.0 - 16)
                        {
                            prop_assert_eq!(member, &before, "a flow changed its member");
                        }
                    }
                }
            }
        }
    }

    /// The switch outside sends what it gets at one member to all others, as one that floods does. Nothing of ours is
    /// taken, and of each frame from outside one copy.
    #[test]
    fn nothing_returns_and_nothing_comes_twice(
        sent in vec((0u8..6, any::<bool>()), 1..40),
        algorithm in algorithms(),
    ) {
        let mut world = World::new(&NAMES, algorithm, 1 << 12);
        let mut now = START;
        for (number, (from, outside)) in (0..).zip(sent) {
            now = now + Nanos(1_000_000);
            if outside {
                let frame = udp(OUTSIDE, Mac::BROADCAST, from.into(), number);
                NAMES.iter().for_each(|name| world.bring(name, &frame));
                prop_assert_eq!(world.taken(now), [frame]);
            } else {
                let frames = [arp(vnic(from), [10, 0, 0, from]), udp(vnic(from), OUTSIDE, 7, number)];
                prop_assert_eq!(world.send(now, &frames), []);
                for (member, frame) in world.received() {
                    let others = NAMES.iter().filter(|name| **name != member);
                    others.for_each(|name| world.bring(name, &frame));
                }
                prop_assert_eq!(world.taken(now + Nanos(100_000)), Vec::<Vec<u8>>::new());
                prop_assert_eq!(world.received(), []);
            }
        }
    }
}

/// What teaches others where a station is leaves by its home member alone, under its own address.
#[test]
fn what_teaches_leaves_at_home() {
    let world = World::new(&NAMES, Algorithm::Dynamic, 1 << 12);
    let mut dhcp = udp(vnic(1), OUTSIDE, 0, 9);
    dhcp[34..36].copy_from_slice(&68u16.to_be_bytes());
    let mut solicitation = [OUTSIDE.0, vnic(1).0].concat();
    solicitation.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
    solicitation.extend([0xfe; 32]);
    solicitation.extend([135; 24]);
    for round in 0..100 {
        let group = udp(vnic(1), Mac([1, 0, 0x5e, 0, 0, 1]), round, 9);
        let frames = [arp(vnic(1), [10, 0, 0, 1]), dhcp.clone(), solicitation.clone(), group];
        assert_eq!(world.send(START + Nanos(u64::from(round) * SECOND.0), &frames), []);
        let home = world.current(vnic(1)).unwrap();
        for (member, frame) in world.received() {
            assert_eq!((&member, &frame[6..12]), (&home, &vnic(1).0[..]));
        }
    }
}

#[test]
fn a_pinned_address_is_dropped_when_its_member_is_down() {
    let world = World::new(&["eth0", "eth1"], Algorithm::Dynamic, 1 << 12);
    world.team.pin(&[(vnic(1), "eth0".to_owned()), (vnic(2), "eth1".to_owned())]);
    let frames: Vec<_> = (0..50)
        .map(|flow| udp(vnic(1 + u8::try_from(flow % 2).unwrap()), OUTSIDE, flow, 0))
        .collect();
    assert_eq!(world.send(START, &frames), []);
    for (member, frame) in world.received() {
        assert_eq!(member, if frame[11] == 1 { "eth0" } else { "eth1" });
    }
    world.set("eth0", false, START);
    let drops = world.send(START, &frames);
    assert_eq!(drops.len(), 25);
    assert!(drops.iter().all(|(place, drop)| place % 2 == 0 && *drop == EgressDrop::PathDown));
    world.team.pin(&[]);
    assert_eq!(world.send(START, &frames), []);
    world.set("eth1", false, START);
    let drops = world.send(START, &frames);
    assert!(drops.len() == 50 && drops.iter().all(|(_, drop)| *drop == EgressDrop::Down));
}

/// A member whose link came back is used once it has been up for the fail-back time without a break, at once where no
/// other is left; what moved is announced from the member it moved to.
#[test]
fn fail_back_is_damped_and_moves_are_announced() {
    let world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    world.send(START, &[arp(vnic(1), [10, 0, 0, 1]), udp(vnic(2), OUTSIDE, 1, 1)]);
    world.received();
    let is_at = |mac, name: &str| world.current(mac).as_deref() == Some(name);
    assert!(is_at(vnic(1), "eth0") && is_at(vnic(2), "eth1"));
    let at = |ms: u64| Nanos(ms * 1_000_000);
    world.set("eth0", false, at(0));
    assert!(is_at(vnic(1), "eth1"));
    assert_eq!(world.received(), [("eth1".to_owned(), arp(vnic(1), [10, 0, 0, 1]))]);
    world.set("eth0", true, at(10));
    world.set("eth0", true, at(900));
    world.set("eth0", false, at(950));
    world.set("eth0", true, at(1000));
    world.set("eth0", true, at(1999));
    assert!(is_at(vnic(1), "eth1"), "not yet up for a second");
    // The second announcement of the first move.
    assert_eq!(world.received(), [("eth1".to_owned(), arp(vnic(1), [10, 0, 0, 1]))]);
    world.set("eth0", true, at(2000));
    assert!(is_at(vnic(1), "eth0"));
    assert_eq!(world.received(), [("eth0".to_owned(), arp(vnic(1), [10, 0, 0, 1]))]);
    world.set("eth0", false, at(2500));
    world.set("eth0", true, at(2501));
    assert!(is_at(vnic(1), "eth1"));
    world.set("eth1", false, at(2502));
    assert!(is_at(vnic(1), "eth0") && is_at(vnic(2), "eth0"), "no other is left");
}

/// A frame that comes in at another member than the home is a copy, unless the home brings none.
#[test]
fn frames_for_an_address_are_taken_at_its_home() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    world.send(START, &[udp(vnic(1), OUTSIDE, 1, 1)]);
    world.taken(START);
    let later = START + SECOND;
    let frame = udp(OUTSIDE, vnic(1), 3, 7);
    ["eth0", "eth1"].iter().for_each(|name| world.bring(name, &frame));
    assert_eq!(world.taken(later).len(), 1);
    world.bring("eth1", &frame);
    assert_eq!(world.taken(later + SECOND), [frame], "the switch outside has it at eth1");
    world.bring("eth0", &udp(OUTSIDE, own_mac("eth0"), 3, 7));
    assert_eq!(world.taken(later + SECOND).len(), 0);
    let counters: Vec<_> =
        world.team.status().members.iter().map(|member| member.counters).collect();
    assert_eq!((counters[1].copies, counters[0].to_member), (1, 1));
}

/// A guest that has moved to another host sends from there: its frames are no reflection.
#[test]
fn frames_of_a_guest_that_moved_away_are_taken() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.send(at(0), &[arp(vnic(1), [10, 0, 0, 1])]);
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    // Members have just come: it may be the team's own announcement, which the switch outside has flooded.
    world.bring("eth1", &frame);
    assert!(world.taken(at(60)).is_empty());
    world.send(at(300), &[arp(vnic(1), [10, 0, 0, 1])]);
    world.bring("eth1", &frame);
    assert!(world.taken(at(349)).is_empty());
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(350)), [frame]);
}

/// Frames that a second takes through uplinks that carry 1000 each a second and hold 10: so many at each in 10 ms.
fn carried(members: &[&str], algorithm: Algorithm, vnics: u8, flows: u16) -> usize {
    let world = World::new(members, algorithm, 10);
    let mut carried = 0;
    for tick in 0..100u64 {
        let now = START + Nanos(tick * 10_000_000);
        // Three times what one uplink carries, spread over the tick.
        for step in 0..30u16 {
            let (from, flow) = (u8::try_from(step % u16::from(vnics)).unwrap(), step % flows);
            world
                .send(now + Nanos(u64::from(step) * 300_000), &[udp(vnic(from), OUTSIDE, flow, 0)]);
        }
        carried += world.received().len();
    }
    carried
}

/// On virtual time, so that the figure is of the team and not of the machine.
#[test]
fn two_uplinks_carry_what_two_uplinks_can() {
    for (algorithm, vnics, flows) in [(Algorithm::HyperVPort, 10, 1), (Algorithm::Dynamic, 1, 30)] {
        let one = carried(&["eth0"], algorithm, vnics, flows);
        let two = carried(&["eth0", "eth1"], algorithm, vnics, flows);
        println!("{algorithm:?}: {one} and {two} frames");
        assert!(two * 10 >= one * 19, "{algorithm:?}: {one} and {two}");
    }
}

/// Taking out a member that is not the last of the list leaves the others their places, and a new one takes the free place.
#[test]
fn a_place_in_the_middle_is_empty_and_taken_again() {
    let world = World::new(&NAMES[..3], Algorithm::HyperVPort, 1 << 12);
    let places = |world: &World| -> Vec<(String, u8)> {
        world
            .team
            .status()
            .members
            .iter()
            .map(|member| (member.name.clone(), member.place.0))
            .collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    world.team.try_members(&names(&["eth0", "eth2"])).unwrap();
    assert_eq!(places(&world), [("eth0".to_owned(), 0), ("eth2".to_owned(), 2)]);
    assert!(world.team.set_members(&names(&["eth0", "eth2", "eth3"])).is_empty());
    assert_eq!(
        places(&world),
        [("eth0".to_owned(), 0), ("eth3".to_owned(), 1), ("eth2".to_owned(), 2)]
    );
    assert_eq!(
        world.team.status().fail_back,
        Nanos(u64::try_from(Duration::from_secs(1).as_nanos()).unwrap())
    );
}
