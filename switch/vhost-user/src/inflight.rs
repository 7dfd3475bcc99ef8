//! Inflight regions: memory from which the next process learns where a packed ring stopped
//! (`VHOST_USER_GET_INFLIGHT_FD` and `SET_INFLIGHT_FD`).
//!
//! The back end makes the region. The front end keeps it without reading it, and gives it to the
//! back end that serves it next. Each ring has an [`InflightJournal`] in it. After an orderly stop
//! the front end knows the ring's base, so the journal is cleared and the base counts.

use guestmem::{Gpa, GuestMemory, MemoryError, Region, UserAddress};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserInflight;
use virtqueue::{InflightJournal, SetupError};

/// A region's size is a multiple of this, in bytes.
const PAGE: u64 = 4096;

/// Why a region is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InflightError {
    #[error("an inflight region of {seen} bytes: {rings} rings of {size} need {wanted}")]
    Small { seen: u64, rings: u16, size: u16, wanted: u64 },
    #[error("the inflight region: {0}")]
    Memory(#[from] MemoryError),
}

/// A region that a front end has given us.
pub(crate) struct Inflight {
    memory: Arc<GuestMemory>,
    rings: u16,
    /// Descriptors of the largest ring.
    size: u16,
}

/// Returns the bytes from one ring's journal to the next, in whole cache lines.
fn stride(size: u16) -> u64 {
    InflightJournal::bytes(size).next_multiple_of(64)
}

impl Inflight {
    /// Returns the size in bytes of a region for `rings` rings of `size` descriptors.
    pub(crate) fn bytes(rings: u16, size: u16) -> u64 {
        (u64::from(rings) * stride(size)).next_multiple_of(PAGE)
    }

    /// Returns the region and its file as the front end described them, for the process that serves
    /// it next.
    pub(crate) fn region(&self) -> Option<(VhostUserInflight, Arc<OwnedFd>)> {
        let Region { size: mmap_size, file_offset: mmap_offset, file, .. } =
            self.memory.regions().pop()?;
        let (num_queues, queue_size) = (self.rings, self.size);
        Some((VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size }, file))
    }

    /// Makes a new region, for the front end to keep.
    pub(crate) fn create(rings: u16, size: u16) -> io::Result<(VhostUserInflight, File)> {
        let file = memfd_create("inflight", MemfdFlags::CLOEXEC)?;
        let mmap_size = Inflight::bytes(rings, size);
        ftruncate(&file, mmap_size)?;
        let said =
            VhostUserInflight { mmap_size, mmap_offset: 0, num_queues: rings, queue_size: size };
        Ok((said, file.into()))
    }

    /// Maps a region that this or an earlier process made, of at most `limit` bytes. Its content is
    /// not trusted. Fails if it is too small for its rings or cannot be mapped.
    pub(crate) fn adopt(
        said: &VhostUserInflight,
        file: Arc<OwnedFd>,
        limit: u64,
    ) -> Result<Inflight, InflightError> {
        let VhostUserInflight { mmap_size: seen, num_queues: rings, queue_size: size, .. } = *said;
        let wanted = Inflight::bytes(rings, size);
        if seen < wanted {
            return Err(InflightError::Small { seen, rings, size, wanted });
        }
        let region = Region {
            gpa: Gpa(0),
            size: wanted,
            user: UserAddress(0),
            file_offset: said.mmap_offset,
            file,
        };
        let memory = GuestMemory::map_within(limit, vec![region])?;
        Ok(Inflight { memory, rings, size })
    }

    fn place(&self, number: u32) -> Option<Gpa> {
        let fits = number < u32::from(self.rings);
        fits.then(|| Gpa(u64::from(number) * stride(self.size)))
    }

    /// Returns a ring's journal; `None` if the region was not made for such a ring.
    pub(crate) fn journal(
        &self,
        number: u32,
        size: u16,
    ) -> Result<Option<InflightJournal>, SetupError> {
        let place = self.place(number).filter(|_| size <= self.size);
        place.map(|gpa| InflightJournal::new(&self.memory, gpa, size)).transpose()
    }

    /// Clears the journal of a ring that was stopped in an orderly way.
    pub(crate) fn forget(&self, number: u32) {
        if let Some(gpa) = self.place(number) {
            self.memory.write(gpa, &InflightJournal::EMPTY);
        }
    }

    /// Clears the journals of all rings.
    pub(crate) fn forget_all(&self) {
        (0..u32::from(self.rings)).for_each(|number| self.forget(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The journal of a larger ring reached into the next ring's, and beyond the region's end
    /// (CVE-2026-86565 of another back end).
    #[test]
    fn a_ring_larger_than_its_inflight_region_has_no_journal() {
        let (said, file) = Inflight::create(2, 128).expect("a region");
        let region = Inflight::adopt(&said, Arc::new(file.into()), u64::MAX).expect("its own");
        let has_journal = |number, size| region.journal(number, size).expect("mapped").is_some();
        for number in [0, 1] {
            assert!(has_journal(number, 128));
            assert!(!has_journal(number, 129) && !has_journal(number, 32768));
        }
        assert!(!has_journal(2, 128));
    }
}
