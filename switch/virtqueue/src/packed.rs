//! The device side of a packed ring (virtio 1.2, section 2.8).
//!
//! Buffers are used in the order they were made available, so the place where a buffer is marked as
//! used is the place where its own chain began, and nothing the driver still has to give us is ever
//! overwritten.

use crate::Limit;
use crate::chain::{Chain, LONGEST, TableOrder, Walk, Want};
use crate::descriptor::{AVAIL, INDIRECT, NEXT, USED};
use crate::event::{arm_packed, disarm_packed, wanted_packed};
use crate::journal::Noted;
use crate::packed_area::{PackedArea, Position};
use crate::ring::Ring;
use crate::{InflightJournal, QueueFault, RingAddresses, RingFeatures, Setup, SetupError};
use guestmem::{DirtyLog, GuestMemory};
use std::sync::Arc;

/// A packed ring and how far the device has come in it.
#[derive(Debug)]
pub(crate) struct Packed {
    area: PackedArea,
    by_position: bool,
    in_order: bool,
    /// The next descriptor to look at.
    next: Position,
    /// The next descriptor to mark as used: where the oldest chain that we hold begins.
    used: Position,
    /// Slots from `used` to `next`.
    held: u16,
    journal: Option<InflightJournal>,
}

impl Packed {
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        setup: &Setup,
        journal: Option<InflightJournal>,
    ) -> Result<Packed, SetupError> {
        let area = PackedArea::new(memory, setup.rings, setup.size)?;
        let by_position = setup.features.contains(RingFeatures::EVENT_IDX);
        let in_order = setup.features.contains(RingFeatures::IN_ORDER);
        let noted = journal.as_ref().map(|journal| journal.read(setup.size)).transpose()?;
        let next = match noted.flatten() {
            Some(noted) => finish(&area, in_order, &noted),
            None => resume(&area, setup)?,
        };
        if let Some(journal) = &journal {
            journal.end(next);
        }
        Ok(Packed { area, by_position, in_order, next, used: next, held: 0, journal })
    }

    /// Calls [`Walk::take_simple`] up to the end of the lap, or to the last descriptor that is
    /// available.
    #[inline(always)]
    fn take_run(&self, walk: &mut Walk, limit: Limit, want: Want) -> (usize, usize) {
        let cells = self.area.descriptors.get(self.next.slot()..).unwrap_or_default();
        walk.take_simple(cells, limit, want, |cell| {
            let flags = cell.read_flags();
            if flags & (AVAIL | USED) != self.next.available() {
                return None;
            }
            let descriptor = cell.read(flags);
            Some((descriptor, descriptor.tag))
        })
    }

    /// Takes a chain of any kind after its head was found available. Returns its number of slots.
    /// Fails if the chain is malformed.
    fn take_long(&self, walk: &mut Walk, want: Want) -> Result<u16, QueueFault> {
        let room = LONGEST.min(self.area.size - self.held);
        let (mut chain, mut position) = (walk.begin(want, TableOrder::Sequential), self.next);
        for slots in 1..=room {
            let Some(cell) = self.area.descriptors.get(position.slot()) else { break };
            // Only the head says that a chain is available (section 2.8.21.1.1); the others were
            // written before it.
            let flags = cell.read_flags();
            let descriptor = cell.read(flags);
            chain.add(descriptor)?;
            if flags & INDIRECT != 0 || flags & NEXT == 0 {
                chain.finish(descriptor.tag, slots)?;
                return Ok(slots);
            }
            position = position.advance(1, self.area.size);
        }
        Err(QueueFault::ChainTooLong(u32::from(room)))
    }

    #[inline(always)]
    fn advance(&mut self, slots: u16) {
        self.next = self.next.advance(slots, self.area.size);
        self.held += slots;
    }
}

