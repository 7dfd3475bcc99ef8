// UNSAFETY: turns a guest's addresses into host pointers, and copies through them.
//! A snapshot of a guest's memory, and the translator through which a queue reads it.
//!
//! A pointer given out is good for the length asked for, as long as the `Arc` it came from (or the
//! translator that holds it) is there. The guest may write the bytes at any time, so they are never
//! lent as a Rust reference.
#![allow(unsafe_code)]

use crate::address_range::AddressRange;
use crate::layout::{self, FileFacts, PAGE, native};
use crate::{DirtyLog, Gpa, MemoryError, Region, UserAddress};
use rustix::fs::{fcntl_get_seals, fstat, fstatfs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// File system type that `fstatfs` returns for a file of huge pages.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Guest addresses without a hole, and where they are. Copied out of a translator for the length of
/// a burst.
#[derive(Clone, Copy, Debug)]
pub struct MemorySpan {
    start: u64,
    len: u64,
    host: NonNull<u8>,
}

// SAFETY: an address and two numbers; the memory is only used through raw pointers and atomics.
unsafe impl Send for MemorySpan {}
// SAFETY: as above.
unsafe impl Sync for MemorySpan {}

impl MemorySpan {
    const NONE: MemorySpan = MemorySpan { start: 0, len: 0, host: NonNull::dangling() };

    pub(crate) fn new(start: Gpa, len: u64, host: NonNull<u8>) -> MemorySpan {
        MemorySpan { start: start.0, len, host }
    }

    /// Returns the host's address of `len` bytes, if all of them are within the span.
    #[inline(always)]
    pub fn find(&self, gpa: Gpa, len: u32) -> Option<NonNull<u8>> {
        let offset = gpa.0.wrapping_sub(self.start);
        if offset < self.len && u64::from(len) <= self.len - offset {
            // SAFETY: the offset lies in the span, which is mapped from `host` on.
            return Some(unsafe { self.host.add(native(offset)) });
        }
        None
    }
}

/// All of a guest's memory at one moment. Shared by its queues; never changes.
#[derive(Debug)]
pub struct GuestMemory {
    addresses: AddressRange,
    /// Sorted by guest address.
    spans: Vec<MemorySpan>,
    /// Sorted by guest address.
    regions: Vec<Region>,
    /// Most bytes that its regions, or the log of its written pages, may have.
    pub(crate) limit: u64,
}

impl GuestMemory {
    /// Checks and maps the regions of a guest, however large.
    ///
    /// # Errors
    /// Fails like [`GuestMemory::map_within`].
    pub fn map(regions: Vec<Region>) -> Result<Arc<GuestMemory>, MemoryError> {
        Self::map_within(u64::MAX, regions)
    }

    /// Checks and maps the regions of a guest. They, and those of later snapshots, take at most
    /// `limit` bytes of this process's addresses. That bounds what is mapped at a time, and not
    /// what the files hold: a page that we touch stays in its file, charged to this process, after
    /// it was unmapped.
    ///
    /// # Errors
    /// Fails if a region's file is not memory, if the layout of the regions is not valid or exceeds
    /// `limit`, or if a region cannot be mapped.
    pub fn map_within(limit: u64, regions: Vec<Region>) -> Result<Arc<GuestMemory>, MemoryError> {
        Self::map_anew(limit, regions, |_| true)
    }

    /// Maps the regions like `map_within`, and makes no huge page: some may still be on their way
    /// from another host, and one that is made here would take their place.
    ///
    /// # Errors
    /// Fails like [`GuestMemory::map_within`].
    pub fn map_untouched(
        limit: u64,
        regions: Vec<Region>,
    ) -> Result<Arc<GuestMemory>, MemoryError> {
        Self::map_anew(limit, regions, |_| false)
    }

    /// Returns the memory of spans in any order, which has no log.
    pub(crate) fn of(
        addresses: AddressRange,
        mut spans: Vec<MemorySpan>,
        regions: Vec<Region>,
    ) -> GuestMemory {
        spans.sort_by_key(|span| span.start);
        GuestMemory { addresses, spans, regions, limit: u64::MAX }
    }

    /// Maps the regions like `map_within`, but makes huge pages only for those that `is_new`
    /// selects.
    fn map_anew(
        limit: u64,
        mut regions: Vec<Region>,
        is_new: impl Fn(&Region) -> bool,
    ) -> Result<Arc<GuestMemory>, MemoryError> {
        regions.sort_by_key(|region| region.gpa);
        let pairs = regions.iter().map(|region| Ok((region, facts(region.file.as_fd())?)));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        let plan = layout::plan(&pairs, limit)?;
        let mut addresses = AddressRange::new(plan.len, plan.align)?;
        let mut spans: Vec<MemorySpan> = Vec::new();
        for ((region, facts), place) in pairs.into_iter().zip(&plan.places) {
            let file = region.file.as_fd();
            addresses.map(place.map_start, place.map_len, file, place.file_offset)?;
            if facts.page > PAGE && is_new(region) {
                addresses.populate(place.map_start, place.map_len)?;
            }
            let (start, len, host) = (region.gpa.0, region.size, addresses.at(place.start));
            match spans.last_mut().filter(|_| place.joins) {
                Some(last) => last.len += len,
                None => spans.push(MemorySpan { start, len, host }),
            }
        }
        Ok(Arc::new(GuestMemory { addresses, spans, regions, limit }))
    }

    /// Returns this memory with one region more (`VHOST_USER_ADD_MEM_REG`), as a snapshot of its
    /// own: this one stays as it is.
    ///
    /// # Errors
    /// Fails like [`GuestMemory::map_within`].
    pub fn with_region(&self, region: Region) -> Result<Arc<GuestMemory>, MemoryError> {
        let (mut regions, new) = (self.regions(), region.gpa);
        regions.push(region);
        Self::map_anew(self.limit, regions, |region| region.gpa == new)
    }

    /// Returns this memory without the region of these addresses (`VHOST_USER_REM_MEM_REG`).
    ///
    /// # Errors
    /// Fails if there is no such region, or if the others cannot be mapped.
    pub fn without_region(
        &self,
        gpa: Gpa,
        size: u64,
        user: UserAddress,
    ) -> Result<Arc<GuestMemory>, MemoryError> {
        let mut regions = self.regions();
        let count = regions.len();
        regions.retain(|region| (region.gpa, region.size, region.user) != (gpa, size, user));
        if regions.len() == count {
            return Err(MemoryError::NoSuchRegion { gpa, size });
        }
        Self::map_anew(self.limit, regions, |_| false)
    }

    /// Returns whether this memory has a region already: the same addresses, and the same part of the
    /// same file.
    pub fn has_region(&self, region: &Region) -> bool {
        let place = |it: &Region| (it.gpa, it.size, it.user, it.file_offset);
        let own = self.regions.iter().find(|own| place(own) == place(region));
        own.is_some_and(|own| is_same_memory(own.file.as_fd(), region.file.as_fd()))
    }

    /// Returns the regions that this memory was mapped from.
    pub fn regions(&self) -> Vec<Region> {
        self.regions.clone()
    }

    /// Returns whether a file of this memory was truncated while it was mapped. If so, what is read
    /// from now on is not the guest's.
    pub fn is_broken(&self) -> bool {
        self.addresses.is_broken()
    }

    /// Returns the number of bytes of all regions.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.len).sum()
    }

    /// Returns the first guest address after all regions.
    pub fn end(&self) -> Gpa {
        Gpa(self.spans.last().map_or(0, |span| span.start + span.len))
    }

    /// Returns the host's address of `len` bytes without a hole, `None` where some of them are not
    /// there.
    pub fn translate(&self, gpa: Gpa, len: u32) -> Option<NonNull<u8>> {
        self.span(gpa)?.find(gpa, len)
    }

    fn span(&self, gpa: Gpa) -> Option<&MemorySpan> {
        let after = self.spans.partition_point(|span| span.start <= gpa.0);
        self.spans.get(after.checked_sub(1)?)
    }

    /// Returns the guest's address of what the front end names by its own; `len` bytes must be
    /// there without a hole.
    pub fn guest_address(&self, user: UserAddress, len: u32) -> Option<Gpa> {
        self.regions.iter().find_map(|region| {
            let offset =
                user.0.checked_sub(region.user.0).filter(|offset| *offset < region.size)?;
            let gpa = Gpa(region.gpa.0 + offset);
            (u64::from(len) <= region.size - offset).then_some(gpa)
        })
    }

    /// Marks what was written through a pointer of this memory in the log of a migration.
    pub fn mark_written(&self, log: &DirtyLog, host: NonNull<u8>, len: usize) {
        let address = host.addr().get();
        // Sorted by these addresses too: spans lie side by side.
        let after = self.spans.partition_point(|span| span.host.addr().get() <= address);
        if let Some(span) = after.checked_sub(1).and_then(|place| self.spans.get(place)) {
            let offset = address - span.host.addr().get();
            log.mark(Gpa(span.start + offset as u64), len as u64);
        }
    }

    /// Copies bytes out of guest memory; `false`, and `out` as it was, where some are not there.
    pub fn read(&self, gpa: Gpa, out: &mut [u8]) -> bool {
        // SAFETY: `translate` answers for the length.
        unsafe { copy_out(|len| self.translate(gpa, len), out) }
    }

    /// Copies bytes into guest memory; `false`, and nothing written, where some are not there.
    pub fn write(&self, gpa: Gpa, bytes: &[u8]) -> bool {
        let Some(to) = u32::try_from(bytes.len()).ok().and_then(|len| self.translate(gpa, len))
        else {
            return false;
        };
        // SAFETY: as in `copy_out`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        true
    }
}

