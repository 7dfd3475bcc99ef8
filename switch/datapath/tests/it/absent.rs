//! Addresses of guests that stop: where their frames go while their port is down, and that no other
//! vNIC gets them.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, drops, plain};
use datapath::{DropReason, PortRole, PortSettings, PortState};
use ports::Capabilities;
use ports::memory::MemoryFrame;
use proptest::prelude::*;
use std::sync::Arc;
use wire::Mac;

/// The station that moves, one beside it, and one behind the uplink.
const GUEST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const BESIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 3]);

/// Ports, by the place of their peers.
const VM: usize = 0;
const OTHER: usize = 1;
const UPLINK: usize = 2;

fn frame(source: Mac, destination: Mac) -> MemoryFrame {
    let mut frame = Segment::parse("1+100 .").frame();
    frame.bytes[..6].copy_from_slice(&destination.0);
    frame.bytes[6..12].copy_from_slice(&source.0);
    frame
}

/// Returns a switch with a guest's port, another vNIC and an uplink; the guest's queues can be
/// taken away, as its session does.
fn bench(guest: PortSettings) -> (Bench, Arc<Capabilities>) {
    let mut bench = Bench::new(&[]);
    let (_, live) = bench.add_queues(guest, ALL, 1);
    bench.add(plain(), ALL);
    bench.add(PortSettings { role: PortRole::Uplink, ..plain() }, ALL);
    (bench, live)
}

/// Returns the number of frames that each port received.
fn counts(bench: &Bench) -> [usize; 3] {
    [VM, OTHER, UPLINK].map(|port| bench.received(port).len())
}

fn configured() -> PortSettings {
    PortSettings { mac: Some(GUEST), mac_guard: true, ..plain() }
}

/// Stations at the host that a guest had left lost their frames until the guest broadcast
/// something.
#[test]
fn frames_to_a_guest_that_has_left_go_on_through_the_uplink() {
    for settings in [plain(), configured(), PortSettings { mac_guard: true, ..plain() }] {
        let (mut bench, live) = bench(settings.clone());
        bench.send(VM, &[frame(GUEST, Mac::BROADCAST)]);
        counts(&bench);
        bench.send(OTHER, &[frame(BESIDE, GUEST)]);
        assert_eq!(counts(&bench), [1, 0, 0]);
        live.set_queues(0);
        bench.send(OTHER, &[frame(BESIDE, GUEST)]);
        assert_eq!(counts(&bench)[UPLINK], 1, "{settings:?}");
        assert_eq!(drops(&bench, OTHER, DropReason::NoPort), 0);
    }
}

/// While the port's state still said that it was up, the announcement from the guest's new host was
/// refused.
#[test]
fn an_uplink_may_have_the_address_of_a_guest_as_soon_as_it_stops() {
    let (mut bench, live) = bench(configured());
    bench.send(VM, &[frame(GUEST, Mac::BROADCAST)]);
    bench.send(UPLINK, &[frame(GUEST, Mac::BROADCAST)]);
    assert_eq!(drops(&bench, UPLINK, DropReason::AddressTaken), 1, "the guest is here");
    live.set_queues(0);
    bench.send(UPLINK, &[frame(GUEST, Mac::BROADCAST)]);
    assert_eq!(drops(&bench, UPLINK, DropReason::AddressTaken), 1);
    counts(&bench);
    bench.send(OTHER, &[frame(BESIDE, GUEST)]);
    assert_eq!(counts(&bench), [0, 0, 1], "known there, not flooded");
    live.set_queues(1);
    bench.send(OTHER, &[frame(BESIDE, GUEST)]);
    assert_eq!(counts(&bench), [1, 0, 0], "the configured address is back with its port");
}

