//! Once warm, a turn allocates nothing: not when it forwards, not when it coalesces, not when it
//! segments. The dearest turn asks for what its work limit allows. A program of its own, since it
//! has an allocator of its own.

#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, reason = "a test says what it means")]

mod common;

use common::limits::{most_allocated, most_in_one_allocation};
use common::trace::Segment;
use common::{ALL, Bench, plain, rsc};
use datapath::{DropReason, PortSettings, RscPolicy, Rss, Steer};
use ports::Offloads;
use ports::memory::MemoryFrame;
use ports::vhost::{self, VhostOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use wire::vnet::{Flags, GsoType, VnetHeader};

struct Counting;

thread_local! {
    /// Allocations of this thread, which steps the switch. The session of an absent guest has a
    /// thread of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes of all allocations, and of the largest.
    static BYTES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

fn count(size: usize) {
    let ((all, largest), size) = (BYTES.get(), size as u64);
    BYTES.set((all + size, largest.max(size)));
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: all is left to the system's allocator; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations in 20 turns of these frames, after 5 to warm up.
fn allocations(bench: &mut Bench, frames: &[MemoryFrame]) -> u64 {
    let turn = |bench: &mut Bench| {
        for frame in frames {
            assert!(bench.peers[0].send(frame.vnet, &frame.bytes));
        }
        let before = ALLOCATIONS.get();
        bench.step();
        let allocated = ALLOCATIONS.get() - before;
        for peer in &bench.peers {
            while let Some(frame) = peer.receive() {
                peer.recycle(frame);
            }
        }
        allocated
    };
    for _ in 0..5 {
        turn(bench);
    }
    (0..20).map(|_| turn(bench)).sum()
}

#[test]
fn a_warm_turn_allocates_nothing_where_frames_wait() {
    let limited = PortSettings { rate_to: Some(8_000_000), ..plain() };
    let mut bench = Bench::new(&[(plain(), ALL), (limited, ALL)]);
    let frames = vec![Segment::parse("1+1448 .").frame(); 40];
    assert_eq!(allocations(&mut bench, &frames), 0);
    let counters = bench.switch.counters(bench.ids[1]).unwrap();
    assert!(counters.drops[DropReason::RateLimited as usize] > 0);
}

#[test]
fn a_warm_turn_allocates_nothing_where_flows_are_looked_at() {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
    bench.switch.take_flows(true, drop).unwrap();
    let frames: Vec<_> =
        (0..200).map(|number| Segment::parse(&format!("1+6 . flow={number}")).frame()).collect();
    assert_eq!(allocations(&mut bench, &frames), 0);
}

#[test]
fn a_warm_turn_allocates_nothing() {
    let coalescing = PortSettings { rsc: rsc(RscPolicy::Ndis), ..plain() };
    let mut bench = Bench::new(&[(plain(), ALL), (coalescing, ALL), (plain(), Offloads::empty())]);
    let segments: Vec<MemoryFrame> = (0..200)
        .map(|n| Segment { sequence: n * 1000, payload: 1000, ..Segment::parse(".") }.frame())
        .collect();
    assert_eq!(
        allocations(&mut bench, &segments),
        0,
        "200 segments, flooded: coalesced to one port, plain to the other"
    );
    let trains: Vec<MemoryFrame> = (0..5)
        .map(|n| Segment { sequence: n * 50_000, ..Segment::parse("0+50000 . gso=1000") }.frame())
        .collect();
    assert_eq!(
        allocations(&mut bench, &trains),
        0,
        "5 trains, whole to one port, 250 segments to the other"
    );
    let rss = Rss { steer: Steer::Follow, ..Rss::default() };
    bench.add_queues(PortSettings { rss, ..plain() }, ALL, 4);
    let flows: Vec<MemoryFrame> =
        (0..200).map(|n| Segment { flow: n, ..Segment::parse("1+6 .") }.frame()).collect();
    assert_eq!(allocations(&mut bench, &flows), 0, "200 flows, to four queues as well");
    let folder = tempfile::TempDir::new().unwrap();
    let absent = vhost::open(&VhostOptions::new(folder.path().join("vm"))).unwrap();
    let absent_id = bench.switch.add_port("absent", absent.device, plain()).unwrap();
    assert_eq!(allocations(&mut bench, &segments), 0, "as before, and to a guest that is absent");
    let drops = bench.switch.counters(absent_id).unwrap().drops;
    assert_eq!(drops[DropReason::EgressDown as usize], 25 * 200);
}

/// As many datagrams of a byte as a train may have, over IPv6 with `options` bytes of destination
/// options.
fn datagrams(options: u8) -> MemoryFrame {
    let mut bytes = vec![2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x86, 0xdd, 0x60, 0, 0, 0];
    bytes.extend((u16::from(options) + 8 + 128).to_be_bytes());
    bytes.extend([60, 64]);
    bytes.extend([0xfd; 32]);
    bytes.extend([17, options / 8 - 1]);
    bytes.resize(54 + usize::from(options), 0);
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.csum_start.set(54 + u16::from(options));
    vnet.csum_offset.set(6);
    vnet.set_gso(GsoType::UdpL4, false);
    vnet.gso_size.set(1);
    bytes.extend([0x10, 0, 0x20, 0, 0, 8 + 128, 0, 0]);
    bytes.resize(bytes.len() + 128, 0);
    MemoryFrame { vnet, bytes }
}

#[test]
fn the_dearest_turn_allocates_no_more_than_its_work_limit_allows() {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), Offloads::CSUM)]);
    let mut back = Segment::parse("1+6 .").frame();
    back.bytes[..12].rotate_left(6);
    bench.send(1, &[back]);
    BYTES.set((0, 0));
    bench.send(0, &vec![datagrams(192); 256]);
    let (all, largest) = BYTES.get();
    let drops = bench.switch.counters(bench.ids[1]).unwrap().drops;
    assert!(drops[DropReason::WorkLimit as usize] > 0, "the turn reached its limit");
    assert_eq!(largest, most_in_one_allocation(54 + 192 + 8));
    assert!(all <= most_allocated(54 + 192 + 8), "{all}");
}
