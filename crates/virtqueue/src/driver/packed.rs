//! The driver side of a packed ring.

use super::{Buffer, Shape, Tables, Used, kind};
use crate::descriptor::{AVAIL, Descriptor, NEXT, USED};
use crate::event::{arm_packed, disarm_packed, wanted_packed};
use crate::packed_area::{PackedArea, Position};
use crate::{RingFeatures, Setup, SetupError};
use guestmem::{Gpa, GuestMemory};
use std::collections::VecDeque;
use std::sync::Arc;

/// See [`Driver`](super::Driver).
#[derive(Debug)]
pub struct PackedDriver {
    area: PackedArea,
    tables: Tables,
    by_position: bool,
    /// Ids that no chain has.
    ids: VecDeque<u16>,
    /// Chains in the device's hands, in ring order: id and slots.
    lent: VecDeque<(u16, u16)>,
    free_slots: u16,
    next: Position,
    used: Position,
    /// The head that is not published yet, with its flags, and the slots added since.
    held_back: Option<(Position, u16)>,
    added: u16,
    /// With IN_ORDER: the last id of the batch whose other chains are handed out one by one.
    batch: Option<u16>,
}

impl PackedDriver {
    pub(super) fn new(
        memory: Arc<GuestMemory>,
        setup: &Setup,
        tables: Gpa,
    ) -> Result<PackedDriver, SetupError> {
        let area = PackedArea::new(&memory, setup.rings, setup.size)?;
        Ok(PackedDriver {
            area,
            tables: Tables { memory, start: tables },
            by_position: setup.features.contains(RingFeatures::EVENT_IDX),
            ids: (0..setup.size).collect(),
            lent: VecDeque::new(),
            free_slots: setup.size,
            next: Position::START,
            used: Position::START,
            held_back: None,
            added: 0,
            batch: None,
        })
    }

    pub(super) fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        let indirect = shape == Shape::Indirect;
        let needed = if indirect { 1 } else { u16::try_from(buffers.len()).ok()? };
        if buffers.is_empty() || needed > self.free_slots {
            return None;
        }
        let id = *self.ids.front()?;
        if indirect {
            let table = self.tables.fill(id, buffers, true)?;
            self.put(Descriptor { tag: id, ..table });
        } else {
            for (buffer, left) in buffers.iter().zip((0..needed).rev()) {
                let flags = kind(buffer) | if left > 0 { NEXT } else { 0 };
                self.put(Descriptor { gpa: buffer.gpa, len: buffer.len, flags, tag: id });
            }
        }
        self.ids.pop_front();
        self.lent.push_back((id, needed));
        self.free_slots -= needed;
        self.added += needed;
        Some(id)
    }

    /// Writes one descriptor. The very first one since the last publish stays unavailable until the next: the device
    /// stops there.
    fn put(&mut self, descriptor: Descriptor) {
        let flags = descriptor.flags | self.next.available();
        if let Some(cell) = self.area.descriptors.get(self.next.slot()) {
            cell.write(descriptor);
        }
        if self.held_back.is_none() {
            self.held_back = Some((self.next, flags));
        } else {
            self.hand_over(self.next, flags);
        }
        self.next = self.next.advance(1, self.area.size);
    }

    fn hand_over(&self, position: Position, flags: u16) {
        if let Some(cell) = self.area.descriptors.get(position.slot()) {
            cell.write_flags(flags);
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        let Some((position, flags)) = self.held_back.take() else { return false };
        self.hand_over(position, flags);
        let slots = std::mem::take(&mut self.added);
        wanted_packed(&*self.area.device_event, self.next.packed(), slots, self.area.size)
    }

    /// A descriptor is used when both bits equal the wrap counter (section 2.8.1).
    fn is_used(&self) -> bool {
        self.area.flags(self.used) & (AVAIL | USED) == self.used.used() && !self.lent.is_empty()
    }

    pub(super) fn reap(&mut self) -> Option<Used> {
        if let Some(last) = self.batch {
            return self.finish_oldest(last, 0);
        }
        if !self.is_used() {
            return None;
        }
        let cell = self.area.descriptors.get(self.used.slot())?;
        let Descriptor { tag, len, .. } = cell.read(cell.read_flags());
        self.finish_oldest(tag, len)
    }

    /// The device uses buffers in order: the oldest one is done, and those up to `last` too.
    fn finish_oldest(&mut self, last: u16, len: u32) -> Option<Used> {
        let (id, slots) = self.lent.pop_front()?;
        self.ids.push_back(id);
        self.free_slots += slots;
        self.used = self.used.advance(slots, self.area.size);
        self.batch = (id != last).then_some(last);
        Some(Used { id, len })
    }

    pub(super) fn arm(&mut self) -> bool {
        let position = self.used.packed();
        let published = || self.batch.is_some() || self.is_used();
        arm_packed(&*self.area.driver_event, self.by_position, position, published)
    }

    pub(super) fn disarm(&mut self) {
        disarm_packed(&*self.area.driver_event);
    }
}
