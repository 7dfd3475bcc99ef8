//! Tests moves of an uplink's table entries under load, between queues with one reader each. A
//! fence keeps the order, each frame arrives once, and without the fence the same load finds frames
//! that overtake each other.

use crate::support::{in_namespace, ip, udp_header};
use crate::veth::{OUR_MAC, THEIR_MAC};
use ports::packet::{self, Opened, PacketOptions, Spread};
use ports::steering::{EntryMove, Moved, Order, Steering, Table, Vnic};
use ports::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::toeplitz::{Key, Toeplitz};
use wire::vnet::VnetHeader;

const FLOWS: u8 = 8;
const BATCH: u32 = 32;
/// Most frames under way, like the window of a sender that waits for acknowledgements: so no ring
/// fills up unless frames wait somewhere in vain.
const WINDOW: u64 = 512;
/// Offset of a frame's number in its flow.
const NUMBER: usize = 42;

#[derive(Debug, Default)]
struct Load {
    /// Whether the moves are made: then the sender stops.
    done: AtomicBool,
    /// Whether the sender has stopped: the readers stop once all frames are delivered.
    all_sent: AtomicBool,
    sent: AtomicU64,
    delivered: AtomicU64,
    overtaken: AtomicU64,
    /// Frames with the number that came last: those delivered twice.
    twice: AtomicU64,
    /// Frames that the kernel dropped because a ring was full.
    lost: AtomicU64,
    /// The latest number of each flow.
    latest: [AtomicU32; FLOWS as usize],
}

impl Load {
    /// Returns the number of frames sent and not delivered.
    fn under_way(&self) -> u64 {
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(delivered)
    }
}

/// Ends the threads of a load however the moves end, even after a failed assertion: their scope
/// waits for them.
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

/// Returns the entry that a flow hits.
fn entry(flow: u8) -> usize {
    let frame = frame(flow, 0);
    let parsed = wire::parse(&frame, frame.len()).expect("Ethernet");
    Toeplitz::new(&Key::MICROSOFT).hash_flow(&frame, &parsed) as usize % 128
}

fn deliver(egress: &mut EgressQueue, frames: &[Vec<u8>]) {
    let outgoing = |header| Outgoing { vnet: VnetHeader::default(), header, payload: &[], len: 60 };
    let outgoing: Vec<_> = frames.iter().map(|frame| outgoing(frame.as_slice())).collect();
    let mut drops = Vec::new();
    egress.deliver(&outgoing, &mut drops).expect("deliver");
    assert_eq!(drops, []);
}

/// Sends all flows in turn, as fast as the readers follow.
fn send(egress: &mut EgressQueue, load: &Load) {
    let mut number = 0u32;
    while !load.done.load(Ordering::Relaxed) {
        if load.under_way() >= WINDOW {
            std::thread::yield_now();
            continue;
        }
        let mut frames = Vec::new();
        for _ in 0..BATCH / u32::from(FLOWS) {
            number += 1;
            frames.extend((0..FLOWS).map(|flow| frame(flow, number)));
        }
        load.sent.fetch_add(BATCH.into(), Ordering::Relaxed);
        deliver(egress, &frames);
    }
    load.all_sent.store(true, Ordering::Release);
}

