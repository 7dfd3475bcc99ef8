//! The device side of a split ring (virtio 1.2, section 2.7).

use crate::Limit;
use crate::chain::{Chain, LONGEST, TableOrder, Walk, Want};
use crate::descriptor::{INDIRECT, NEXT};
use crate::event::SplitWords;
use crate::ring::Ring;
use crate::split_area::SplitArea;
use crate::{QueueFault, RingAddresses, RingFeatures, Setup, SetupError};
use guestmem::{DirtyLog, GuestMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// A split ring and how far the device has come in it.
#[derive(Debug)]
pub(crate) struct Split {
    area: SplitArea,
    by_position: bool,
    /// The next place of the available ring to read.
    next: u16,
    /// The driver's index when it was read last: up to here everything is known to be there.
    available: u16,
    /// The next place of the used ring to write.
    used: u16,
}

impl Split {
    /// Resumes at the used index, not at `setup.base`. Where the two differ, an earlier device left
    /// the chains between them unfinished, and they are taken again.
    pub(crate) fn new(memory: &Arc<GuestMemory>, setup: &Setup) -> Result<Split, SetupError> {
        let area = SplitArea::new(memory, setup.rings, setup.size)?;
        if u16::try_from(setup.base).is_err() {
            return Err(SetupError::Base { base: setup.base, size: setup.size });
        }
        let used = area.used.index.load(Ordering::Relaxed);
        let by_position = setup.features.contains(RingFeatures::EVENT_IDX);
        Ok(Split { area, by_position, next: used, available: used, used })
    }

    /// Returns how many chains wait. The driver's index is read again only if fewer are known than
    /// are wanted.
    #[inline]
    fn waiting(&mut self, wanted: usize) -> Result<u16, QueueFault> {
        let known = self.available.wrapping_sub(self.next);
        if usize::from(known) >= wanted {
            return Ok(known);
        }
        // Pairs with the driver's barrier before its store to avail.idx (section 2.7.13.3): heads
        // and descriptors were written before it.
        let seen = self.area.avail.index.load(Ordering::Acquire);
        let (used, size) = (self.used, self.area.size);
        // Nor may it go back behind what was taken: that would be available again.
        let taken = self.next.wrapping_sub(used);
        if !(taken..=size).contains(&seen.wrapping_sub(used)) {
            return Err(QueueFault::IndexJump { seen, used, size });
        }
        self.available = seen;
        Ok(seen.wrapping_sub(self.next))
    }

    /// Calls [`Walk::take_simple`] up to the end of the available ring.
    #[inline(always)]
    fn take_run(&self, walk: &mut Walk, limit: Limit, want: Want) -> (usize, usize) {
        let heads = self.area.heads.get(self.area.place(self.next)..).unwrap_or_default();
        let descriptors = &*self.area.descriptors;
        walk.take_simple(heads, limit, want, |head| {
            // Relaxed: ordered by the acquire load of the available index.
            let id = head.load(Ordering::Relaxed);
            Some((descriptors.get(usize::from(id))?.read(), id))
        })
    }

    /// Takes a chain of any kind. Fails if the chain is malformed.
    fn take_long(&self, walk: &mut Walk, want: Want) -> Result<(), QueueFault> {
        let heads = self.area.heads.get(self.area.place(self.next));
        // Relaxed: as in `take_run`.
        let head = heads.map_or(0, |head| head.load(Ordering::Relaxed));
        let (mut chain, mut index) = (walk.begin(want, TableOrder::Linked), head);
        let size = u32::from(self.area.size);
        let limit = self.area.size.min(LONGEST);
        for _ in 0..limit {
            let Some(cell) = self.area.descriptors.get(usize::from(index)) else {
                return Err(QueueFault::NoSuchDescriptor { index, size });
            };
            let descriptor = cell.read();
            chain.add(descriptor)?;
            if descriptor.flags & INDIRECT != 0 || descriptor.flags & NEXT == 0 {
                return chain.finish(head, 1);
            }
            index = descriptor.tag;
        }
        Err(QueueFault::ChainTooLong(limit.into()))
    }

    /// Returns our index, with the words by which the driver asks to be notified of it.
    fn used_words(&self) -> SplitWords<'_, AtomicU16> {
        let SplitArea { used, avail, used_event: event, .. } = &self.area;
        let by_position = self.by_position;
        SplitWords { index: &used.index, flags: &avail.flags, event, by_position }
    }

    /// Returns the driver's index, with the words by which we ask to be notified of it.
    fn available_words(&self) -> SplitWords<'_, AtomicU16> {
        let SplitArea { used, avail, avail_event: event, .. } = &self.area;
        let by_position = self.by_position;
        SplitWords { index: &avail.index, flags: &used.flags, event, by_position }
    }
}

