//! The driver side of a split ring (virtio 1.2, section 2.7). See [`ring`](crate::ring).

use crate::area::{Area, Parts};
use crate::slots::{ForeignBuffer, Place, Slots, Used};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// The switch may write the buffer.
const WRITE: u64 = 2;
/// Flag of the available ring: the driver needs no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the switch needs no notifications.
const NO_NOTIFY: u16 = 1;
/// Offset of the available ring, on a page of its own.
const AVAILABLE: usize = 16 << 10;
/// Offset of the used ring. Its elements start four bytes later, at multiples of eight, so each is
/// read in one access.
const USED: usize = (32 << 10) + 4;

/// A split ring; its methods are those of [`Ring`](crate::ring::Ring).
#[derive(Debug)]
pub(crate) struct SplitRing {
    pub(crate) area: Area,
    pub(crate) slots: Slots,
    /// Used elements taken, modulo 2^16.
    taken: u16,
}

impl SplitRing {
    pub(crate) fn new(area: Area) -> SplitRing {
        let slots = Slots::new(area.shape.size, area.shape.window);
        let ring = SplitRing { area, slots, taken: 0 };
        let shape = ring.area.shape;
        let flags = if shape.writable { WRITE } else { 0 };
        for id in 0..shape.window {
            let descriptor = ring.area.ring + 16 * usize::from(id);
            let memory = &ring.area.memory;
            memory.word64(descriptor).store(ring.area.buffer(id) as u64, Relaxed);
            memory.word64(descriptor + 8).store(u64::from(shape.buffer) | flags << 32, Relaxed);
        }
        for place in 0..shape.size {
            ring.write_available(place, ring.slots.at(place));
        }
        ring.area.memory.word16(ring.area.ring + AVAILABLE).store(NO_INTERRUPT, Relaxed);
        ring
    }

    pub(crate) fn parts(&self) -> Parts {
        let start = self.area.ring;
        Parts { descriptors: start, driver: start + AVAILABLE, device: start + USED }
    }

    fn write_available(&self, place: u16, id: u16) {
        let offset = self.area.ring + AVAILABLE + 4 + 2 * usize::from(place);
        // Relaxed: published by the release store of the index.
        self.area.memory.word16(offset).store(id, Relaxed);
    }

    #[inline]
    pub(crate) fn reap(&mut self, out: &mut [Used]) -> Result<usize, ForeignBuffer> {
        let used = self.area.ring + USED;
        // Pairs with the switch's store to used.idx: elements and buffers were written before it.
        let index = self.area.memory.word16(used + 2).load(Acquire);
        let count = usize::from(index.wrapping_sub(self.taken)).min(out.len());
        let mask = self.slots.size() - 1;
        for to in &mut out[..count] {
            let place = usize::from(self.taken & mask);
            let element = self.area.memory.word64(used + 4 + 8 * place).load(Relaxed);
            #[allow(clippy::cast_possible_truncation, reason = "the two halves of an element")]
            let (id, len) = (element as u16, (element >> 32) as u32);
            self.taken = self.taken.wrapping_add(1);
            match self.slots.give_back(id) {
                Place::Same => {}
                Place::New(place) => self.write_available(place, id),
                Place::Foreign => return Err(ForeignBuffer(id)),
            }
            *to = Used { id, len };
        }
        Ok(count)
    }

    #[inline]
    pub(crate) fn publish(&mut self, count: u16) {
        self.slots.publish(count);
        let index = self.area.memory.word16(self.area.ring + AVAILABLE + 2);
        // Pairs with the switch's load of avail.idx: buffers and ids were written before it.
        index.store(self.slots.published(), Release);
    }

    pub(crate) fn wants_kick(&self) -> bool {
        // Orders the store of avail.idx before the load of the used ring's flags. Pairs with the
        // switch's fence between its store of the flags and its load of avail.idx.
        fence(SeqCst);
        self.area.memory.word16(self.area.ring + USED).load(Relaxed) & NO_NOTIFY == 0
    }
}
