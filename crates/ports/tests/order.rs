//! Entries of an uplink's table flipped under load, between two queues with a reader each: a fence keeps the order, and
//! without it the same load finds that frames overtake each other.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests, though not only in functions marked so"
)]

mod support;

use ports::packet::{self, Opened, PacketOptions, Spread};
use ports::steering::{Order, Steering, Vnic};
use ports::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{in_namespace, ip, udp_header};
use wire::toeplitz::{Key, Toeplitz};
use wire::vnet::VnetHeader;

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const FLOWS: u8 = 8;
const BATCH: u32 = 32;
/// Where the number of a frame in its flow stands.
const NUMBER: usize = 42;

#[derive(Debug, Default)]
struct Load {
    done: AtomicBool,
    sent: AtomicU64,
    delivered: AtomicU64,
    overtaken: AtomicU64,
    /// The latest number of each flow.
    latest: [AtomicU32; FLOWS as usize],
}

/// Ends the threads of a load however the moves end: the scope that they are in waits for them, after a failed assertion too.
struct Done<'a>(&'a Load);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed);
    }
}

fn header(flow: u8) -> Vec<u8> {
    udp_header(THEIR_MAC, OUR_MAC, [[10, 9, flow, 2], [10, 9, 0, 1]], 18)
}

