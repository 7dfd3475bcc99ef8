// UNSAFETY: turns checked places in guest memory into references to atomics.
//! Words of a ring, which the device reads and writes at the same time.
#![allow(unsafe_code)]

use guestmem::{Gpa, GuestMemory};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Types that may be shared with the device.
///
/// # Safety
/// The type is `repr(C)` and made of atomics only, without padding.
pub(crate) unsafe trait Shareable {}

// SAFETY: an atomic.
unsafe impl Shareable for AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Shareable for AtomicU32 {}

/// A descriptor of either format (virtio 1.2, sections 2.7.5 and 2.8.13), in a ring or in an
/// indirect table.
#[repr(C)]
pub(crate) struct DescriptorCell {
    gpa: AtomicU64,
    pub(crate) len: AtomicU32,
    /// Split: flags, next. Packed: id, flags.
    pub(crate) last: [AtomicU16; 2],
}
// SAFETY: atomics of 8, 4, 2 and 2 bytes in this order leave no padding.
unsafe impl Shareable for DescriptorCell {}

impl DescriptorCell {
    /// Writes the buffer's place. Relaxed: published by a later release store.
    pub(crate) fn write(&self, gpa: Gpa, len: u32) {
        self.gpa.store(gpa.0, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
    }

    /// Writes the last two words, also relaxed.
    pub(crate) fn write_last(&self, words: [u16; 2]) {
        for (cell, word) in self.last.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

/// Returns the word or descriptor at a guest address.
pub(crate) fn at<T: Shareable>(memory: &GuestMemory, gpa: Gpa) -> &T {
    let len = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX);
    let start = memory.translate(gpa, len).expect("a guest's ring lies in its memory").cast::<T>();
    assert!(start.is_aligned(), "a ring's part at guest address {gpa} is aligned");
    // SAFETY: all bytes lie in guest memory, which stays mapped while `memory` is borrowed, and are
    // aligned; `T` is `Shareable`, so any bits are a value and the device's writes are no data
    // race.
    unsafe { start.as_ref() }
}
