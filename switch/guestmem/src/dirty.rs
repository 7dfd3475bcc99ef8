// UNSAFETY: sets bits in a file that the front end reads at the same time.
//! The log of written pages for live migration: one bit per 4 KiB of guest memory (vhost-user
//! protocol, "Migration"). There is no log until the front end sends `VHOST_USER_SET_LOG_BASE`, so
//! code that writes to a guest holds an `Option` and checks it once per burst.
#![allow(unsafe_code)]

use crate::address_range::AddressRange;
use crate::layout::PAGE;
use crate::memory::facts;
use crate::{Gpa, GuestMemory, MemoryError};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A mapped log. Shared by all queues of a port.
#[derive(Debug)]
pub struct DirtyLog {
    addresses: AddressRange,
    /// Where the bitmap starts in the mapping, in bytes.
    start: u64,
    /// Bytes of the bitmap.
    bytes: u64,
}

impl DirtyLog {
    /// Maps a log: `bytes` of the file from `offset` on.
    ///
    /// # Errors
    /// Fails if `bytes` is less than `memory` needs or above its limit, if the file has other than
    /// base pages or ends before the log does, or if the file cannot be mapped.
    pub fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        memory: &GuestMemory,
    ) -> Result<Arc<DirtyLog>, MemoryError> {
        let (end, limit) = (memory.end(), memory.limit);
        let needed = end.0.div_ceil(PAGE * 8);
        if bytes < needed {
            return Err(MemoryError::LogTooShort { bytes, end, needed });
        }
        // All of it is mapped: a front end announces a log for the memory that it is about to add.
        if bytes > limit {
            return Err(MemoryError::TooMuch { seen: bytes, limit });
        }
        // A page of another size would be mapped past the end of what is reserved here.
        let facts = facts(file)?;
        if facts.page != PAGE {
            return Err(MemoryError::LogPage(facts.page));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > facts.size) {
            return Err(MemoryError::io("mapping the dirty log", bytes)(Errno::INVAL));
        }
        let start = offset % PAGE;
        let len = (start + bytes).next_multiple_of(PAGE);
        let mut addresses = AddressRange::new(len, PAGE)?;
        addresses.map(0, len, file, offset - start)?;
        Ok(Arc::new(DirtyLog { addresses, start, bytes }))
    }

    /// Marks the pages of these places, each with its bytes.
    pub fn mark_all(&self, places: impl IntoIterator<Item = (Gpa, u64)>) {
        places.into_iter().for_each(|(gpa, len)| self.mark(gpa, len));
    }

    /// Marks the pages of `len` bytes as written. What lies past the log is left out: the memory it
    /// was made for does not.
    pub fn mark(&self, gpa: Gpa, len: u64) {
        if len == 0 {
            return;
        }
        let last = gpa.0.saturating_add(len - 1) / PAGE;
        for page in gpa.0 / PAGE..=last.min((self.bytes * 8).saturating_sub(1)) {
            let byte = self.addresses.at(self.start + page / 8);
            // SAFETY: the bit is in the log, and all bytes of the log are mapped. An atomic byte
            // has no alignment, and the front end too uses atomics. The reservation stays as long
            // as `self`.
            let byte = unsafe { AtomicU8::from_ptr(byte.as_ptr()) };
            // Pairs with the front end's exchange of the log's words: a reader of the bit sees what
            // was written before. Never skipped because the bit seems set: a load could pass our
            // own stores to the page.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }
}