/// Runs turns of one queue like a worker: frames that were taken count as delivered before they are
/// released.
fn read(ingress: &mut IngressQueue, load: &Load) {
    // Frames that have not arrived after so many looks at an empty queue are lost.
    let mut looks = 10_000;
    while looks > 0 {
        let all_sent = load.all_sent.load(Ordering::Acquire);
        if all_sent && load.delivered.load(Ordering::Relaxed) >= load.sent.load(Ordering::Relaxed) {
            break;
        }
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
                load.twice.fetch_add(u64::from(number == latest), Ordering::Relaxed);
                load.delivered.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(burst);
        ingress.release();
        if is_empty {
            looks -= u32::from(all_sent);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    load.lost.fetch_add(ingress.lost(), Ordering::Relaxed);
}

/// Opens a port at one end of a link of this name, and one at the other with `queues` queues and
/// rings of `ring_bytes`. Returns them with the steering.
fn open(link: &str, queues: u8, ring_bytes: usize) -> Option<(Opened, Opened, Arc<dyn Steering>)> {
    let [near, far] = [0, 1].map(|end| format!("{link}{end}"));
    ip(&format!("link add {near} type veth peer name {far}"));
    ip(&format!("link set {near} up"));
    ip(&format!("link set {far} up"));
    let here = packet::open(&PacketOptions::new(&near)).expect("open");
    let key = Some(Key::MICROSOFT);
    let several = PacketOptions { queues, key, ring_bytes, ..PacketOptions::new(&far) };
    let there = packet::open(&several).expect("open");
    let Spread::Tables(steering) = there.spread.clone() else {
        eprintln!("skipped: needs the right to load eBPF programs");
        return None;
    };
    Some((here, there, steering))
}

/// Sends over a link of this name to this many queues while entries are moved. Returns the load's
/// counts; `None` if programs cannot be loaded.
fn under_load(link: &str, queues: u8, moves: impl FnOnce(&dyn Steering)) -> Option<Load> {
    let (mut here, mut there, steering) = open(link, queues, 8 << 20)?;
    let load = Load::default();
    std::thread::scope(|scope| {
        let _done = Done(&load);
        scope.spawn(|| send(&mut here.device.egress[0], &load));
        there.device.ingress.iter_mut().for_each(|ingress| {
            scope.spawn(|| read(ingress, &load));
        });
        moves(&*steering);
    });
    Some(load)
}

/// Flips the flows' entries in turn between two queues.
fn flip(link: &str, flips: usize, flip: impl Fn(&dyn Steering, usize, u8)) -> Option<Load> {
    let entries: Vec<usize> = (0..FLOWS).map(entry).collect();
    under_load(link, 2, |steering| {
        for number in 0..flips {
            let entry = entries[number % entries.len()];
            flip(steering, entry, 1 - table(steering)[entry]);
        }
    })
}

fn table(steering: &dyn Steering) -> Table {
    steering.table(Vnic::DEFAULT).expect("a table")
}

/// Moves entries, checks that all of them name another queue then, and returns the results in
/// order.
fn move_entries(steering: &dyn Steering, moves: &[(usize, u8)]) -> Vec<Moved> {
    let moves = moves.iter().map(|&(entry, queue)| EntryMove { vnic: Vnic::DEFAULT, entry, queue });
    let moves: Vec<EntryMove> = moves.collect();
    let moved = steering.move_entries(&moves, Duration::from_secs(30)).expect("moved");
    assert!(moved.iter().all(|moved| moved.order == Order::Kept), "{moved:?}");
    assert_eq!(moved.iter().map(|moved| moved.entries.len()).sum::<usize>(), moves.len());
    moved
}

/// Checks that each frame arrived, once and in order.
fn assert_in_order_and_once(load: Load) {
    eprintln!("{load:?}");
    let [sent, delivered, overtaken, twice, lost] =
        [load.sent, load.delivered, load.overtaken, load.twice, load.lost]
            .map(AtomicU64::into_inner);
    assert!(delivered > 100);
    assert_eq!((overtaken, twice, lost), (0, 0, 0));
    assert_eq!(delivered, sent);
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Prints how long the moves took.
fn tell(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let [median, most] = [50, 100].map(at);
    eprintln!(
        "{what}: n {}, median {median:?}, 5 to 95 % {:?} to {:?}, 99 % {:?}, most {most:?}",
        times.len(),
        at(5),
        at(95),
        at(99)
    );
}

#[test]
fn moves_of_entries_under_load_reorder_nothing() {
    in_namespace(|| {
        let (held, took) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let held_frames = Cell::new(0);
        let load = flip("mill", number("MILLRACE_FLIPS", 100), |steering, entry, to| {
            let start = Instant::now();
            let moved = move_entries(steering, &[(entry, to)]);
            took.borrow_mut().push(start.elapsed());
            held.borrow_mut().push(moved[0].held);
            held_frames.set(held_frames.get() + moved[0].held_frames);
        });
        let Some(load) = load else { return };
        tell("held", &mut held.into_inner());
        tell("took", &mut took.into_inner());
        eprintln!("{} frames held", held_frames.get());
        assert_in_order_and_once(load);
    });
}

/// Moves of one decision: all flows to queue 0, from there to three others, dealt out, and in a
/// circle. Moves from one queue to several, or from several to one, make one batch; a circle of
/// four makes two.
#[test]
fn decisions_of_several_queues_under_load_reorder_nothing() {
    const KINDS: [&str; 4] = ["to one queue", "one to three", "dealt out", "in a circle"];
    in_namespace(|| {
        let entries: Vec<usize> = (0..FLOWS).map(entry).collect();
        let target = |kind: usize, flow: u8, from: u8| match kind {
            0 => 0,
            1 => 1 + flow % 3,
            2 => flow % 4,
            _ => (from + 1) % 4,
        };
        let (mut took, mut held): ([Vec<Duration>; 4], Vec<Duration>) = Default::default();
        let load = under_load("mill", 4, |steering| {
            for number in 0..number("MILLRACE_DECISIONS", 60) {
                let table = table(steering);
                let to = |flow| {
                    let entry = entries[usize::from(flow)];
                    (entry, target(number % 4, flow, table[entry]))
                };
                let moves = (0..FLOWS).map(to).filter(|&(entry, queue)| table[entry] != queue);
                let start = Instant::now();
                let moved = move_entries(steering, &moves.collect::<Vec<_>>());
                took[number % 4].push(start.elapsed());
                held.extend(moved.iter().map(|moved| moved.held));
            }
        });
        let Some(load) = load else { return };
        KINDS.iter().zip(&mut took).for_each(|(kind, took)| tell(kind, took));
        tell("held", &mut held);
        assert_in_order_and_once(load);
    });
}

/// Each uplink has its own fence: simultaneous moves neither wait for each other nor harm each
/// other's order.
#[test]
fn two_uplinks_move_entries_at_the_same_time() {
    in_namespace(|| {
        let (under_way, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let flips = |link| {
            flip(link, number("MILLRACE_FLIPS", 50), |steering, entry, to| {
                most.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                move_entries(steering, &[(entry, to)]);
                under_way.fetch_sub(1, Ordering::Relaxed);
            })
        };
        let loads = std::thread::scope(|scope| {
            ["left", "right"]
                .map(|link| scope.spawn(move || flips(link)))
                .map(|it| it.join().expect("no panic"))
        });
        let loads: Vec<_> = loads.into_iter().flatten().collect();
        let Some(most) = (!loads.is_empty()).then(|| most.into_inner()) else { return };
        eprintln!("{most} moves at once");
        assert_eq!(most, 2);
        loads.into_iter().for_each(assert_in_order_and_once);
    });
}

/// Opens a link to two queues of 32 slots, and steers flow 0 to the first and flow 1 to the other.
fn open_small() -> Option<(Opened, Opened, Arc<dyn Steering>)> {
    let opened = open("mill", 2, 64 << 10)?;
    assert_ne!(entry(0), entry(1));
    for flow in [0, 1] {
        opened.2.set_entry(Vnic::DEFAULT, entry(flow), flow).expect("set");
    }
    Some(opened)
}

/// Moves flow 0 to the second queue.
fn move_flow_0(steering: &dyn Steering, timeout: Duration) -> Moved {
    let moving = EntryMove { vnic: Vnic::DEFAULT, entry: entry(0), queue: 1 };
    steering.move_entries(&[moving], timeout).expect("moved").remove(0)
}

fn frames(flow: u8, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(flow, number)).collect()
}

/// The move was made, and all that arrived until the other queue had been read was lost.
#[test]
fn an_entry_stays_while_its_new_queue_has_no_room() {
    in_namespace(|| {
        let Some((mut here, _there, steering)) = open_small() else { return };
        deliver(&mut here.device.egress[0], &frames(1, 32));
        let moved = move_flow_0(&*steering, Duration::from_millis(1));
        let stayed = (vec![(Vnic::DEFAULT, entry(0))], Order::Stayed);
        assert_eq!((moved.entries, moved.order), stayed);
        assert_eq!(table(&*steering)[entry(0)], 0);
    });
}

/// A held queue's ring overflowed until the other queue had been read.
#[test]
fn a_held_queue_is_read_before_its_ring_is_full() {
    in_namespace(|| {
        let Some((mut here, mut there, steering)) = open_small() else { return };
        let (egress, load) = (&mut here.device.egress[0], Load::default());
        // The old queue has a frame that stays unread.
        deliver(egress, &frames(0, 1));
        let new = &mut there.device.ingress[1];
        std::thread::scope(|scope| {
            let done = Done(&load);
            scope.spawn(|| read(new, &load));
            let mover = scope.spawn(|| move_flow_0(&*steering, Duration::from_secs(3600)));
            waiting::until("the entry has moved", || table(&*steering)[entry(0)] == 1);
            // The kernel's own frames may take a few of the last 4 slots.
            for frame in frames(0, 200) {
                waiting::until("the queue is read", || load.under_way() < 28);
                load.sent.fetch_add(1, Ordering::Relaxed);
                deliver(egress, &[frame]);
            }
            load.all_sent.store(true, Ordering::Release);
            let moved = mover.join().expect("no panic");
            assert_eq!((moved.order, moved.lost_frames), (Order::GivenUp, 0));
            drop(done);
        });
        assert_eq!(load.delivered.into_inner(), 200);
    });
}

#[test]
fn stores_without_a_fence_are_found_to_reorder() {
    // If the readers take turns on one core, a whole load may stay in order.
    for _ in 0..20 {
        let mut overtaken = None;
        in_namespace(|| {
            let load = flip("mill", number("MILLRACE_FLIPS", 300), |steering, entry, to| {
                steering.set_entry(Vnic::DEFAULT, entry, to).expect("set");
                std::thread::sleep(Duration::from_millis(2));
            });
            overtaken = load.map(|load| load.overtaken.into_inner());
        });
        match overtaken {
            Some(0) => {}
            Some(_) | None => return,
        }
    }
    panic!("no frame of 20 loads was overtaken");
}
