// UNSAFETY: maps files at addresses we have reserved, and gives out pointers into them.
//! A range of addresses that is ours, empty until files are mapped into it.
#![allow(unsafe_code)]

use crate::MemoryError;
use crate::guard::Guard;
use crate::layout::{PAGE, native};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Addresses reserved without access, watched by the truncation guard, given up when dropped.
#[derive(Debug)]
pub(crate) struct AddressRange {
    start: NonNull<u8>,
    len: usize,
    /// Taken off before the addresses are given up; `None` only while they are.
    guard: Option<Guard>,
    /// What `mmap` gave: more than `start` and `len` where they had to be aligned.
    whole: (NonNull<u8>, usize),
}

// SAFETY: a reservation is a range of addresses; what is mapped there is shared with another
// process in any case and is only used through raw pointers and atomics.
unsafe impl Send for AddressRange {}
// SAFETY: as above; nothing in it changes after it is built.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves `len` bytes from a multiple of `align` on, a power of two.
    pub(crate) fn new(len: u64, align: u64) -> Result<AddressRange, MemoryError> {
        let failed = MemoryError::io("reserving addresses", len);
        let too_long = || failed(Errno::NOMEM);
        let sum = len.max(PAGE).checked_add(align).ok_or_else(too_long)?;
        let (whole, align) = (native(sum), native(align));
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, without access.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags) }
                .map_err(failed)?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(too_long)?;
        let lead = base.addr().get().wrapping_neg() & (align - 1);
        // SAFETY: `lead` is less than `align`, by which the mapping is longer than `len`.
        let start = unsafe { base.add(lead) };
        let len = whole - align;
        let mut range = AddressRange { start, len, guard: None, whole: (base, whole) };
        let first = start.addr().get();
        range.guard = Some(Guard::watch(first..first + len)?);
        Ok(range)
    }

    /// Maps a part of a file at an offset, shared with every other process that maps it.
    pub(crate) fn map(
        &mut self,
        offset: u64,
        len: u64,
        file: BorrowedFd<'_>,
        file_offset: u64,
    ) -> Result<(), MemoryError> {
        let failed = MemoryError::io("mapping guest memory", len);
        let (at, bytes) = (self.place(offset, len).map_err(failed)?, native(len));
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies in our reservation, as `place` says, and as `self` is borrowed
        // mutably no one else has pointers into it yet.
        unsafe {
            mmap(at, bytes, access, flags, file, file_offset).map_err(failed)?;
            // A core dump of the switch must not hold its guests' secrets. Not to be had
            // everywhere: no error.
            let _ = madvise(at, bytes, Advice::LinuxDontDump);
        }
        Ok(())
    }

    /// Populates every page of a mapping, which changes no byte of it: a huge page, up to 1 GiB,
    /// is zeroed by the thread that touches it first.
    pub(crate) fn populate(&mut self, offset: u64, len: u64) -> Result<(), MemoryError> {
        let failed = MemoryError::io("populating huge pages", len);
        let (at, bytes) = (self.place(offset, len).map_err(failed)?, native(len));
        // SAFETY: the range lies in our reservation, as `place` says; the advice leaves its bytes
        // as they are.
        match unsafe { madvise(at, bytes, Advice::LinuxPopulateWrite) } {
            // Linux before 5.14 has no such call.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(source) => Err(MemoryError::HugePages { bytes: len, source: source.into() }),
        }
    }

    /// Returns the address of `len` bytes at an offset, all of them in the reservation.
    fn place(&self, offset: u64, len: u64) -> Result<*mut c_void, Errno> {
        let end = native(offset).checked_add(native(len));
        end.filter(|end| *end <= self.len).ok_or(Errno::INVAL)?;
        Ok(self.at(offset).as_ptr().cast())
    }

    /// Returns the address of an offset; of the end where the offset is past it.
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        let offset = native(offset).min(self.len);
        // SAFETY: at most one past the reservation's last byte.
        unsafe { self.start.add(offset) }
    }

    /// Whether a mapped file was truncated.
    pub(crate) fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the mapping is ours, and pointers into it borrow the owner of this reservation,
        // so none is left.
        let _ = unsafe { munmap(self.whole.0.as_ptr().cast(), self.whole.1) };
    }
}
