//! Instructions of a burst of 256 single-buffer frames, in both formats and directions. Divide by
//! 256 for a frame.
#![allow(missing_docs, reason = "the macros of the bench harness make public items")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what goes wrong here ends the bench")]

#[path = "../tests/it/guest.rs"]
mod guest;

use guest::{BUFFER_REGION, Guest, readable, writable};
use gungraun::{library_benchmark, library_benchmark_group, main};
use std::hint::black_box;
use test_guest::driver::{Driver, Shape};
use virtqueue::{Limit, Queue, Reserved, RingFeatures};

const FRAMES: u16 = 256;

/// Returns a queue with a full burst available. One burst has gone before, so that nothing is done
/// for the first time.
fn prepare(features: RingFeatures, write: bool) -> (Queue, Driver) {
    let guest = Guest::new(FRAMES, features | RingFeatures::EVENT_IDX);
    let (mut queue, mut driver) = (guest.queue(), guest.driver());
    for warm in [true, false] {
        for frame in 0..u64::from(FRAMES) {
            let gpa = BUFFER_REGION + frame * 2048;
            let buffer = if write { writable(gpa, 1526) } else { readable(gpa, 76) };
            driver.add(&[buffer], Shape::Direct).expect("the ring has room for a burst");
        }
        driver.publish();
        driver.arm();
        if warm {
            let done = if write { fill(&mut queue) } else { drain(&mut queue) };
            assert!(done >= usize::from(FRAMES));
            while driver.reap().is_some() {}
        }
    }
    (queue, driver)
}

fn split(write: bool) -> (Queue, Driver) {
    prepare(RingFeatures::empty(), write)
}

fn packed(write: bool) -> (Queue, Driver) {
    prepare(RingFeatures::RING_PACKED, write)
}

fn packed_in_order(write: bool) -> (Queue, Driver) {
    prepare(RingFeatures::RING_PACKED | RingFeatures::IN_ORDER, write)
}

fn drain(queue: &mut Queue) -> usize {
    let limit = Limit { chains: usize::from(FRAMES), bytes: 512 * 1024 };
    let count = queue.take(limit).unwrap_or(0);
    let bytes = queue
        .taken()
        .filter_map(|elements| elements.first())
        .map(|element| element.len)
        .sum::<usize>();
    queue.complete(count);
    count + bytes
}

fn fill(queue: &mut Queue) -> usize {
    let mut room = 0;
    for _ in 0..FRAMES {
        if let Some(elements) = queue.reserve_one(76) {
            room += elements.len();
        } else if let Ok(Reserved::Buffers(found)) = queue.reserve(76, 16) {
            room += found.elements.len();
        }
    }
    queue.publish();
    room
}

#[library_benchmark]
#[bench::burst(split(false))]
fn split_take_complete(state: (Queue, Driver)) -> (usize, Queue, Driver) {
    let (mut queue, driver) = state;
    (black_box(drain(&mut queue)), queue, driver)
}

#[library_benchmark]
#[bench::burst(split(true))]
fn split_reserve_publish(state: (Queue, Driver)) -> (usize, Queue, Driver) {
    let (mut queue, driver) = state;
    (black_box(fill(&mut queue)), queue, driver)
}

#[library_benchmark]
#[bench::burst(packed(false))]
#[bench::in_order(packed_in_order(false))]
fn packed_take_complete(state: (Queue, Driver)) -> (usize, Queue, Driver) {
    let (mut queue, driver) = state;
    (black_box(drain(&mut queue)), queue, driver)
}

#[library_benchmark]
#[bench::burst(packed(true))]
fn packed_reserve_publish(state: (Queue, Driver)) -> (usize, Queue, Driver) {
    let (mut queue, driver) = state;
    (black_box(fill(&mut queue)), queue, driver)
}

library_benchmark_group!(
    name = bursts,
    benchmarks =
        [split_take_complete, split_reserve_publish, packed_take_complete, packed_reserve_publish]
);
main!(library_benchmark_groups = bursts);
