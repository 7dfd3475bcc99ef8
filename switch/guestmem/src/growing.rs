//! A guest's memory that is put together region by region, each at an address that stays.
//!
//! For a process that tells a front end where it has each region mapped, before it knows the next
//! one ([`GuestMemory`] is mapped afresh with each change). Nothing is touched here: pages of the
//! guest may still be on their way.

use crate::address_range::AddressRange;
use crate::memory::{MemorySpan, facts};
use crate::{GuestMemory, MemoryError, Region, layout};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Addresses that are reserved: more than a host has memory, and than the alignment of huge pages
/// may cost. They take no memory.
const RESERVED: u64 = 16 << 40;

/// Memory that grows until [`GrowingMemory::finish`].
#[derive(Debug)]
pub struct GrowingMemory {
    addresses: AddressRange,
    /// First offset that is free.
    next: u64,
    /// Addresses of what is mapped, whole pages.
    mapped: Vec<Range<u64>>,
    spans: Vec<MemorySpan>,
    regions: Vec<Region>,
}

impl GrowingMemory {
    /// Reserves the addresses.
    ///
    /// # Errors
    /// Fails if this process may not have so many.
    pub fn new() -> Result<GrowingMemory, MemoryError> {
        let addresses = AddressRange::new(RESERVED, layout::PAGE)?;
        let (mapped, spans, regions) = Default::default();
        Ok(GrowingMemory { addresses, next: 0, mapped, spans, regions })
    }

    /// Maps one more region. Returns the address of its first byte.
    ///
    /// # Errors
    /// Fails like [`GuestMemory::map`], but for regions that overlap, which the caller refuses.
    pub fn add(&mut self, region: Region) -> Result<u64, MemoryError> {
        let file = region.file.as_fd();
        let plan = layout::plan(&[(&region, facts(file)?)], RESERVED)?;
        let [place] = plan.places[..] else { return Err(MemoryError::Empty(region.gpa)) };
        // Multiples of huge pages in this process, as `plan` counts from one.
        let base = self.addresses.at(0).addr().get() as u64;
        let start = (base + self.next).next_multiple_of(plan.align) - base;
        let from = start + place.map_start;
        self.addresses.map(from, place.map_len, file, place.file_offset)?;
        self.next = start + plan.len;
        let address = |offset| self.addresses.at(offset);
        let first = address(from).addr().get() as u64;
        self.mapped.push(first..first + place.map_len);
        let host = address(start + place.start);
        self.spans.push(MemorySpan::new(region.gpa, region.size, host));
        self.regions.push(region);
        Ok(host.addr().get() as u64)
    }

    /// Returns the addresses of what is mapped, in whole pages.
    pub fn mapped(&self) -> &[Range<u64>] {
        &self.mapped
    }

    /// Returns the memory, which no longer grows. It has no log: its spans may lie in any order.
    pub fn finish(self) -> Arc<GuestMemory> {
        let GrowingMemory { addresses, spans, regions, .. } = self;
        Arc::new(GuestMemory::of(addresses, spans, regions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpa, UserAddress};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn region(gpa: u64, size: u64, file_offset: u64) -> Region {
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&*file, file_offset + size).unwrap();
        Region { gpa: Gpa(gpa), size, user: UserAddress(gpa), file_offset, file }
    }

    #[test]
    fn regions_stay_where_they_are_when_others_come() {
        let mut memory = GrowingMemory::new().unwrap();
        let regions = [(0x10_0000, 0x3000, 0x1000), (0, 0x2000, 0), (0x4000_0000, 0x1000, 0)];
        let regions = regions.map(|(gpa, size, offset)| region(gpa, size, offset));
        let addresses = regions.each_ref().map(|region| memory.add(region.clone()).unwrap());
        assert_eq!(memory.mapped().len(), 3);
        let memory = memory.finish();
        for (region, address) in regions.iter().zip(addresses) {
            let found = memory.translate(region.gpa, 0x1000).unwrap();
            assert_eq!(found.addr().get() as u64, address);
            let last = Gpa(region.gpa.0 + region.size - 1);
            assert!(memory.write(last, &[7]));
            let mut byte = [0];
            rustix::io::pread(&*region.file, &mut byte, region.file_offset + region.size - 1)
                .unwrap();
            assert_eq!(byte, [7]);
            assert!(memory.translate(last, 2).is_none());
        }
    }

    #[test]
    fn a_region_beyond_its_file_is_refused_and_the_next_is_mapped() {
        let mut memory = GrowingMemory::new().unwrap();
        let mut wrong = region(0, 0x1000, 0);
        wrong.size = 0x2000;
        assert!(matches!(memory.add(wrong), Err(MemoryError::BeyondFile { .. })));
        memory.add(region(0, 0x1000, 0)).unwrap();
    }
}
