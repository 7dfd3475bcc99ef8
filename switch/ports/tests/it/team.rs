//! Tests a team of memory ports on virtual time: which frames leave, and by which member.

use crate::support::{self, ip};
use crate::world::{NAMES, OUTSIDE, SECOND, START, World, arp, number_of, own_mac, udp, vnic};
use ports::packet::{PacketError, PacketOptions};
use ports::team::{self, Algorithm, GAP, Member, MemberError, TeamOptions};
use ports::{Burst, EgressDrop, Nanos, Outgoing};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use waiting::until;
use wire::Mac;
use wire::vnet::VnetHeader;

pub(crate) fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::HyperVPort), Just(Algorithm::Dynamic)]
}

/// An event of a run.
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

proptest! {
    /// Every frame leaves at exactly one member that is up, or is counted; a flow without a long
    /// pause keeps its member while the members stay the same.
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
                    // Like the thread that watches the links.
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
}

/// Frames that teach where a station is leave only by its home member, under its own address.
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

/// A member with a returned link is used once it has been up for the fail-back time without a
/// break, or at once if no other is left. Moved addresses are announced from their new member.
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

/// Returns the frames that pass in one second through uplinks that carry 1000 a second each and
/// hold 10, which is what each carries in 10 ms.
fn carried(members: &[&str], algorithm: Algorithm, vnics: u8, flows: u16) -> usize {
    let world = World::new(members, algorithm, 10);
    let mut carried = 0;
    for tick in 0..100u64 {
        let now = START + Nanos(tick * 10_000_000);
        // Three times the capacity of one uplink, spread over the tick.
        for step in 0..30u16 {
            let from = u8::try_from(step % u16::from(vnics)).unwrap();
            let flow = (u16::try_from(tick).unwrap() * 30 + step) % flows;
            world
                .send(now + Nanos(u64::from(step) * 300_000), &[udp(vnic(from), OUTSIDE, flow, 0)]);
        }
        carried += world.received().len();
    }
    carried
}

/// On virtual time, so that the result depends on the team and not on the machine. Many flows,
/// because hashes now and then spread 30 steady flows 8 to 22.
#[test]
fn two_uplinks_carry_what_two_uplinks_can() {
    for (algorithm, vnics, flows) in [(Algorithm::HyperVPort, 10, 1), (Algorithm::Dynamic, 1, 3000)]
    {
        let one = carried(&["eth0"], algorithm, vnics, flows);
        let two = carried(&["eth0", "eth1"], algorithm, vnics, flows);
        println!("{algorithm:?}: {one} and {two} frames");
        assert!(two * 10 >= one * 19, "{algorithm:?}: {one} and {two}");
    }
}

/// One guest that filled one member limited guests with flows on another member to a share of the
/// full one.
#[test]
fn a_full_member_takes_no_room_from_the_others() {
    let world = World::new(&NAMES[..2], Algorithm::HyperVPort, 64);
    let room = || world.device.egress[0].room().unwrap();
    let empty = room();
    assert_eq!(empty.buffers, 128);
    let frames = vec![udp(vnic(1), OUTSIDE, 0, 0); 100];
    assert_eq!(world.send(START, &frames).len(), 36, "one member took what it could");
    assert_eq!((room().buffers, room().bytes), (64, empty.bytes / 2));
    assert!(world.send(START, &vec![udp(vnic(2), OUTSIDE, 0, 0); 32]).is_empty());
    assert_eq!(room().buffers, 32);
    // The rest of a team is not short for good compared with the former sum.
    world.received();
    assert_eq!(room(), empty);
    world.set(NAMES[0], false, START);
    assert_ne!(world.received(), [], "what moved is announced at the other member");
    assert_eq!(room(), empty);
    world.set(NAMES[1], false, START);
    assert_eq!(world.device.egress[0].room(), None);
}

/// Taking out a member that is not the last of the list leaves the others their places; a new
/// member takes the free place.
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

/// The team had MTU 0 then, and told senders so.
#[test]
fn a_team_without_an_open_member_keeps_its_mtu() {
    let world = World::new(&["eth0"], Algorithm::HyperVPort, 1 << 12);
    world.refuse("later");
    assert_eq!(world.team.set_members(&["later".to_owned()]).len(), 1);
    assert_eq!(world.team.mtu(), 1500);
}

/// One cable is no redundancy, and each frame would arrive twice.
#[test]
fn a_device_is_no_member_twice_under_two_names() {
    support::in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link property add dev mill0 altname enp3s0");
        let open = |names: &[&str]| {
            let opener = |name: &str| {
                let failed =
                    |error: PacketError| MemberError { reason: error.to_string(), denied: false };
                Member::packet(name, None).map_err(failed)
            };
            team::assemble(&TeamOptions::new(names), Box::new(opener)).unwrap().1
        };
        let both = ["mill0", "enp3s0"].map(str::to_owned);
        let team = open(&["mill0"]);
        let refused = team.try_members(&both).unwrap_err().to_string();
        assert!(refused.contains("it is the same device as mill0"), "{refused}");
        let team = open(&["mill0", "enp3s0"]);
        let troubles: Vec<_> =
            team.status().members.into_iter().map(|member| member.trouble).collect();
        assert_eq!(troubles[1].as_deref(), Some("it is the same device as mill0"));
    });
}

