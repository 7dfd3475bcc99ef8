//! Once warm, a turn allocates nothing: not when it forwards, not when it coalesces, not when it segments.

#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, reason = "a test says what it means")]

mod common;

use common::trace::Segment;
use common::{ALL, Bench, plain, rsc};
use datapath::{DropReason, PortSettings, RscPolicy};
use ports::Offloads;
use ports::memory::MemoryFrame;
use ports::vhost::{self, VhostOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Of this thread, which turns the switch; the session of an absent guest has a thread of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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
    let folder = tempfile::TempDir::new().unwrap();
    let absent = vhost::open(&VhostOptions::new(folder.path().join("vm"))).unwrap();
    let absent_id = bench.switch.add_port("absent", absent.device, plain()).unwrap();
    assert_eq!(allocations(&mut bench, &segments), 0, "as before, and to a guest that is absent");
    let drops = bench.switch.counters(absent_id).unwrap().drops;
    assert_eq!(drops[DropReason::EgressDown as usize], 25 * 200);
}
