// UNSAFETY: maps the memory that a vNIC shares with the switch, and copies in and out of it.
//! The memory of one vNIC: rings and buffers, in one file that the switch also maps.
//!
//! It is in huge pages of 2 MiB if the machine has free ones. The switch may write at any time, so
//! no reference to the bytes is ever given out: words are atomics, all else is copied. An offset
//! outside of the memory is a bug in this program, and panics.
#![allow(unsafe_code)]

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64};

/// The requested page size, and the granularity of the length.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping of `len` zeroed bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    /// Whether the memory is in huge pages.
    pub(crate) huge: bool,
}

impl Memory {
    /// Maps at least `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Memory> {
        let len = len.next_multiple_of(HUGE_PAGE);
        Memory::of_pages(len, true).or_else(|_| Memory::of_pages(len, false)).with_context(|| {
            format!("no {len} bytes of shared memory for a vNIC: free some memory")
        })
    }

    fn of_pages(len: usize, huge: bool) -> Result<Memory> {
        let pages =
            if huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let file = memfd_create("millrace-peers", MemfdFlags::CLOEXEC | pages)?;
        ftruncate(&file, len as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an address that nothing else has; the length is the file's
        // own.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, &file, 0) }?;
        let base = NonNull::new(base.cast()).context("memory at address 0")?;
        Ok(Memory { file, base, len, huge })
    }

    /// Returns the file that the switch maps.
    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the address in this process, which vhost-user uses for ring addresses.
    pub(crate) fn address(&self) -> u64 {
        self.base.addr().get() as u64
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset}");
        // SAFETY: the offset was just checked to be within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the two bytes at an even offset.
    #[inline(always)]
    pub(crate) fn word16(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2), "a word at {offset}");
        // SAFETY: `at` checked the length, the line above the alignment; both sides use atomics
        // here.
        unsafe { AtomicU16::from_ptr(self.at(offset, 2).cast()) }
    }

    /// Returns the eight bytes at an offset that is a multiple of eight.
    #[inline(always)]
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "eight bytes at {offset}");
        // SAFETY: as in `word16`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Copies bytes in.
    #[inline(always)]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checked the length; `bytes` cannot lie in the mapping, to which no reference
        // is given out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out.
    #[inline(always)]
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: as in `write`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and everything that pointed into it borrowed `self`. A
        // mapping that stays ends with the process; an error has no remedy here.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn bytes_and_words_are_the_same_memory() {
        let memory = Memory::new(1).unwrap();
        assert_eq!(memory.len(), HUGE_PAGE);
        memory.write(HUGE_PAGE - 8, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(memory.word64(HUGE_PAGE - 8).load(Relaxed), 0x0807_0605_0403_0201);
        memory.word16(HUGE_PAGE - 6).store(0x0a09, Relaxed);
        let mut out = [0; 4];
        memory.read(HUGE_PAGE - 7, &mut out);
        assert_eq!(out, [2, 9, 10, 5]);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 2097151")]
    fn an_offset_outside_stops_the_program() {
        Memory::new(1).unwrap().write(HUGE_PAGE - 1, &[0, 0]);
    }
}