/// Marks chains as used from a position on; how many slots they have.
///
/// The first descriptor is marked last: the driver waits there, and its look must not take the line
/// away from us.
#[inline(always)]
fn mark_used(area: &PackedArea, in_order: bool, start: Position, chains: &[Chain]) -> u16 {
    let [first, rest @ ..] = chains else { return 0 };
    let mut slots = first.slots;
    let mut position = start.advance(slots, area.size);
    let batch = is_batch(in_order, chains);
    for chain in rest {
        if !batch {
            area.mark_used(position, chain.id, chain.written);
        }
        position = position.advance(chain.slots, area.size);
        slots += chain.slots;
    }
    let id = rest.last().filter(|_| batch).unwrap_or(first).id;
    area.mark_used(start, id, first.written);
    slots
}

/// Whether chains are used as a batch: with IN_ORDER one used descriptor stands for a batch
/// (section 2.8.8), but has no lengths for it.
#[inline(always)]
fn is_batch(in_order: bool, chains: &[Chain]) -> bool {
    in_order && chains.iter().all(|chain| chain.written == 0)
}

/// Marks what a device before us had noted and did not live to hand over; where the ring goes on.
fn finish(area: &PackedArea, in_order: bool, noted: &Noted) -> Position {
    if area.is_available(noted.position) {
        mark_used(area, in_order, noted.position, &noted.chains);
    }
    noted.position.advance(noted.slots, area.size)
}

