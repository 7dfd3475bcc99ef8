//! The driver side of a packed ring (virtio 1.2, section 2.8). See [`ring`](crate::ring).

use crate::area::{Area, Parts};
use crate::slots::{ForeignBuffer, Place, Slots, Used};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Flags of a descriptor, at their place in its second eight bytes (after length and id).
const WRITE: u64 = 2 << 48;
const AVAILABLE: u64 = 1 << (48 + 7);
const USED: u64 = 1 << (48 + 15);
/// Flag of an event suppression structure: no events.
const DISABLE: u16 = 1;
/// Offsets of the event suppression structures.
const DRIVER_EVENT: usize = 16 << 10;
const DEVICE_EVENT: usize = 32 << 10;

/// A packed ring; its methods are those of [`Ring`](crate::ring::Ring).
#[derive(Debug)]
pub(crate) struct PackedRing {
    pub(crate) area: Area,
    pub(crate) slots: Slots,
    /// Used descriptors taken, modulo 2^16: a power of two of rounds.
    taken: u16,
    /// Whether one used descriptor may stand for all buffers up to its own (section 2.8.2).
    in_order: bool,
    /// Buffers of the last used descriptor that are not taken yet, and its length.
    batch: u16,
    len: u32,
}

impl PackedRing {
    pub(crate) fn new(area: Area, in_order: bool) -> PackedRing {
        let slots = Slots::new(area.shape.size, area.shape.window);
        let ring = PackedRing { area, slots, taken: 0, in_order, batch: 0, len: 0 };
        for place in 0..ring.area.shape.size {
            ring.write_address(place, ring.slots.at(place));
        }
        ring.area.memory.word16(ring.area.ring + DRIVER_EVENT + 2).store(DISABLE, Relaxed);
        ring
    }

    pub(crate) fn parts(&self) -> Parts {
        let start = self.area.ring;
        Parts { descriptors: start, driver: start + DRIVER_EVENT, device: start + DEVICE_EVENT }
    }

    #[inline(always)]
    fn descriptor(&self, place: u16) -> usize {
        self.area.ring + 16 * usize::from(place)
    }

    fn write_address(&self, place: u16, id: u16) {
        let address = self.area.memory.word64(self.descriptor(place));
        // Relaxed: published by the release store of the flags.
        address.store(self.area.buffer(id) as u64, Relaxed);
    }

    /// Returns the wrap counter at a position: true in the first round, false in the second, and so
    /// on.
    #[inline(always)]
    fn wraps(&self, counter: u16) -> bool {
        counter & self.slots.size() == 0
    }

    #[inline]
    pub(crate) fn reap(&mut self, out: &mut [Used]) -> Result<usize, ForeignBuffer> {
        if self.in_order {
            return self.reap_in_order(out);
        }
        let mut count = 0;
        for to in out {
            let Some(used) = self.used() else { break };
            self.taken = self.taken.wrapping_add(1);
            match self.slots.give_back(used.id) {
                Place::Same => {}
                Place::New(place) => self.write_address(place, used.id),
                Place::Foreign => return Err(ForeignBuffer(used.id)),
            }
            *to = used;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the used descriptor at the next position, if the switch has written it.
    #[inline(always)]
    fn used(&self) -> Option<Used> {
        let mask = self.slots.size() - 1;
        let offset = self.descriptor(self.taken & mask) + 8;
        // Pairs with the switch's store of the flags: the rest and the buffer were written before
        // it.
        let word = self.area.memory.word64(offset).load(Acquire);
        let done = if self.wraps(self.taken) { AVAILABLE | USED } else { 0 };
        if word & (AVAILABLE | USED) != done || self.slots.free() == self.area.shape.window {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "the fields of a descriptor")]
        let (len, id) = (word as u32, (word >> 32) as u16);
        Some(Used { id, len })
    }

    /// Takes buffers in the order in which they were published, up to the one that a used
    /// descriptor names.
    fn reap_in_order(&mut self, out: &mut [Used]) -> Result<usize, ForeignBuffer> {
        let mut count = 0;
        for to in out {
            if self.batch == 0 {
                let Some(used) = self.used() else { break };
                self.batch = self.slots.up_to(used.id).ok_or(ForeignBuffer(used.id))?;
                self.len = used.len;
            }
            let id = self.slots.oldest();
            self.slots.give_back(id);
            self.taken = self.taken.wrapping_add(1);
            self.batch -= 1;
            *to = Used { id, len: self.len };
            count += 1;
        }
        Ok(count)
    }

    /// Writes from the last to the first, so that the switch, which waits for the first, finds all
    /// of them.
    #[inline]
    pub(crate) fn publish(&mut self, count: u16) {
        let mask = self.slots.size() - 1;
        let kind = if self.area.shape.writable { WRITE } else { 0 };
        for ahead in (0..count).rev() {
            let counter = self.slots.published().wrapping_add(ahead);
            let round = if self.wraps(counter) { AVAILABLE } else { USED };
            let id = u64::from(self.slots.next(ahead));
            let word = u64::from(self.area.shape.buffer) | id << 32 | kind | round;
            let offset = self.descriptor(counter & mask) + 8;
            // Pairs with the switch's load of the flags: address and buffer were written before it.
            self.area.memory.word64(offset).store(word, Release);
        }
        self.slots.publish(count);
    }

    pub(crate) fn wants_kick(&self) -> bool {
        // Orders the store of the flags before the load of the switch's event flags. Pairs with the
        // switch's fence between its store of the event flags and its load of the descriptor's.
        fence(SeqCst);
        self.area.memory.word16(self.area.ring + DEVICE_EVENT + 2).load(Relaxed) & 3 != DISABLE
    }
}