/// Flooded to all, what is for a guest that reboots would be shown to every other guest.
#[test]
fn what_is_for_an_absent_owner_is_shown_to_no_other_vnic() {
    let (mut bench, live) = bench(configured());
    live.set_queues(0);
    bench.send(UPLINK, &[frame(OUTSIDE, GUEST)]);
    assert_eq!(counts(&bench)[OTHER], 0);
    bench.send(OTHER, &[frame(GUEST, Mac::BROADCAST)]);
    assert_eq!(drops(&bench, OTHER, DropReason::AddressTaken), 1, "nor may one take it");
}

#[test]
fn a_port_that_goes_down_forgets_what_was_learned_there() {
    let (mut bench, _) = bench(plain());
    bench.send(VM, &[frame(GUEST, Mac::BROADCAST)]);
    bench.send(OTHER, &[frame(BESIDE, Mac::BROADCAST)]);
    bench.set_state(VM, PortState::Down("its guest left".into()));
    bench.set_state(VM, PortState::Up);
    bench.switch.take_events();
    let known: Vec<Mac> = bench.switch.macs().iter().map(|entry| entry.mac).collect();
    assert_eq!(known, [BESIDE]);
}

/// What happens at a port, in this order, and what a poll does, in this order. The poll looks at the
/// guest after it has read what the switch knows, and acts after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A front end connects, and its guest's driver starts.
    Connects,
    /// The guest sends from this address.
    Sends(Mac),
    Leaves,
    Reads,
    Looks,
    Acts,
}

/// Returns every order of two sequences, each of which keeps its own.
fn orders(one: &[Step], other: &[Step]) -> Vec<Vec<Step>> {
    let (Some((first, rest)), Some((its_first, its_rest))) =
        (one.split_first(), other.split_first())
    else {
        return vec![[one, other].concat()];
    };
    let after = |step: &Step, orders: Vec<Vec<Step>>| {
        orders.into_iter().map(|order| [&[*step][..], &order].concat()).collect::<Vec<_>>()
    };
    let mut all = after(first, orders(rest, other));
    all.extend(after(its_first, orders(one, its_rest)));
    all
}

/// A poll decided on the guest that it had seen, and released the address of the next one: its
/// neighbour could take it. It also undid a state that a worker had found meanwhile.
#[test]
fn a_poll_undoes_nothing_in_whatever_order_it_meets_a_worker() {
    use Step::{Acts, Connects, Leaves, Looks, Reads, Sends};
    const NEXT: Mac = Mac([2, 0, 0, 0, 0, 4]);
    let guests =
        [Connects, Sends(GUEST), Leaves, Connects, Sends(NEXT), Leaves, Connects, Sends(GUEST)];
    let poll = [Reads, Looks, Acts, Reads, Looks, Acts];
    let orders = orders(&guests, &poll);
    assert_eq!(orders.len(), 3003, "8 of 14");
    for order in orders {
        let (mut bench, live) = bench(PortSettings { mac_guard: true, ..plain() });
        live.set_queues(0);
        // Announces nothing, but is known: what is for `BESIDE` is not flooded.
        bench.send(OTHER, &[frame(BESIDE, Mac::BROADCAST)]);
        let (mut known, mut seen, mut held) = (None, PortState::Up, None);
        for step in &order {
            match *step {
                Connects => {
                    live.replace_guest();
                    live.set_queues(1);
                }
                Sends(mac) => {
                    bench.send(VM, &[frame(mac, BESIDE)]);
                    assert_eq!(bench.received(OTHER).len(), 1, "{mac} passes: {order:?}");
                    held = Some(mac);
                }
                Leaves => {
                    live.set_queues(0);
                    live.replace_guest();
                    held = None;
                }
                Reads => known = bench.switch.ports().into_iter().next(),
                Looks => {
                    let runs = live.queues() > 0;
                    let left = || PortState::Down("its guest left".into());
                    seen = if runs { PortState::Up } else { left() };
                }
                Acts => {
                    bench.switch.set_state(known.as_ref().unwrap(), seen.clone()).unwrap();
                    bench.switch.take_events();
                }
            }
            assert_eq!(bench.switch.ports()[VM].held_mac, held, "after {step:?} of {order:?}");
            if let Some(mac) = held {
                let refused = drops(&bench, OTHER, DropReason::AddressTaken);
                bench.send(OTHER, &[frame(mac, BESIDE)]);
                let taken = drops(&bench, OTHER, DropReason::AddressTaken);
                assert_eq!(taken, refused + 1, "taken after {step:?} of {order:?}");
            }
        }
    }
}