/// Returns the position at which a ring resumes. An unused ring has base 0 with the wrap counter
/// set. User-mode Linux says 0 without it, which is also the base of a ring after an odd number of
/// laps. Such a ring has USED somewhere: a batch was marked as used in that lap, or the driver has
/// begun the next. A fresh one has it nowhere.
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
    #[inline(always)]
    fn take(&mut self, walk: &mut Walk, limit: Limit, want: Want) -> Result<(), QueueFault> {
        let (mut count, mut budget) = (limit.chains, limit.bytes);
        while count > 0 && budget > 0 && self.held < self.area.size {
            let lap = usize::from(self.area.size) - self.next.slot();
            let run = count.min(lap).min(usize::from(self.area.size - self.held));
            let limit = Limit { chains: run, bytes: budget };
            let (taken, left) = self.take_run(walk, limit, want);
            #[allow(clippy::cast_possible_truncation, reason = "at most the ring's size")]
            self.advance(taken as u16);
            (count, budget) = (count - taken, left);
            if taken == run || budget == 0 {
                continue;
            }
            if !self.area.is_available(self.next) {
                break;
            }
            let slots = self.take_long(walk, want)?;
            self.advance(slots);
            (count, budget) = (count - 1, budget.saturating_sub(walk.weight_of_last()));
        }
        Ok(())
    }

    #[inline]
    fn give_back(&mut self, chains: &[Chain]) -> bool {
        if let Some(journal) = &self.journal {
            journal.begin(self.used, chains);
        }
        let slots = mark_used(&self.area, self.in_order, self.used, chains);
        self.used = self.used.advance(slots, self.area.size);
        self.held -= slots;
        if let Some(journal) = &self.journal {
            journal.end(self.used);
        }
        wanted_packed(&*self.area.driver_event, self.used.packed(), slots, self.area.size)
    }

    fn remap(&mut self, memory: &Arc<GuestMemory>, rings: RingAddresses) -> Result<(), SetupError> {
        self.area = PackedArea::new(memory, rings, self.area.size)?;
        self.next = self.used;
        self.held = 0;
        Ok(())
    }

    fn arm(&mut self) -> bool {
        let position = self.next.packed();
        arm_packed(&*self.area.device_event, self.by_position, position, || {
            self.held < self.area.size && self.area.is_available(self.next)
        })
    }

    fn disarm(&mut self) {
        disarm_packed(&*self.area.device_event);
    }

    fn base(&self) -> u32 {
        let half = u32::from(self.used.packed());
        half | half << 16
    }

    fn log_start(&self, log: &DirtyLog) {
        log.mark_all([self.area.descriptors.place(), self.area.device_event.place()]);
    }

    fn log_used(&self, log: &DirtyLog, base: u32, chains: &[Chain]) {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let mut position = Position::from_packed(base as u16);
        let written = if is_batch(self.in_order, chains) { 1 } else { chains.len() };
        log.mark_all(chains.iter().take(written).map(|chain| {
            let cell = self.area.descriptors.part(position.slot(), 1);
            position = position.advance(chain.slots, self.area.size);
            cell
        }));
    }

    fn log_wish(&self, log: &DirtyLog) {
        log.mark_all([self.area.device_event.place()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guestmem::{Gpa, Region, UserAddress};
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use test_guest::driver::{Buffer, Driver, RingLayout, Shape, TABLE_BYTES};

    const SIZE: u16 = 16;
    const DRIVER: Gpa = Gpa(0x1000);
    const DEVICE: Gpa = Gpa(0x1100);
    const JOURNAL: Gpa = Gpa(0x2000);
    const TABLES: Gpa = Gpa(0x4000);
    const BUFFERS: Gpa = Gpa(TABLES.0 + SIZE as u64 * TABLE_BYTES);
    const BYTES: u64 = BUFFERS.0 + 0x4000;
    const ALL: Limit = Limit { chains: usize::MAX, bytes: usize::MAX };

    struct Guest {
        memory: Arc<GuestMemory>,
        setup: Setup,
        driver: Driver,
        writable: bool,
    }

    impl Guest {
        fn new(in_order: bool, writable: bool) -> Guest {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, BYTES).unwrap();
            let region = Region {
                gpa: Gpa(0),
                size: BYTES,
                user: UserAddress(0),
                file_offset: 0,
                file: Arc::new(file),
            };
            let memory = GuestMemory::map(vec![region]).unwrap();
            let rings = RingAddresses { descriptors: Gpa(0), driver: DRIVER, device: DEVICE };
            let features = RingFeatures::RING_PACKED
                | if in_order { RingFeatures::IN_ORDER } else { RingFeatures::empty() };
            let setup = Setup { size: SIZE, rings, features, base: 1 << 15 };
            let layout = RingLayout {
                size: SIZE,
                descriptors: rings.descriptors,
                driver: DRIVER,
                device: DEVICE,
                tables: TABLES,
                features: features.bits(),
            };
            let driver = Driver::new(memory.clone(), layout);
            Guest { memory, setup, driver, writable }
        }

        /// Returns a device process that is told the base of a fresh ring, whatever happened
        /// before.
        fn device(&self) -> (Packed, Walk) {
            let journal = InflightJournal::new(&self.memory, JOURNAL, SIZE).unwrap();
            let ring = Packed::new(&self.memory, &self.setup, Some(journal)).unwrap();
            (ring, Walk::new(self.memory.clone()))
        }

        /// Makes chains available, of these numbers of buffers, as far as there is room; their ids.
        fn add(&mut self, chains: &[usize]) -> Vec<u16> {
            let writable = self.writable;
            let buffer = |place: usize| Buffer {
                gpa: Gpa(BUFFERS.0 + 64 * place as u64),
                len: 64,
                writable,
            };
            let ids = chains.iter().map_while(|count| {
                let buffers: Vec<_> = (0..*count).map(buffer).collect();
                self.driver.add(&buffers, Shape::Direct)
            });
            let ids = ids.collect();
            self.driver.publish();
            ids
        }

        /// Returns the ids that the driver gets back, and the bytes written.
        fn reap(&mut self) -> Vec<(u16, u32)> {
            std::iter::from_fn(|| self.driver.reap()).map(|used| (used.id, used.len)).collect()
        }

        fn take(&self, (ring, walk): &mut (Packed, Walk)) {
            let want = if self.writable { Want::Writable } else { Want::Readable };
            ring.take(walk, ALL, want).unwrap();
            for (chain, written) in walk.chains_mut().iter_mut().zip(1..) {
                chain.written = if self.writable { written } else { 0 };
            }
        }

        fn serve(&self, device: &mut (Packed, Walk)) {
            self.take(device);
            let (ring, walk) = device;
            ring.give_back(walk.chains());
            walk.forget_front(walk.chains().len());
        }

        /// Returns what has to come back for chains with these ids.
        fn expected(&self, ids: &[u16]) -> Vec<(u16, u32)> {
            let written = |written| if self.writable { written } else { 0 };
            ids.iter().zip(1..).map(|(id, place)| (*id, written(place))).collect()
        }

        fn round(&mut self, device: &mut (Packed, Walk), chains: &[usize]) {
            let ids = self.add(chains);
            self.serve(device);
            let expected = self.expected(&ids);
            assert_eq!(self.reap(), expected);
        }
    }

    /// Where a device is killed.
    #[derive(Clone, Copy, Debug)]
    enum Killed {
        /// Before it has noted anything.
        Before,
        /// After it has marked some of the batch, by the bits.
        Within(u16),
        /// When the batch was handed over, and it had not noted so.
        After,
    }

    fn killed() -> impl Strategy<Value = Killed> {
        prop_oneof![
            Just(Killed::Before),
            any::<u16>().prop_map(Killed::Within),
            Just(Killed::After)
        ]
    }

    fn chains() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1_usize..4, 1..8)
    }

    fn die(ring: &Packed, chains: &[Chain], killed: Killed) {
        let journal = ring.journal.as_ref().unwrap();
        match killed {
            Killed::Before => {}
            Killed::Within(marked) => {
                journal.begin(ring.used, chains);
                let mut position = ring.used;
                for (place, chain) in chains.iter().enumerate() {
                    if place > 0 && marked & 1 << place != 0 {
                        ring.area.mark_used(position, chain.id, chain.written);
                    }
                    position = position.advance(chain.slots, SIZE);
                }
            }
            Killed::After => {
                journal.begin(ring.used, chains);
                mark_used(&ring.area, ring.in_order, ring.used, chains);
            }
        }
    }

    proptest! {
        #[test]
        fn who_comes_after_a_killed_device_uses_each_chain_once(
            in_order: bool,
            writable: bool,
            before in prop::collection::vec(chains(), 0..6),
            last in chains(),
            killed in killed(),
            after in prop::collection::vec(chains(), 1..6),
        ) {
            let mut guest = Guest::new(in_order, writable);
            let mut device = guest.device();
            for chains in &before {
                guest.round(&mut device, chains);
            }
            let mut ids = guest.add(&last);
            guest.take(&mut device);
            die(&device.0, device.1.chains(), killed);
            drop(device);
            if matches!(killed, Killed::After) {
                // The driver does not wait for somebody to come.
                prop_assert_eq!(guest.reap(), guest.expected(&ids));
                ids = guest.add(&last);
            }
            let mut device = guest.device();
            if !matches!(killed, Killed::Within(_)) {
                guest.serve(&mut device);
            }
            prop_assert_eq!(guest.reap(), guest.expected(&ids));
            for chains in &after {
                guest.round(&mut device, chains);
            }
        }

        #[test]
        fn a_strange_journal_is_refused_or_harmless(bytes: [u8; 32], ours: bool) {
            let guest = Guest::new(false, true);
            guest.memory.write(JOURNAL, &bytes);
            if ours {
                guest.memory.write(Gpa(JOURNAL.0 + 6), &0x4d52_u16.to_le_bytes());
            }
            let journal = InflightJournal::new(&guest.memory, JOURNAL, SIZE).unwrap();
            if let Ok(mut ring) = Packed::new(&guest.memory, &guest.setup, Some(journal)) {
                let mut walk = Walk::new(guest.memory.clone());
                ring.take(&mut walk, ALL, Want::Writable).unwrap();
                prop_assert!(walk.chains().is_empty(), "the driver has added nothing");
            }
        }
    }
}
