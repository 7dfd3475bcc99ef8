//! Guests that run here before their memory has arrived: their frames are whole and in order, and a
//! page that does not come stops no other port.

use crate::vhost::{Bench, frame, modern, until};
use ports::vhost::{Features, State, dock};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::process::Command;
use test_guest::{Arrival, Guest};

/// Ports of a bench: where the guest comes from, where it goes, and two others.
const FROM: usize = 0;
const TO: usize = 1;
const PEER: usize = 2;
const OTHER: usize = 3;

/// Runs as the dock if the standard input says so.
#[test]
fn this_program_is_the_dock_too() {
    if socket_type(std::io::stdin()) == Ok(SocketType::SEQPACKET) {
        dock::serve(|| Ok(())).unwrap();
    }
}

fn start_dock() {
    let mut dock = Command::new(std::env::current_exe().unwrap());
    dock.args(["--exact", "post_copy::this_program_is_the_dock_too", "--nocapture"]);
    dock::start(dock).unwrap();
}

fn bench() -> Bench {
    start_dock();
    Bench::new(4, 1)
}

/// Returns a frame with a number in it, of a length that varies with it.
fn numbered(to: usize, from: usize, number: u32) -> Vec<u8> {
    let mut frame = frame(to as u8, from as u8, 60 + number as usize * 97 % 1400, number as u8);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

fn send(guest: &mut Guest, frame: &[u8]) {
    until("room in the ring", || guest.send(0, &[0; 12], frame).then_some(()));
}

/// Frames on their way to a station.
struct Expected {
    station: usize,
    frames: std::vec::IntoIter<Vec<u8>>,
    too_dear: u64,
}

/// Frames to a station whose guest's pages took a worker too long to find. The guest that moves is at
/// either port.
fn too_dear(bench: &Bench, station: usize) -> u64 {
    let ports = if station == FROM { &[FROM, TO][..] } else { std::slice::from_ref(&station) };
    ports.iter().map(|port| bench.too_dear(*port)).sum()
}

impl Expected {
    /// Expects numbered frames, which are sent after this.
    fn new(bench: &Bench, path: (usize, usize), numbers: std::ops::Range<u32>) -> Expected {
        let (from, station) = path;
        let frames: Vec<_> = numbers.map(|number| numbered(station, from, number)).collect();
        let too_dear = too_dear(bench, station);
        Expected { station, frames: frames.into_iter(), too_dear }
    }

    fn send(&self, sender: &mut Guest) {
        self.frames.as_slice().iter().for_each(|frame| send(sender, frame));
    }

    /// Waits until each frame has arrived, whole, once and in order, but for those that the switch
    /// has counted as too dear.
    fn arrive(mut self, bench: &Bench, receiver: &mut Guest) {
        let mut lost = 0;
        until("all frames", || {
            while let Some((_, frame)) = receiver.receive(0) {
                // A switch that does not know a station floods.
                if usize::from(frame[5]) == self.station {
                    lost += self.frames.position(|sent| sent == frame).expect("whole, in order");
                }
            }
            let missing = (lost + self.frames.len()) as u64;
            (missing == too_dear(bench, self.station) - self.too_dear).then_some(())
        });
    }
}

/// Sends numbered frames one way, and checks that they arrive.
fn cross(
    bench: &Bench,
    sender: &mut Guest,
    receiver: &mut Guest,
    path: (usize, usize),
    numbers: std::ops::Range<u32>,
) {
    for first in numbers.step_by(8) {
        let expected = Expected::new(bench, path, first..first + 8);
        expected.send(sender);
        expected.arrive(bench, receiver);
    }
}

/// The guest has the same address at both ports; its frames from the second tell the switch.
fn moves(bench: &Bench, guest: &mut Guest, peer: &mut Guest) -> Arrival {
    let arrival = guest.move_by_post_copy(&bench.path(TO)).unwrap();
    assert_eq!(bench.sessions[TO].status().state, State::Running, "before its memory is here");
    cross(bench, guest, peer, (FROM, PEER), 0..8);
    arrival
}

/// Withholds pages, and sends the guest a frame into a receive buffer that has not arrived.
fn await_page(arrival: &Arrival, peer: &mut Guest) {
    arrival.hold(true);
    send(peer, &numbered(FROM, PEER, 0));
    until("a page is awaited", || (arrival.waiting() > 0).then_some(()));
}

/// Each format, with and without buffers that merge.
#[test]
fn frames_are_whole_and_in_order_while_the_memory_arrives() {
    let bench = bench();
    let plain = Features::VERSION_1;
    for wanted in [modern(), modern() | Features::RING_PACKED, plain, modern() | Features::IN_ORDER]
    {
        let mut guest = bench.guest(FROM, wanted, 1);
        let mut peer = bench.guest(PEER, wanted, 1);
        cross(&bench, &mut guest, &mut peer, (FROM, PEER), 0..400);
        cross(&bench, &mut peer, &mut guest, (PEER, FROM), 0..400);
        let arrival = moves(&bench, &mut guest, &mut peer);
        cross(&bench, &mut guest, &mut peer, (FROM, PEER), 0..400);
        cross(&bench, &mut peer, &mut guest, (PEER, FROM), 0..400);
        assert!(arrival.asked() > 0, "no page was missing: the test proves nothing");
        // On their way when the guest's own rings come back.
        let to_peer = Expected::new(&bench, (FROM, PEER), 0..20);
        let to_guest = Expected::new(&bench, (PEER, FROM), 0..20);
        to_peer.send(&mut guest);
        to_guest.send(&mut peer);
        guest.arrive(arrival).unwrap();
        to_peer.arrive(&bench, &mut peer);
        to_guest.arrive(&bench, &mut guest);
        cross(&bench, &mut guest, &mut peer, (FROM, PEER), 0..400);
        cross(&bench, &mut peer, &mut guest, (PEER, FROM), 0..400);
        drop((guest, peer));
        let are_gone = || {
            let gone = |port: usize| bench.sessions[port].status().state == State::Waiting;
            (gone(TO) && gone(PEER)).then_some(())
        };
        until("the guests are gone", are_gone);
    }
}

/// A worker that touched the page slept with all of its ports.
#[test]
fn a_page_that_does_not_come_stops_no_other_port() {
    let bench = bench();
    let mut guest = bench.guest(FROM, modern(), 1);
    let [mut peer, mut other] = [PEER, OTHER].map(|port| bench.guest(port, modern(), 1));
    let arrival = moves(&bench, &mut guest, &mut peer);
    // What is for a station that the switch does not know goes to the guest too, and fills its room.
    cross(&bench, &mut other, &mut peer, (OTHER, PEER), 0..8);
    let to_guest = Expected::new(&bench, (PEER, FROM), 0..10);
    await_page(&arrival, &mut peer);
    let to_peer = Expected::new(&bench, (FROM, PEER), 1..100);
    to_peer.send(&mut guest);
    for round in 1..10 {
        send(&mut peer, &numbered(FROM, PEER, round));
        cross(&bench, &mut peer, &mut other, (PEER, OTHER), 0..80);
        cross(&bench, &mut other, &mut peer, (OTHER, PEER), 0..80);
    }
    assert!(arrival.waiting() > 0, "it came all the same");
    assert_eq!(bench.sessions[TO].status().state, State::Running);
    arrival.hold(false);
    to_peer.arrive(&bench, &mut peer);
    to_guest.arrive(&bench, &mut guest);
    guest.arrive(arrival).unwrap();
}

/// Its session slept for ever, and the port with it.
#[test]
fn a_guest_whose_pages_are_withheld_can_leave() {
    let bench = bench();
    let mut guest = bench.guest(FROM, modern(), 1);
    let mut peer = bench.guest(PEER, modern(), 1);
    let arrival = moves(&bench, &mut guest, &mut peer);
    await_page(&arrival, &mut peer);
    (1..100).for_each(|number| send(&mut guest, &numbered(PEER, FROM, number)));
    drop(guest);
    let state = || bench.sessions[TO].status().state;
    until("the session has ended", || (state() == State::Waiting).then_some(()));
    // A page that is made here would take the place of one that is on its way to the same guest.
    let refused = Guest::connect(&bench.path(TO), modern().bits(), 1);
    assert!(refused.is_err(), "the same front end has no whole memory");
    assert!(arrival.waiting() > 0);
}