/// Whatever was learned at a port after it had gone down was forgotten with what was learned before.
#[test]
fn a_guest_that_came_within_a_poll_is_not_forgotten_with_the_one_before() {
    let (mut bench, _) = bench(plain());
    bench.send(VM, &[frame(GUEST, Mac::BROADCAST)]);
    bench.set_state(VM, PortState::Down("its guest left".into()));
    bench.send(VM, &[frame(OUTSIDE, Mac::BROADCAST)]);
    bench.switch.take_events();
    let known: Vec<Mac> = bench.switch.macs().iter().map(|entry| entry.mac).collect();
    assert_eq!(known, [OUTSIDE]);
}

/// A worker had found the device down, and the poll, which had looked before, said that it was up.
#[test]
fn a_state_that_a_worker_has_changed_since_is_not_decided_on() {
    let (mut bench, _) = bench(plain());
    bench.set_state(VM, PortState::Down("no carrier".into()));
    let known = bench.switch.ports().swap_remove(VM);
    bench.send(VM, &[frame(GUEST, Mac::BROADCAST)]);
    let down = || PortState::Down("administratively down".into());
    bench.switch.set_state(&known, down()).unwrap();
    assert_eq!(bench.switch.ports()[VM].state, PortState::Up, "frames came");
    bench.set_state(VM, down());
    assert_eq!(bench.switch.ports()[VM].state, down());
}

/// What happens to a guest and around it.
#[derive(Clone, Copy, Debug)]
enum Event {
    Stops,
    Starts,
    /// Its guest sends.
    Sends,
    /// It sends from another host.
    SendsOutside,
    /// Another vNIC tries the guest's address.
    IsImitated,
    Polled,
}

fn event() -> impl Strategy<Value = Event> {
    use Event::*;
    prop_oneof![
        Just(Stops),
        Just(Starts),
        Just(Sends),
        Just(SendsOutside),
        Just(IsImitated),
        Just(Polled)
    ]
}

proptest! {
    /// A configured address is its port's while that carries frames, else an uplink's, and never
    /// another vNIC's.
    #[test]
    fn a_configured_address_is_at_its_port_or_beyond_an_uplink(events in prop::collection::vec(event(), 1..40)) {
        let (mut bench, live) = bench(configured());
        for event in events {
            let runs = live.queues() > 0;
            match event {
                Event::Stops => live.set_queues(0),
                Event::Starts => live.set_queues(1),
                Event::Sends if runs => bench.send(VM, &[frame(GUEST, OUTSIDE)]),
                Event::Sends => {}
                Event::SendsOutside => bench.send(UPLINK, &[frame(GUEST, Mac::BROADCAST)]),
                Event::IsImitated => bench.send(OTHER, &[frame(GUEST, Mac::BROADCAST)]),
                Event::Polled => {
                    let state = if runs { PortState::Up } else { PortState::Down("it left".into()) };
                    bench.set_state(VM, state);
                    bench.switch.take_events();
                }
            }
            counts(&bench);
            let ready = live.queues() > 0 && bench.switch.ports()[VM].state == PortState::Up;
            bench.send(OTHER, &[frame(BESIDE, GUEST)]);
            let [vm, _, uplink] = counts(&bench);
            if ready {
                prop_assert_eq!([vm, uplink], [1, 0]);
            } else {
                prop_assert_eq!(uplink, 1);
            }
            bench.send(UPLINK, &[frame(OUTSIDE, GUEST)]);
            prop_assert_eq!(counts(&bench)[OTHER], 0, "never at another vNIC");
        }
    }
}
