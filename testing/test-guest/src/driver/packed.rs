//! The driver side of a packed ring.

use super::{Buffer, INDIRECT, NEXT, Ring, Shape, Used, kind, need_event};
use crate::shared::at;
use guestmem::Gpa;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Descriptor flags that carry wrap counters (virtio 1.2, section 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Flags of an event suppression word (section 2.8.14): never, and at a position; 0 is always.
const DISABLE: u32 = 1 << 16;
const AT_POSITION: u32 = 2 << 16;

/// A slot of the ring and the wrap counter there.
#[derive(Clone, Copy, Debug)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    /// Encodes as an event suppression word, with the wrap counter in bit 15.
    fn word(self) -> u16 {
        self.slot | u16::from(self.wrap) << 15
    }

    fn advance(self, slots: u16, size: u16) -> Position {
        let slot = self.slot + slots;
        if slot < size {
            Position { slot, ..self }
        } else {
            Position { slot: slot - size, wrap: !self.wrap }
        }
    }
}

/// The driver side of a packed ring. See [`Driver`](super::Driver).
#[derive(Debug)]
pub struct PackedDriver {
    pub(super) ring: Ring,
    /// Ids that no chain has.
    ids: VecDeque<u16>,
    /// Chains in the device's hands, in ring order: id and slots.
    chains: VecDeque<(u16, u16)>,
    free_slots: u16,
    next: Position,
    used: Position,
    /// The head that is not published yet, with its flags, and the slots added since.
    held_back: Option<(Position, u16)>,
    added: u16,
    /// With IN_ORDER: the last id of a batch. Its other chains are handed out one by one.
    batch: Option<u16>,
}

impl PackedDriver {
    pub(super) fn new(ring: Ring) -> PackedDriver {
        let (size, start) = (ring.layout.size, Position { slot: 0, wrap: true });
        PackedDriver {
            ring,
            ids: (0..size).collect(),
            chains: VecDeque::new(),
            free_slots: size,
            next: start,
            used: start,
            held_back: None,
            added: 0,
            batch: None,
        }
    }

    pub(super) fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        let indirect = shape == Shape::Indirect;
        let needed = if indirect { 1 } else { u16::try_from(buffers.len()).ok()? };
        if buffers.is_empty() || needed > self.free_slots {
            return None;
        }
        let id = *self.ids.front()?;
        if indirect {
            let (gpa, len) = self.ring.fill_table(id, buffers)?;
            self.put(Buffer { gpa, len, writable: false }, INDIRECT, id);
        } else {
            for (buffer, left) in buffers.iter().zip((0..needed).rev()) {
                self.put(*buffer, kind(buffer) | if left > 0 { NEXT } else { 0 }, id);
            }
        }
        self.ids.pop_front();
        self.chains.push_back((id, needed));
        self.free_slots -= needed;
        self.added += needed;
        Some(id)
    }

    /// Writes one descriptor. The first one since the last publish stays unavailable until the
    /// next: the device stops there.
    fn put(&mut self, buffer: Buffer, flags: u16, id: u16) {
        let flags = flags | if self.next.wrap { AVAIL } else { USED };
        let cell = self.ring.descriptor(self.next.slot);
        cell.write(buffer.gpa, buffer.len);
        let [id_word, _] = &cell.last;
        id_word.store(id, Ordering::Relaxed);
        if self.held_back.is_none() {
            self.held_back = Some((self.next, flags));
        } else {
            self.hand_over(self.next, flags);
        }
        self.next = self.next.advance(1, self.ring.layout.size);
    }

    fn hand_over(&self, position: Position, flags: u16) {
        let [_, flags_word] = &self.ring.descriptor(position.slot).last;
        // Pairs with the device's acquire load of the flags: descriptor and buffer come before it.
        flags_word.store(flags, Ordering::Release);
    }

    pub(super) fn publish(&mut self) -> bool {
        let Some((position, flags)) = self.held_back.take() else { return false };
        self.hand_over(position, flags);
        let slots = std::mem::take(&mut self.added);
        // Pairs with the device's fence between asking for a notification and its last look at the
        // flags.
        fence(Ordering::SeqCst);
        let request = self.event(self.ring.layout.device).load(Ordering::Relaxed);
        match request & (DISABLE | AT_POSITION) {
            0 => true,
            AT_POSITION => self.passed(request & 0xffff, slots),
            _ => false,
        }
    }

    /// Whether the last `slots` slots reached the position the device waits for; one of the other
    /// lap is a ring behind.
    fn passed(&self, request: u32, slots: u16) -> bool {
        let lap = (u32::from(self.next.word()) ^ request) & 1 << 15;
        let event = u16::try_from(request & 0x7fff).unwrap_or(0);
        let event = if lap == 0 { event } else { event.wrapping_sub(self.ring.layout.size) };
        need_event(event, self.next.slot, self.next.slot.wrapping_sub(slots))
    }

    /// Returns an event suppression word.
    fn event(&self, gpa: Gpa) -> &AtomicU32 {
        at(&self.ring.memory, gpa)
    }

    /// Whether the next descriptor is used: both bits equal the wrap counter (section 2.8.1).
    fn is_used(&self) -> bool {
        let [_, flags] = &self.ring.descriptor(self.used.slot).last;
        let used = if self.used.wrap { AVAIL | USED } else { 0 };
        // Pairs with the device's release store of the flags: id, length and buffer are written by
        // then.
        flags.load(Ordering::Acquire) & (AVAIL | USED) == used && !self.chains.is_empty()
    }

    pub(super) fn reap(&mut self) -> Option<Used> {
        if let Some(last) = self.batch {
            return self.finish_oldest(last, 0);
        }
        if !self.is_used() {
            return None;
        }
        let cell = self.ring.descriptor(self.used.slot);
        let [id, _] = &cell.last;
        // Relaxed: ordered by the load of the flags.
        let (id, len) = (id.load(Ordering::Relaxed), cell.len.load(Ordering::Relaxed));
        self.finish_oldest(id, len)
    }

    /// Finishes the oldest chain. With IN_ORDER `last` ends a batch, so all chains up to it are
    /// used too.
    fn finish_oldest(&mut self, last: u16, len: u32) -> Option<Used> {
        let (id, slots) = self.chains.pop_front()?;
        self.ids.push_back(id);
        self.free_slots += slots;
        self.used = self.used.advance(slots, self.ring.layout.size);
        self.batch = (id != last).then_some(last);
        Some(Used { id, len })
    }

    pub(super) fn arm(&mut self) -> bool {
        let position = AT_POSITION | u32::from(self.used.word());
        let request = if self.ring.by_position() { position } else { 0 };
        self.event(self.ring.layout.driver).store(request, Ordering::Relaxed);
        // Pairs with the device's fence between publishing and its look at our word.
        fence(Ordering::SeqCst);
        self.batch.is_some() || self.is_used()
    }

    pub(super) fn disarm(&mut self) {
        self.event(self.ring.layout.driver).store(DISABLE, Ordering::Relaxed);
    }
}
