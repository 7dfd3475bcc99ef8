//! Tests a team of memory ports on virtual time: which arriving frames are taken.

use crate::team::algorithms;
use crate::world::{NAMES, OUTSIDE, SECOND, START, World, arp, own_mac, tagged, udp, vnic};
use ports::Nanos;
use ports::team::Algorithm;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::Mac;

proptest! {
    /// The switch outside floods a frame from one member to all others. No frame of ours is taken,
    /// and one copy of each frame from outside is.
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

    /// The switch outside forgets a guest that only receives, and floods its frames to all members
    /// until it has learned the guest and sends only to its home. Each frame is taken once, in any
    /// order of workers and with any home.
    #[test]
    fn a_flooded_frame_for_one_of_ours_is_taken_once(
        bursts in vec((1u64..300, any::<bool>(), 1u32..5), 1..20),
        receiver in 1u8..4,
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
    ) {
        let mut world = World::new(&NAMES[..3], Algorithm::HyperVPort, 1 << 12);
        world.send(START, &[1, 2, 3].map(|number| udp(vnic(number), OUTSIDE, 1, 1)));
        world.taken(START);
        world.received();
        let home = world.current(vnic(receiver)).unwrap();
        let (mut now, mut number) = (START + SECOND, 0);
        for (gap, is_flooded, count) in bursts {
            now = now + Nanos(gap * Nanos::MILLISECOND.0);
            let frames: Vec<_> = (0..count).map(|more| udp(OUTSIDE, vnic(receiver), 3, number + more)).collect();
            number += count;
            for name in NAMES[..3].iter().filter(|name| is_flooded || **name == home) {
                frames.iter().for_each(|frame| world.bring(name, frame));
            }
            prop_assert_eq!(world.taken_in(order.iter().copied(), now), frames);
        }
    }
}

/// A frame that arrives at another member than the home is a copy, unless the home receives none.
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

/// A guest that has moved to another host sends from there: its frames are not reflections.
#[test]
fn frames_of_a_guest_that_moved_away_are_taken() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.send(at(0), &[arp(vnic(1), [10, 0, 0, 1])]);
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    // The members have just come: the frame may be the team's own announcement, flooded by the
    // switch outside.
    world.bring("eth1", &frame);
    assert!(world.taken(at(60)).is_empty());
    world.send(at(300), &[arp(vnic(1), [10, 0, 0, 1])]);
    world.bring("eth1", &frame);
    assert!(world.taken(at(349)).is_empty());
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(350)), [frame]);
}

/// Two routers of one VRRP number, a guest in VLAN 20 and one outside in VLAN 10, have one address.
#[test]
fn an_address_that_a_guest_sends_from_in_another_vlan_is_no_reflection() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let virtual_router = Mac([0, 0, 0x5e, 0, 1, 1]);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    let advert = udp(virtual_router, Mac([1, 0, 0x5e, 0, 0, 18]), 1, 1);
    world.send(at(0), &[tagged(20, &advert)]);
    // After the grace that follows a change of members.
    world.taken(at(0));
    let from_outside = tagged(10, &udp(virtual_router, vnic(1), 2, 2));
    for ms in (300..400).step_by(10) {
        world.send(at(ms), &[tagged(20, &advert)]);
        world.bring("eth0", &from_outside);
        world.bring("eth1", &tagged(20, &advert));
        assert_eq!(world.taken(at(ms)), [from_outside.as_slice()]);
    }
}

/// Returns how many frames a world of two members has sent to announce an address, after a
/// failover.
fn announced(world: &World, now: Nanos) -> usize {
    world.received();
    let home = world.current(vnic(1)).unwrap_or_else(|| "eth0".to_owned());
    world.set(&home, false, now);
    let announced = world.received().len();
    world.set(&home, true, now);
    world.set(&home, true, now + SECOND);
    world.received();
    announced
}

/// Every switch outside would have learned it here, and the guest would have been cut off at its
/// new host.
#[test]
fn a_guest_that_left_is_announced_no_more() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.taken(at(0));
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    world.send(at(0), std::slice::from_ref(&frame));
    assert_eq!(announced(&world, at(100)), 1);
    world.taken(at(200));
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(5_200)), [frame.as_slice()]);
    assert_eq!(announced(&world, at(6_000)), 0);
    // The guest comes back.
    world.send(at(7_000), &[frame]);
    assert_eq!(announced(&world, at(8_000)), 1);
}

