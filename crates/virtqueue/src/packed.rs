//! The device side of a packed ring (virtio 1.2, section 2.8).
//!
//! Buffers are used in the order they were made available, so the place where a buffer is marked as used is the place
//! where its own chain began, and nothing the driver still has to give us is ever overwritten.

use crate::chain::{Chain, Partial, TableOrder, Walk, Want};
use crate::descriptor::{AVAIL, INDIRECT, NEXT, USED};
use crate::event::{arm_packed, disarm_packed, wanted_packed};
use crate::packed_area::{PackedArea, Position};
use crate::virtqueue::{Limit, Ring};
use crate::{Features, Piece, QueueFault, Rings, Setup, SetupError};
use guestmem::{DirtyLog, GuestMemory};
use std::sync::Arc;

/// A packed ring and how far the device has come in it.
#[derive(Debug)]
pub struct Packed {
    area: PackedArea,
    by_position: bool,
    in_order: bool,
    /// The next descriptor to look at.
    next: Position,
    /// The next descriptor to mark as used: where the oldest chain that we hold begins.
    used: Position,
    /// Slots from `used` to `next`.
    held: u16,
}

impl Packed {
    #[inline(always)]
    fn is_available(&self, position: Position) -> bool {
        self.area.flags(position) & (AVAIL | USED) == position.available()
    }

    /// Takes chains of one descriptor, up to the end of the lap, to one that is not as simple, or to the last one
    /// that is available. How many, and how many bytes are left of the budget.
    #[inline(always)]
    fn take_run(&self, walk: &mut Walk, count: usize, budget: usize, want: Want) -> (usize, usize) {
        let cells = self.area.descriptors.get(self.next.slot()..).unwrap_or_default();
        let run = walk.run(count);
        let (mut taken, mut left, mut end) = (0, budget, run.start);
        for ((cell, piece), chain) in cells.iter().zip(run.pieces).zip(run.chains) {
            let flags = cell.read_flags();
            if flags & (AVAIL | USED) != self.next.available() {
                break;
            }
            let descriptor = cell.read(flags);
            let Some(start) = want.simple(descriptor, &run.span) else { break };
            let bytes = descriptor.len;
            end += 1;
            *piece = Piece { start: start.as_ptr(), len: bytes as usize };
            *chain = Chain { end, bytes, written: 0, id: descriptor.tag, slots: 1 };
            taken += 1;
            left = left.saturating_sub(bytes as usize);
            if left == 0 {
                break;
            }
        }
        walk.extend(taken);
        (taken, left)
    }

    /// Takes a chain of any kind, whose head is available; how many slots it has. What is wrong with it is said here.
    fn take_long(&self, walk: &mut Walk, want: Want) -> Result<u16, QueueFault> {
        let room = self.area.size - self.held;
        let (mut partial, mut position) = (Partial::default(), self.next);
        for slots in 1..=room {
            let Some(cell) = self.area.descriptors.get(position.slot()) else { break };
            // Only the head says that a chain is available (section 2.8.21.1.1); the others were written before it.
            let flags = cell.read_flags();
            let descriptor = cell.read(flags);
            walk.add(&mut partial, descriptor, want, TableOrder::Sequential)?;
            if flags & INDIRECT != 0 || flags & NEXT == 0 {
                walk.finish(partial, descriptor.tag, slots)?;
                return Ok(slots);
            }
            position = position.advance(1, self.area.size);
        }
        Err(QueueFault::ChainTooLong { limit: u32::from(room) })
    }

    #[inline(always)]
    fn advance(&mut self, slots: u16) {
        self.next = self.next.advance(slots, self.area.size);
        self.held += slots;
    }

    fn mark_used(&self, position: Position, id: u16, written: u32) {
        if let Some(cell) = self.area.descriptors.get(position.slot()) {
            cell.write_used(id, written, position.used());
        }
    }
}