/// Once, the new member was added before the old one was removed. It was refused as a second name
/// of the same device, and opened only a second later.
#[test]
fn a_member_may_be_named_otherwise() {
    support::in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link property add dev mill0 altname enp3s0");
        let opener = |name: &str| Ok(Member::packet(name, None).unwrap());
        let options = TeamOptions::new(&["mill0"]);
        let (_device, team) = team::assemble(&options, Box::new(opener)).unwrap();
        team.try_members(&["enp3s0".to_owned()]).unwrap();
        let members = team.status().members;
        let named: Vec<_> = members.iter().map(|it| (it.name.as_str(), it.mtu)).collect();
        assert_eq!(named, [("enp3s0", 1500)], "{members:?}");
    });
}

/// Queues that were opened before the device left receive nothing after it has come back, although
/// its interface index is the same.
#[test]
fn a_member_whose_device_left_the_namespace_and_came_back_is_opened_anew() {
    support::in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link set mill0 up");
        ip("link set mill1 up");
        let opener = |name: &str| {
            let failed =
                |error: PacketError| MemberError { reason: error.to_string(), denied: false };
            Member::packet(name, None).map_err(failed)
        };
        let options = TeamOptions::new(&["mill0"]);
        let (mut device, team) = team::open(&options, Box::new(opener)).unwrap();
        let index = || {
            let link = ports::link::Link::open("mill0", None).unwrap();
            link.index().unwrap()
        };
        let before = index();
        let mut elsewhere = Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
        until("the process has a namespace of its own", || {
            let spaces = ["thread-self", &elsewhere.id().to_string()]
                .map(|process| std::fs::read_link(format!("/proc/{process}/ns/net")).ok());
            spaces[0] != spaces[1]
        });
        ip(&format!("link set mill0 netns {}", elsewhere.id()));
        until("the trouble is known", || team.status().members[0].trouble.is_some());
        let here = rustix::thread::gettid().as_raw_nonzero();
        let back = format!("-t {} -n ip link set mill0 netns {here} up", elsewhere.id());
        assert!(Command::new("nsenter").args(back.split(' ')).status().unwrap().success());
        ip("link set mill0 up");
        let _ = (elsewhere.kill(), elsewhere.wait());
        assert_eq!(index(), before);
        let (sender, _) = ports::packet::open(&PacketOptions::new("mill1"))
            .map(|it| (it.device, it.link))
            .unwrap();
        let frame = arp(vnic(9), [10, 0, 0, 9]);
        until("a frame arrives", || {
            let outgoing = Outgoing {
                vnet: VnetHeader::default(),
                header: &frame,
                payload: &[],
                len: frame.len().try_into().unwrap(),
            };
            sender.egress[0].deliver(&[outgoing], &mut Vec::new()).unwrap();
            let mut burst = Burst::new();
            device.ingress[0].take(START, &mut burst).unwrap();
            let taken = burst.frames().len();
            drop(burst);
            device.ingress[0].release();
            taken > 0
        });
    });
}

/// Its link may be there again when it is checked, but its queues receive nothing.
#[test]
fn a_member_that_a_worker_finds_gone_is_opened_anew() {
    support::in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link set mill0 up");
        ip("link set mill1 up");
        let opened = Arc::new(AtomicUsize::new(0));
        let count = opened.clone();
        // Without a link, so that only the worker can tell.
        let opener = move |name: &str| {
            count.fetch_add(1, Relaxed);
            let failed =
                |error: PacketError| MemberError { reason: error.to_string(), denied: false };
            let packet = ports::packet::open(&PacketOptions::new(name)).map_err(failed)?;
            Ok(Member::new(packet.device, None).unwrap())
        };
        let options = TeamOptions::new(&["mill0"]);
        let (mut device, _team) = team::open(&options, Box::new(opener)).unwrap();
        ip("link delete mill0");
        until("the device is opened again", || {
            device.ingress[0].take(START, &mut Burst::new()).unwrap();
            device.ingress[0].release();
            device.ingress[0].arm();
            opened.load(Relaxed) > 1
        });
    });
}

/// The host may change a device's address at any time; frames for the old one went to the switch.
#[test]
fn a_member_has_the_address_that_its_device_has_now() {
    support::in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        let opener = |name: &str| Ok(Member::packet(name, None).unwrap());
        let (_device, team) = team::open(&TeamOptions::new(&["mill0"]), Box::new(opener)).unwrap();
        ip("link set mill0 address 02:00:00:00:00:77");
        until("its new address is known", || {
            team.status().members[0].mac == Mac([2, 0, 0, 0, 0, 0x77])
        });
    });
}