impl Ring for Split {
    #[inline(always)]
    fn take(&mut self, walk: &mut Walk, limit: Limit, want: Want) -> Result<(), QueueFault> {
        let mut count = usize::from(self.waiting(limit.chains)?).min(limit.chains);
        let mut budget = limit.bytes;
        while count > 0 && budget > 0 {
            let run = count.min(usize::from(self.area.size) - self.area.place(self.next));
            let limit = Limit { chains: run, bytes: budget };
            let (taken, left) = self.take_run(walk, limit, want);
            #[allow(clippy::cast_possible_truncation, reason = "at most the ring's size")]
            let mut advance = taken as u16;
            budget = left;
            if taken < run && budget > 0 {
                self.next = self.next.wrapping_add(advance);
                self.take_long(walk, want)?;
                budget = budget.saturating_sub(walk.weight_of_last());
                (advance, count) = (1, count - 1);
            }
            self.next = self.next.wrapping_add(advance);
            count -= taken;
        }
        Ok(())
    }

    #[inline]
    fn give_back(&mut self, chains: &[Chain]) -> bool {
        let (old, mut index) = (self.used, self.used);
        let used_elements = &*self.area.used_elements;
        for chain in chains {
            if let Some(element) = used_elements.get(self.area.place(index)) {
                // Relaxed: published by the release store of the used index.
                element.id.store(u32::from(chain.id), Ordering::Relaxed);
                element.len.store(chain.written, Ordering::Relaxed);
            }
            index = index.wrapping_add(1);
        }
        self.used = index;
        self.used_words().publish(old, index)
    }

    fn remap(&mut self, memory: &Arc<GuestMemory>, rings: RingAddresses) -> Result<(), SetupError> {
        self.area = SplitArea::new(memory, rings, self.area.size)?;
        self.next = self.used;
        self.available = self.used;
        Ok(())
    }

    fn arm(&mut self) -> bool {
        self.available_words().arm(self.next)
    }

    fn disarm(&mut self) {
        self.available_words().disarm();
    }

    fn base(&self) -> u32 {
        u32::from(self.used)
    }

    fn log_start(&self, log: &DirtyLog) {
        let SplitArea { used, used_elements, avail_event, .. } = &self.area;
        log.mark_all([used.place(), used_elements.place(), avail_event.place()]);
    }

    fn log_used(&self, log: &DirtyLog, base: u32, chains: &[Chain]) {
        #[allow(clippy::cast_possible_truncation, reason = "the base of a split ring is an index")]
        let first = self.area.place(base as u16);
        let at_end = chains.len().min(usize::from(self.area.size) - first);
        let SplitArea { used, used_elements, .. } = &self.area;
        log.mark_all([
            used_elements.part(first, at_end),
            used_elements.part(0, chains.len() - at_end),
            used.place(),
        ]);
    }

    fn log_wish(&self, log: &DirtyLog) {
        let SplitArea { used, avail_event, .. } = &self.area;
        log.mark_all([if self.by_position { avail_event.place() } else { used.place() }]);
    }
}