fn frame(flow: u8, number: u32) -> Vec<u8> {
    let mut bytes = header(flow);
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

/// The entry that a flow hits.
fn entry(flow: u8) -> usize {
    let frame = frame(flow, 0);
    let parsed = wire::parse(&frame, frame.len()).expect("Ethernet");
    Toeplitz::new(&Key::MICROSOFT).hash_flow(&frame, &parsed) as usize % 128
}

fn deliver(egress: &mut EgressQueue, frames: &[Vec<u8>]) {
    let outgoing = |header| Outgoing { vnet: VnetHeader::default(), header, payload: &[], len: 60 };
    let outgoing: Vec<_> = frames.iter().map(|frame| outgoing(frame.as_slice())).collect();
    egress.deliver(&outgoing, &mut Vec::new()).expect("deliver");
}

/// Sends all flows in turn, no faster than readers on a busy machine can follow.
fn send(egress: &mut EgressQueue, load: &Load) {
    let mut number = 0u32;
    while !load.done.load(Ordering::Relaxed) {
        let mut frames = Vec::new();
        for _ in 0..BATCH / u32::from(FLOWS) {
            number += 1;
            frames.extend((0..FLOWS).map(|flow| frame(flow, number)));
        }
        deliver(egress, &frames);
        load.sent.fetch_add(BATCH.into(), Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Turns of one queue, as a worker has them: what was taken counts as delivered before it is released.
fn read(ingress: &mut IngressQueue, load: &Load) {
    while !load.done.load(Ordering::Relaxed) {
        let mut burst = Burst::new();
        ingress.take(Nanos(1), &mut burst).expect("take");
        let is_empty = burst.frames().is_empty();
        for frame in burst.frames() {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            if bytes.get(6..12) == Some(&OUR_MAC) {
                let number = u32::from_be_bytes(bytes[NUMBER..NUMBER + 4].try_into().expect("4"));
                let latest =
                    load.latest[usize::from(bytes[28])].fetch_max(number, Ordering::AcqRel);
                load.overtaken.fetch_add(u64::from(number < latest), Ordering::Relaxed);
                load.delivered.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(burst);
        ingress.release();
        if is_empty {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A port at one end of a link of this name, and one of two queues with rings of so many bytes at the other, with its steering.
fn open(link: &str, ring_bytes: usize) -> Option<(Opened, Opened, Arc<dyn Steering>)> {
    let [near, far] = [0, 1].map(|end| format!("{link}{end}"));
    ip(&format!("link add {near} type veth peer name {far}"));
    ip(&format!("link set {near} up"));
    ip(&format!("link set {far} up"));
    let here = packet::open(&PacketOptions::new(&near)).expect("open");
    let key = Some(Key::MICROSOFT);
    let two = PacketOptions { queues: 2, key, ring_bytes, ..PacketOptions::new(&far) };
    let there = packet::open(&two).expect("open");
    let Spread::Tables(steering) = there.spread.clone() else {
        eprintln!("skipped: needs the right to load eBPF programs");
        return None;
    };
    Some((here, there, steering))
}

/// Flips under load over a link of this name; what came of it, or `None` where programs cannot be loaded.
fn flip(link: &str, flips: usize, flip: impl Fn(&dyn Steering, usize, u8) + Sync) -> Option<Load> {
    let (mut here, mut there, steering) = open(link, 8 << 20)?;
    let (load, entries) = (Load::default(), (0..FLOWS).map(entry).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let _done = Done(&load);
        scope.spawn(|| send(&mut here.device.egress[0], &load));
        there.device.ingress.iter_mut().for_each(|ingress| {
            scope.spawn(|| read(ingress, &load));
        });
        for number in 0..flips {
            let entry = entries[number % entries.len()];
            let table = steering.table(Vnic::DEFAULT).expect("a table");
            flip(&*steering, entry, 1 - table[entry]);
        }
    });
    Some(load)
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn moves_of_entries_under_load_reorder_nothing() {
    in_namespace(|| {
        let flips = number("MILLRACE_FLIPS", 100);
        let (times, held_frames) = (std::sync::Mutex::new(Vec::new()), AtomicU64::new(0));
        let load = flip("mill", flips, |steering, entry, to| {
            let start = Instant::now();
            let patience = Duration::from_secs(30);
            let moved = steering.move_entries(&[(Vnic::DEFAULT, entry)], to, patience);
            let moved = moved.expect("moved");
            assert_eq!(moved.order, Order::Kept);
            held_frames.fetch_add(moved.held_frames, Ordering::Relaxed);
            times.lock().expect("one thread").push((moved.held, start.elapsed()));
        });
        let Some(load) = load else { return };
        let mut times = times.into_inner().expect("one thread");
        let [held, took] = [|it: &(Duration, Duration)| it.0, |it: &(Duration, Duration)| it.1];
        for (what, of) in [("held", held), ("took", took)] {
            times.sort_by_key(of);
            let at = |part: usize| of(&times[(times.len() - 1) * part / 100]);
            eprintln!("{what}: median {:?}, 99 % {:?}, most {:?}", at(50), at(99), at(100));
        }
        eprintln!("{flips} flips, {} frames held, {load:?}", held_frames.into_inner());
        assert!(load.delivered.into_inner() > 100);
        assert_eq!(load.overtaken.into_inner(), 0);
    });
}

/// Each uplink has a fence of its own: moves at the same time neither wait for each other nor harm each other's order.
#[test]
fn two_uplinks_move_entries_at_the_same_time() {
    in_namespace(|| {
        let (under_way, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let flips = |link| {
            flip(link, number("MILLRACE_FLIPS", 50), |steering, entry, to| {
                most.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let patience = Duration::from_secs(30);
                let moved = steering.move_entries(&[(Vnic::DEFAULT, entry)], to, patience);
                under_way.fetch_sub(1, Ordering::Relaxed);
                assert_eq!(moved.expect("moved").order, Order::Kept);
            })
        };
        let loads = std::thread::scope(|scope| {
            ["left", "right"]
                .map(|link| scope.spawn(move || flips(link)))
                .map(|it| it.join().expect("no panic"))
        });
        let loads: Vec<_> = loads.into_iter().flatten().collect();
        let Some(most) = (!loads.is_empty()).then(|| most.into_inner()) else { return };
        eprintln!("{most} moves at once, {loads:?}");
        assert_eq!(most, 2);
        for load in loads {
            assert!(load.delivered.into_inner() > 100);
            assert_eq!(load.overtaken.into_inner(), 0);
        }
    });
}

/// While a queue waits for another's, what its ring has no room for is lost, for order's sake.
#[test]
fn frames_that_a_held_queue_has_no_room_for_are_counted() {
    in_namespace(|| {
        // 32 slots.
        let Some((mut here, _there, steering)) = open("mill", 64 << 10) else { return };
        let egress = &mut here.device.egress[0];
        let [moving, other] = [0, 1].map(entry);
        assert_ne!(moving, other);
        steering.set_entry(Vnic::DEFAULT, moving, 0).expect("set");
        steering.set_entry(Vnic::DEFAULT, other, 1).expect("set");
        let of = |flow, count| (0..count).map(|number| frame(flow, number)).collect::<Vec<_>>();
        // The old queue has a frame that nobody reads, and the new one has lost some already.
        deliver(egress, &of(0, 1));
        deliver(egress, &of(1, 100));
        let moved = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let (entries, patience) = ([(Vnic::DEFAULT, moving)], Duration::from_secs(1));
                steering.move_entries(&entries, 1, patience).expect("moved")
            });
            while steering.table(Vnic::DEFAULT).expect("a table")[moving] != 1 {
                std::thread::yield_now();
            }
            deliver(egress, &of(0, 100));
            mover.join().expect("no panic")
        });
        assert_eq!((moved.order, moved.held_frames), (Order::GivenUp, 32));
        // A few of the kernel's own may come as well.
        assert!((100..120).contains(&moved.lost_frames), "{moved:?}");
    });
}

#[test]
fn stores_without_a_fence_are_found_to_reorder() {
    in_namespace(|| {
        let load = flip("mill", number("MILLRACE_FLIPS", 300), |steering, entry, to| {
            steering.set_entry(Vnic::DEFAULT, entry, to).expect("set");
            std::thread::sleep(Duration::from_millis(2));
        });
        let Some(load) = load else { return };
        eprintln!("{load:?}");
        assert!(load.overtaken.into_inner() > 0);
    });
}
