//! The log of a migration against a copy of the guest's memory: after each step every page that is
//! not what it was is marked, and no page that the device had no reason to write.

use crate::guest::{
    BUFFER_REGION, BUFFER_REGION_SIZE, Guest, RING_REGION_SIZE, readable, writable,
};
use guestmem::{DirtyLog, Gpa};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use test_guest::driver::{Buffer, Driver, Shape};
use virtqueue::{BatchNumber, ChainElement, Limit, Queue, Reserved, RingFeatures};

const PAGE: u64 = 4096;
/// Its used ring has three pages, its packed ring four.
const SIZE: u16 = 1024;
const BYTES: u64 = (BUFFER_REGION + BUFFER_REGION_SIZE).div_ceil(8 * PAGE);

type Pages = BTreeSet<u64>;

fn pages(gpa: u64, len: u64) -> Range<u64> {
    gpa / PAGE..(gpa + len).div_ceil(PAGE)
}

/// A guest, its device with a log, and the memory as it was when the log was read last.
struct Bench {
    guest: Guest,
    driver: Driver,
    queue: Queue,
    log: OwnedFd,
    shadow: Vec<u8>,
    /// Pages that the device may have written since then.
    allowed: Pages,
    /// Chains that were given back, and where a split ring has their elements.
    given: u64,
    open: Vec<(BatchNumber, Vec<(ChainElement, usize)>)>,
    fill: u8,
}

impl Bench {
    fn new(features: RingFeatures) -> Bench {
        let guest = Guest::new(SIZE, features);
        let mut queue = guest.queue();
        let log = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&log, BYTES).unwrap();
        let mapped = DirtyLog::map(log.as_fd(), 0, BYTES, &guest.memory).unwrap();
        queue.set_log(Some(mapped));
        assert_eq!(marked(&log), ring_pages(&guest), "what a device before us may have written");
        let (driver, shadow) = (guest.driver(), memory(&guest));
        let (allowed, open) = (Pages::new(), Vec::new());
        Bench { guest, driver, queue, log, shadow, allowed, given: 0, open, fill: 0 }
    }

    fn has(&self, feature: RingFeatures) -> bool {
        self.guest.setup.features.contains(feature)
    }

    /// What the driver does is none of the device's: taken for what was there before.
    fn drive(&mut self, chains: &[Vec<Buffer>], shape: Shape) {
        for chain in chains {
            let _ = self.driver.add(chain, shape);
        }
        self.driver.publish();
        while self.driver.reap().is_some() {}
        self.shadow = memory(&self.guest);
    }

    /// Reserves buffers for frames. Writes them now, or if `later` is set, when the batch ends.
    fn fill(&mut self, frames: &[u32], later: bool) {
        let mut places = Vec::new();
        for len in frames {
            let Ok(Reserved::Buffers(room)) = self.queue.reserve(*len, 64) else { break };
            let mut left = *len as usize;
            for element in room.elements {
                let len = element.len.min(left);
                left -= len;
                places.push((*element, len));
            }
        }
        if later {
            let batch = self.queue.begin_batch();
            self.open.push((batch, places));
        } else {
            self.write(&places);
            self.queue.publish();
        }
    }

    /// Writes the frames of an open batch and ends it. It need not be the oldest.
    fn end(&mut self, which: usize) {
        if self.open.is_empty() {
            return;
        }
        let (batch, places) = self.open.remove(which % self.open.len());
        self.write(&places);
        self.queue.end_batch(batch);
    }

    /// Fills buffers with a byte value other than the last one, so that each write changes memory.
    fn write(&mut self, places: &[(ChainElement, usize)]) {
        self.fill = self.fill.wrapping_add(1).max(1);
        for (element, len) in places {
            let gpa = self.guest.gpa_of(element);
            assert!(self.guest.memory.write(Gpa(gpa), &vec![self.fill; *len]));
            self.allowed.extend(pages(gpa, *len as u64));
        }
    }

    /// Allows the write of the field that enables or disables the driver's notifications.
    fn allow_wish(&mut self) {
        let device = self.guest.setup.rings.device.0;
        let by_position = !self.has(RingFeatures::RING_PACKED) && self.has(RingFeatures::EVENT_IDX);
        let place = if by_position { 4 + 8 * u64::from(SIZE) } else { 0 };
        self.allowed.extend(pages(device + place, 2));
    }

    /// What of the ring may have been written since the last look.
    fn allow_ring(&mut self) {
        let rings = self.guest.setup.rings;
        // A used descriptor has other flags than before: those that changed were written, and no
        // others.
        if self.has(RingFeatures::RING_PACKED) {
            return;
        }
        let index = u16::from_le_bytes(self.guest.read(rings.device.0 + 2, 2).try_into().unwrap());
        while self.given as u16 != index {
            let place = self.given % u64::from(SIZE);
            self.allowed.extend(pages(rings.device.0 + 4 + 8 * place, 8));
            self.allowed.extend(pages(rings.device.0, 4));
            self.given += 1;
        }
    }

    /// Reads the log and empties it, as a front end does each round. Batches are marked when they
    /// end, and what is behind them.
    fn check(&mut self) {
        if !self.open.is_empty() {
            return;
        }
        let after = memory(&self.guest);
        let both = after.chunks(PAGE as usize).zip(self.shadow.chunks(PAGE as usize));
        let changed: Pages = both
            .zip(0..)
            .filter(|((after, before), _)| after != before)
            .map(|(_, page)| {
                if page < RING_REGION_SIZE / PAGE {
                    page
                } else {
                    page + (BUFFER_REGION - RING_REGION_SIZE) / PAGE
                }
            })
            .collect();
        let marked = marked(&self.log);
        self.allow_ring();
        let missed: Vec<_> = changed.difference(&marked).collect();
        assert!(missed.is_empty(), "written and not marked: {missed:x?}");
        let idle: Vec<_> = marked
            .iter()
            .filter(|page| !changed.contains(page) && !self.allowed.contains(page))
            .collect();
        assert!(idle.is_empty(), "marked and not written: {idle:x?}");
        self.shadow = after;
        self.allowed.clear();
    }
}