/// Copies bytes out of guest memory; `false`, and `out` as it was, where `find` finds none.
///
/// # Safety
/// The address that `find` returns must have as many mapped bytes as `find` was asked for.
#[inline(always)]
unsafe fn copy_out(find: impl FnOnce(u32) -> Option<NonNull<u8>>, out: &mut [u8]) -> bool {
    let Some(from) = u32::try_from(out.len()).ok().and_then(find) else { return false };
    // SAFETY: the bytes are there, as the caller says; `out` is the caller's alone and cannot lie
    // in guest memory, which is never lent as a reference.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
    true
}

/// Refuses a file that is not memory. Only memfds and files of tmpfs and hugetlbfs have seals.
/// Nothing else is asked of a file before this: a file system in user space (FUSE) answers `fstat`
/// and page faults when it pleases.
fn expect_memory(file: BorrowedFd<'_>) -> Result<(), MemoryError> {
    if fcntl_get_seals(file).is_ok() {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(&link).unwrap_or_else(|_| link.into());
    Err(MemoryError::Backing(path))
}

/// Returns whether a file is the same memory as one that is mapped.
fn is_same_memory(mapped: BorrowedFd<'_>, file: BorrowedFd<'_>) -> bool {
    let number = |file| fstat(file).map(|facts| (facts.st_dev, facts.st_ino)).ok();
    expect_memory(file).is_ok() && number(file).is_some_and(|it| number(mapped) == Some(it))
}

/// Returns the size and page size of a file that is memory.
pub(crate) fn facts(file: BorrowedFd<'_>) -> Result<FileFacts, MemoryError> {
    expect_memory(file)?;
    let failed = MemoryError::io("asking for the size of a memory file", 0);
    let size = u64::try_from(fstat(file).map_err(failed)?.st_size).unwrap_or(0);
    let system = fstatfs(file).map_err(failed)?;
    let huge = system.f_type == HUGETLBFS_MAGIC;
    let page = if huge { u64::try_from(system.f_bsize).unwrap_or(PAGE) } else { PAGE };
    Ok(FileFacts { size, page })
}

/// A queue's way to its guest's memory: remembers the span it used last.
#[derive(Debug)]
pub struct Translator {
    hot: MemorySpan,
    memory: Arc<GuestMemory>,
}

impl Translator {
    /// Returns a translator for a queue of its own.
    pub fn new(memory: Arc<GuestMemory>) -> Translator {
        Translator { hot: memory.spans.first().copied().unwrap_or(MemorySpan::NONE), memory }
    }

    /// Returns the host's address of `len` bytes without a hole, good as long as this translator
    /// keeps its memory.
    #[inline]
    pub fn translate(&mut self, gpa: Gpa, len: u32) -> Option<NonNull<u8>> {
        match self.hot.find(gpa, len) {
            None => self.translate_cold(gpa, len),
            found => found,
        }
    }

    #[cold]
    fn translate_cold(&mut self, gpa: Gpa, len: u32) -> Option<NonNull<u8>> {
        self.hot = *self.memory.span(gpa)?;
        self.hot.find(gpa, len)
    }

    /// Copies bytes out of guest memory; `false`, and `out` as it was, where some are not there.
    #[inline]
    pub fn read(&mut self, gpa: Gpa, out: &mut [u8]) -> bool {
        // SAFETY: `translate` answers for the length.
        unsafe { copy_out(|len| self.translate(gpa, len), out) }
    }

    /// Returns the span that was used last.
    #[inline]
    pub fn span(&self) -> MemorySpan {
        self.hot
    }

    /// Returns the snapshot that is translated.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }
}