/// A ring that nobody has used yet has base 0 with the wrap counter set. User-mode Linux says 0 without it, which is
/// also what a ring says after an odd number of laps. Such a ring has USED somewhere: a batch was marked as used in
/// that lap, or the driver has begun the next. A fresh one has it nowhere.
fn resume(area: &PackedArea, setup: &Setup) -> Result<Position, SetupError> {
    let Setup { base, size, .. } = *setup;
    #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let position = Position::from_packed(base as u16);
    if position.slot() >= usize::from(size) {
        return Err(SetupError::Base { base, size });
    }
    let has_used = || area.descriptors.iter().any(|cell| cell.read_flags() & USED != 0);
    Ok(if position.packed() == 0 && !has_used() { Position::START } else { position })
}

impl Ring for Packed {
    fn new(memory: &Arc<GuestMemory>, setup: &Setup) -> Result<Packed, SetupError> {
        let area = PackedArea::new(memory, setup.rings, setup.size)?;
        let next = resume(&area, setup)?;
        Ok(Packed {
            area,
            by_position: setup.features.contains(Features::EVENT_IDX),
            in_order: setup.features.contains(Features::IN_ORDER),
            next,
            used: next,
            held: 0,
        })
    }

    #[inline(always)]
    fn take(&mut self, walk: &mut Walk, limit: Limit, want: Want) -> Result<(), QueueFault> {
        let (mut count, mut budget) = (limit.chains, limit.bytes);
        while count > 0 && budget > 0 && self.held < self.area.size {
            let lap = usize::from(self.area.size) - self.next.slot();
            let run = count.min(lap).min(usize::from(self.area.size - self.held));
            let (taken, left) = self.take_run(walk, run, budget, want);
            #[allow(clippy::cast_possible_truncation, reason = "at most the ring's size")]
            self.advance(taken as u16);
            (count, budget) = (count - taken, left);
            if taken == run || budget == 0 {
                continue;
            }
            if !self.is_available(self.next) {
                break;
            }
            let slots = self.take_long(walk, want)?;
            self.advance(slots);
            (count, budget) = (count - 1, budget.saturating_sub(walk.weight_of_last()));
        }
        Ok(())
    }

    /// The first descriptor is marked last: the driver waits there, and its look must not take the line away from us.
    #[inline]
    fn give_back(&mut self, chains: &[Chain]) -> bool {
        let [first, rest @ ..] = chains else { return false };
        let size = self.area.size;
        let mut position = self.used.advance(first.slots, size);
        let mut slots = first.slots;
        // With IN_ORDER one used descriptor stands for a batch (section 2.8.8), but has no lengths for it.
        let batch = self.in_order && chains.iter().all(|chain| chain.written == 0);
        for chain in rest {
            if !batch {
                self.mark_used(position, chain.id, chain.written);
            }
            position = position.advance(chain.slots, size);
            slots += chain.slots;
        }
        let id = rest.last().filter(|_| batch).unwrap_or(first).id;
        self.mark_used(self.used, id, first.written);
        self.used = position;
        self.held -= slots;
        wanted_packed(&*self.area.driver_event, position.packed(), slots, size)
    }

    fn remap(&mut self, memory: &Arc<GuestMemory>, rings: Rings) -> Result<(), SetupError> {
        self.area = PackedArea::new(memory, rings, self.area.size)?;
        self.next = self.used;
        self.held = 0;
        Ok(())
    }

    fn arm(&mut self) -> bool {
        let position = self.next.packed();
        arm_packed(&*self.area.device_event, self.by_position, position, || {
            self.held < self.area.size && self.is_available(self.next)
        })
    }

    fn disarm(&mut self) {
        disarm_packed(&*self.area.device_event);
    }

    fn base(&self) -> u32 {
        let half = u32::from(self.used.packed());
        half | half << 16
    }

    fn log(&self, log: &DirtyLog) {
        self.area.log(log);
    }
}