/// It had to be heard outside five seconds after it last sent, but a moved guest announces itself
/// within one and a half.
#[test]
fn a_guest_that_moved_a_moment_after_it_sent_is_announced_no_more() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.taken(at(0));
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    world.send(at(2_000), std::slice::from_ref(&frame));
    world.taken(at(2_000));
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(2_060)), [frame.as_slice()]);
    assert_eq!(announced(&world, at(3_000)), 0);
    // It comes back, and later it sends a frame that does not tell its address.
    world.send(at(5_000), std::slice::from_ref(&frame));
    assert_eq!(announced(&world, at(6_000)), 1);
    world.taken(at(8_000));
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(10_000)), [frame.as_slice()]);
    world.send(at(12_000), &[udp(vnic(1), OUTSIDE, 1, 1)]);
    assert_eq!(announced(&world, at(13_000)), 1);
}

/// A router outside with the address in VLAN 10 (VRRP) made the team forget the guest in VLAN 20.
#[test]
fn a_guest_that_is_heard_in_another_vlan_is_announced_in_its_own() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.taken(at(0));
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    world.send(at(0), &[tagged(20, &frame)]);
    for ms in [2_000, 7_000] {
        world.bring("eth1", &tagged(10, &frame));
        assert_eq!(world.taken(at(ms)).len(), 1);
    }
    assert_eq!(announced(&world, at(8_000)), 1);
    world.taken(at(10_000));
    world.bring("eth1", &tagged(20, &frame));
    assert_eq!(world.taken(at(16_000)).len(), 1);
    assert_eq!(announced(&world, at(17_000)), 0);
}

#[test]
fn addresses_of_a_port_that_is_closed_are_announced_no_more() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    world.taken(START);
    world.send(START, &[arp(vnic(1), [10, 0, 0, 1])]);
    world.team.forget(&[vnic(1)]);
    assert_eq!(announced(&world, START + SECOND), 0);
}

/// A guest that sends from ever new addresses filled the table of recent senders, and others'
/// broadcasts came back.
#[test]
fn what_comes_back_is_refused_whatever_others_send() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.taken(at(0));
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    world.send(at(0), std::slice::from_ref(&frame));
    for number in 0..60u8 {
        let from = |low| Mac([2, 1, 0, 0, number, low]);
        let flood: Vec<_> = (0..=255).map(|low| udp(from(low), OUTSIDE, 1, 1)).collect();
        for round in 0..4u8 {
            let flood = flood.iter().map(|frame| {
                let mut frame = frame.clone();
                frame[8] = round;
                frame
            });
            world.send(at(1_000), &flood.collect::<Vec<_>>());
        }
        world.received();
    }
    world.send(at(1_000), std::slice::from_ref(&frame));
    world.bring("eth0", &frame);
    world.bring("eth1", &frame);
    assert_eq!(world.taken(at(1_040)), Vec::<Vec<u8>>::new());
}

/// A frame that returns right after it was sent, or an announcement of ours for a silent guest,
/// does not mean that the guest has left: the next failover would not announce it.
#[test]
fn a_guest_is_announced_after_reflections_of_it_and_of_its_announcements() {
    let mut world = World::new(&["eth0", "eth1"], Algorithm::HyperVPort, 1 << 12);
    let at = |ms: u64| START + Nanos(ms * 1_000_000);
    world.taken(at(0));
    let frame = arp(vnic(1), [10, 0, 0, 1]);
    world.send(at(1_000), std::slice::from_ref(&frame));
    for ms in [1_001, 1_010, 1_049] {
        world.bring("eth1", &frame);
        world.taken(at(ms));
    }
    // The guest is silent from now on, and the workers' clocks stand still while they sleep.
    assert_eq!(announced(&world, at(60_000)), 1);
    for ms in [60_001, 60_250, 61_000] {
        world.bring("eth1", &frame);
        world.taken(at(ms));
    }
    assert_eq!(announced(&world, at(70_000)), 1);
}
