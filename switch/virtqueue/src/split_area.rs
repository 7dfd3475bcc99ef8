//! The memory of a split ring (virtio 1.2, section 2.7): descriptor table and available ring, which
//! the driver writes, and used ring, which the device writes.

use crate::descriptor::Descriptor;
use crate::shared::{RingHead, Shared, SplitCell, UsedCell};
use crate::{RingAddresses, SetupError};
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The parts of a split ring in guest memory.
#[derive(Debug)]
pub(crate) struct SplitArea {
    /// Places in the ring, a power of two.
    pub(crate) size: u16,
    pub(crate) descriptors: Shared<[SplitCell]>,
    pub(crate) avail: Shared<RingHead>,
    /// Heads of chains.
    pub(crate) heads: Shared<[AtomicU16]>,
    pub(crate) used_event: Shared<AtomicU16>,
    pub(crate) used: Shared<RingHead>,
    pub(crate) used_elements: Shared<[UsedCell]>,
    pub(crate) avail_event: Shared<AtomicU16>,
}

impl SplitArea {
    /// Finds the ring's parts.
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        rings: RingAddresses,
        size: u16,
    ) -> Result<SplitArea, SetupError> {
        if !size.is_power_of_two() {
            return Err(SetupError::Size(size));
        }
        let (table, avail, used) = ("descriptor table", "available ring", "used ring");
        let RingAddresses { descriptors, driver, device } = rings;
        let n = u64::from(size);
        let after = |start: Gpa, bytes: u64| Gpa(start.0.saturating_add(bytes));
        Ok(SplitArea {
            size,
            descriptors: Shared::many(memory, table, descriptors, size)?,
            avail: Shared::one(memory, avail, driver)?,
            heads: Shared::many(memory, avail, after(driver, 4), size)?,
            used_event: Shared::one(memory, avail, after(driver, 4 + 2 * n))?,
            used: Shared::one(memory, used, device)?,
            used_elements: Shared::many(memory, used, after(device, 4), size)?,
            avail_event: Shared::one(memory, used, after(device, 4 + 8 * n))?,
        })
    }

    /// Returns the place of a running index in the rings.
    #[inline(always)]
    pub(crate) fn place(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }
}

impl SplitCell {
    /// Returns a private copy of the descriptor. Relaxed: ordered by the acquire load of the
    /// available index that made the descriptor ours.
    #[inline(always)]
    pub(crate) fn read(&self) -> Descriptor {
        Descriptor {
            gpa: Gpa(self.gpa.load(Ordering::Relaxed)),
            len: self.len.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            tag: self.next.load(Ordering::Relaxed),
        }
    }
}
