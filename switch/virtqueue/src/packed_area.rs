//! The memory of a packed ring (virtio 1.2, section 2.8): one ring of descriptors, two event
//! suppression words; and the positions in it.
//!
//! A packed ring need not be a power of two, so a position is kept in bounds by comparing when it
//! advances.

use crate::descriptor::{AVAIL, Descriptor, USED};
use crate::shared::{PackedCell, Shared};
use crate::{RingAddresses, SetupError};
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The parts of a packed ring in guest memory.
#[derive(Debug)]
pub(crate) struct PackedArea {
    pub(crate) size: u16,
    pub(crate) descriptors: Shared<[PackedCell]>,
    /// Written by the driver (section 2.8.14): position in the low half, flags in the high half.
    pub(crate) driver_event: Shared<AtomicU32>,
    /// Written by the device, laid out alike.
    pub(crate) device_event: Shared<AtomicU32>,
}

/// A place in the ring, and which lap it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    slot: u16,
    /// AVAIL and USED as the driver sets them in this lap (section 2.8.1).
    available: u16,
}

impl Position {
    /// Position in a new ring: slot 0, wrap counter 1.
    pub(crate) const START: Position = Position { slot: 0, available: AVAIL };

    /// Decodes an event suppression word or a vring base: the slot, and the wrap counter in bit 15.
    pub(crate) fn from_packed(packed: u16) -> Position {
        let available = if packed & 1 << 15 == 0 { USED } else { AVAIL };
        Position { slot: packed & 0x7fff, available }
    }

    /// Encodes the position, as the inverse of [`from_packed`](Self::from_packed).
    pub(crate) fn packed(self) -> u16 {
        self.slot | if self.wrap() { 1 << 15 } else { 0 }
    }

    fn wrap(self) -> bool {
        self.available == AVAIL
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// Returns the flags of a descriptor that the driver made available here: AVAIL equals the wrap
    /// counter, USED is its inverse.
    #[inline(always)]
    pub(crate) fn available(self) -> u16 {
        self.available
    }

    /// Returns the flags of a descriptor that the device has used here: AVAIL and USED both equal
    /// the wrap counter.
    #[inline(always)]
    pub(crate) fn used(self) -> u16 {
        if self.wrap() { AVAIL | USED } else { 0 }
    }

    /// Returns the position `slots` further on in a ring of `size` slots, at most once around.
    #[inline(always)]
    pub(crate) fn advance(self, slots: u16, size: u16) -> Position {
        let Position { slot, available } = self;
        // At most 32767 + 32768.
        let slot = slot.wrapping_add(slots);
        if slot < size {
            Position { slot, available }
        } else {
            Position { slot: slot.wrapping_sub(size), available: available ^ (AVAIL | USED) }
        }
    }
}

impl PackedArea {
    /// Finds the ring's parts.
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        rings: RingAddresses,
        size: u16,
    ) -> Result<PackedArea, SetupError> {
        if size == 0 || size > 1 << 15 {
            return Err(SetupError::Size(size));
        }
        Ok(PackedArea {
            size,
            descriptors: Shared::many(memory, "descriptor ring", rings.descriptors, size)?,
            driver_event: Shared::one(memory, "driver event suppression", rings.driver)?,
            device_event: Shared::one(memory, "device event suppression", rings.device)?,
        })
    }

    /// Returns the flags at a position; those of a used descriptor past the end.
    #[inline(always)]
    pub(crate) fn flags(&self, position: Position) -> u16 {
        self.descriptors.get(position.slot()).map_or(0, PackedCell::read_flags)
    }

    /// Returns whether the driver has made the descriptor at a position available, and the device
    /// has not used it.
    #[inline(always)]
    pub(crate) fn is_available(&self, position: Position) -> bool {
        self.flags(position) & (AVAIL | USED) == position.available()
    }

    /// Marks the chain that began at a position as used.
    #[inline(always)]
    pub(crate) fn mark_used(&self, position: Position, id: u16, written: u32) {
        if let Some(cell) = self.descriptors.get(position.slot()) {
            cell.write_used(id, written, position.used());
        }
    }
}

impl PackedCell {
    /// Returns the flags. Everything read after them is as the other side left it before it wrote
    /// them.
    #[inline(always)]
    pub(crate) fn read_flags(&self) -> u16 {
        // Pairs with the other side's write of the flags after the rest of the descriptor, and
        // after the buffer: the driver's in section 2.8.21.1.1, the device's in `write_used`.
        self.flags.load(Ordering::Acquire)
    }

    /// Returns a private copy of the descriptor, with flags that were read before.
    #[inline(always)]
    pub(crate) fn read(&self, flags: u16) -> Descriptor {
        Descriptor {
            gpa: Gpa(self.gpa.load(Ordering::Relaxed)),
            len: self.len.load(Ordering::Relaxed),
            flags,
            tag: self.id.load(Ordering::Relaxed),
        }
    }

    /// Marks the buffer that began here as used; for the device.
    #[inline(always)]
    pub(crate) fn write_used(&self, id: u16, len: u32, flags: u16) {
        self.id.store(id, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        // Pairs with the driver's read of the flags before the rest (section 2.8.22): id, length
        // and buffer are written by then.
        self.flags.store(flags, Ordering::Release);
    }
}