/// Returns the pages that are marked; the log is empty afterwards.
fn marked(log: &OwnedFd) -> Pages {
    let mut bits = vec![0; BYTES as usize];
    pread(log, &mut bits, 0).unwrap();
    pwrite(log, &vec![0; BYTES as usize], 0).unwrap();
    (0..BYTES * 8).filter(|page| bits[(page / 8) as usize] >> (page % 8) & 1 != 0).collect()
}

/// Returns the pages of the ring that a device writes.
fn ring_pages(guest: &Guest) -> Pages {
    let (rings, size) = (guest.setup.rings, u64::from(SIZE));
    if guest.setup.features.contains(RingFeatures::RING_PACKED) {
        pages(rings.descriptors.0, 16 * size).chain(pages(rings.device.0, 4)).collect()
    } else {
        pages(rings.device.0, 4 + 8 * size + 2).collect()
    }
}

/// Returns a copy of the guest's memory, region by region.
fn memory(guest: &Guest) -> Vec<u8> {
    [
        guest.read(0, RING_REGION_SIZE as usize),
        guest.read(BUFFER_REGION, BUFFER_REGION_SIZE as usize),
    ]
    .concat()
}

#[derive(Clone, Debug)]
enum Step {
    /// The driver makes chains available: bytes of each of their buffers.
    Offer(Vec<Vec<u16>>, bool),
    /// The device fills them with frames of these lengths.
    Fill(Vec<u16>),
    /// The device reserves room for frames of these lengths, to be written when the batch ends.
    Begin(Vec<u16>),
    End(usize),
    Arm,
    Disarm,
}

fn step() -> impl Strategy<Value = Step> {
    let lengths = || prop::collection::vec(1..6000u16, 1..20);
    let chains = prop::collection::vec(prop::collection::vec(1..5000u16, 1..4), 1..120);
    prop_oneof![
        4 => (chains, any::<bool>()).prop_map(|(chains, table)| Step::Offer(chains, table)),
        4 => lengths().prop_map(Step::Fill),
        2 => lengths().prop_map(Step::Begin),
        2 => any::<usize>().prop_map(Step::End),
        1 => Just(Step::Arm),
        1 => Just(Step::Disarm),
    ]
}

fn features() -> impl Strategy<Value = RingFeatures> {
    let any_of = [RingFeatures::RING_PACKED, RingFeatures::EVENT_IDX, RingFeatures::IN_ORDER];
    prop::sample::subsequence(any_of.to_vec(), 0..=3).prop_map(|some| some.into_iter().collect())
}

/// Buffers, each in memory that no other recent one has.
fn buffers(lengths: &[u16], next: &mut u64, write: bool) -> Vec<Buffer> {
    let buffer = |len: &u16| {
        let len = u32::from(*len);
        if *next + u64::from(len) > BUFFER_REGION_SIZE {
            *next = 0;
        }
        let gpa = BUFFER_REGION + *next;
        *next += u64::from(len);
        if write { writable(gpa, len) } else { readable(gpa, len) }
    };
    lengths.iter().map(buffer).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn each_page_that_an_egress_ring_writes_is_marked_and_no_other(
        features in features(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let (mut bench, mut next) = (Bench::new(features), 0);
        for step in steps {
            match step {
                Step::Offer(chains, table) => {
                    let chains: Vec<_> =
                        chains.iter().map(|chain| buffers(chain, &mut next, true)).collect();
                    // What is not written yet would be taken for the driver's.
                    while !bench.open.is_empty() {
                        bench.end(0);
                    }
                    bench.check();
                    bench.drive(&chains, if table { Shape::Indirect } else { Shape::Direct });
                }
                Step::Fill(frames) => bench.fill(&frames.into_iter().map(u32::from).collect::<Vec<_>>(), false),
                Step::Begin(frames) => bench.fill(&frames.into_iter().map(u32::from).collect::<Vec<_>>(), true),
                Step::End(which) => bench.end(which),
                Step::Arm => {
                    bench.queue.arm();
                    bench.allow_wish();
                }
                Step::Disarm => {
                    bench.queue.disarm();
                    bench.allow_wish();
                }
            }
            bench.check();
        }
    }

    #[test]
    fn each_page_that_an_ingress_ring_writes_is_marked_and_no_other(
        features in features(),
        bursts in prop::collection::vec((prop::collection::vec(prop::collection::vec(1..3000u16, 1..4), 1..200), 1..200usize, any::<bool>()), 1..20),
    ) {
        let (mut bench, mut next) = (Bench::new(features), 0);
        for (chains, count, sleeps) in bursts {
            let chains: Vec<_> =
                chains.iter().map(|chain| buffers(chain, &mut next, false)).collect();
            bench.drive(&chains, Shape::Direct);
            bench.queue.take(Limit { chains: count, bytes: usize::MAX }).unwrap();
            bench.check();
            bench.queue.complete(usize::MAX);
            bench.check();
            if sleeps {
                bench.queue.arm();
                bench.allow_wish();
                bench.check();
                bench.queue.disarm();
                bench.allow_wish();
                bench.check();
            }
        }
    }
}
