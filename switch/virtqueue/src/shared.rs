// UNSAFETY: turns checked places in guest memory into references to atomics, the one way in which
// rings are accessed.
//! Parts of a ring, in memory shared with the other side.
//!
//! The other side is another process and may write at any time, so a part consists of atomics only,
//! for which any bits are a value. Where a part lies is checked once; after that it is a slice,
//! with a slice's own bounds.
#![allow(unsafe_code)]

use crate::SetupError;
use guestmem::{Gpa, GuestMemory};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The ring formats are little-endian (virtio 1.2, section 1.4), and words are read and written as
/// they are.
const _: () = assert!(cfg!(target_endian = "little"));

/// A type that a part of a ring may consist of.
///
/// # Safety
/// The type is `repr(C)` and made of atomics only, without padding. Its alignment is what the
/// specification says.
pub(crate) unsafe trait Shareable {}

// SAFETY: an atomic.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shareable for AtomicU16 {}

// SAFETY: an atomic.
unsafe impl Shareable for AtomicU64 {}

/// Flags and index of an available or a used ring (virtio 1.2, sections 2.7.6 and 2.7.8).
#[repr(C)]
pub(crate) struct RingHead {
    pub(crate) flags: AtomicU16,
    pub(crate) index: AtomicU16,
}
// SAFETY: two atomics of one size.
unsafe impl Shareable for RingHead {}

/// A used element (section 2.7.8).
#[repr(C)]
pub(crate) struct UsedCell {
    pub(crate) id: AtomicU32,
    pub(crate) len: AtomicU32,
}
// SAFETY: two atomics of one size.
unsafe impl Shareable for UsedCell {}

/// A descriptor of a split ring (section 2.7.5).
#[repr(C, align(16))]
pub(crate) struct SplitCell {
    pub(crate) gpa: AtomicU64,
    pub(crate) len: AtomicU32,
    pub(crate) flags: AtomicU16,
    pub(crate) next: AtomicU16,
}
// SAFETY: atomics of 8, 4, 2 and 2 bytes in this order leave no padding.
unsafe impl Shareable for SplitCell {}

/// A descriptor of a packed ring (section 2.8.13).
#[repr(C, align(16))]
pub(crate) struct PackedCell {
    pub(crate) gpa: AtomicU64,
    pub(crate) len: AtomicU32,
    pub(crate) id: AtomicU16,
    pub(crate) flags: AtomicU16,
}
// SAFETY: as for `SplitCell`.
unsafe impl Shareable for PackedCell {}

/// A chain in an [`InflightJournal`](crate::InflightJournal).
#[repr(C)]
pub(crate) struct JournalCell {
    pub(crate) id: AtomicU16,
    pub(crate) slots: AtomicU16,
    pub(crate) written: AtomicU32,
}
// SAFETY: atomics of 2, 2 and 4 bytes in this order leave no padding.
unsafe impl Shareable for JournalCell {}

/// A part of a ring. Keeps its memory mapped.
pub(crate) struct Shared<T: ?Sized> {
    part: NonNull<T>,
    gpa: Gpa,
    _memory: Arc<GuestMemory>,
}

// SAFETY: an address of atomics, which any thread may use while the memory is mapped.
unsafe impl<T: ?Sized> Send for Shared<T> {}

/// Finds the bytes of `count` cells. Fails if they are unaligned or outside guest memory.
fn resolve<T: Shareable>(
    memory: &GuestMemory,
    part: &'static str,
    gpa: Gpa,
    count: usize,
) -> Result<NonNull<T>, SetupError> {
    let (len, align) = (count * size_of::<T>(), align_of::<T>() as u64);
    if !gpa.0.is_multiple_of(align) {
        return Err(SetupError::Unaligned { part, gpa, align });
    }
    let start = u32::try_from(len).ok().and_then(|len| memory.translate(gpa, len));
    start.map(NonNull::cast).ok_or(SetupError::OutsideMemory { part, gpa, len })
}

impl<T: Shareable> Shared<T> {
    /// Finds one field. Fails if it is unaligned or outside guest memory.
    pub(crate) fn one(
        memory: &Arc<GuestMemory>,
        name: &'static str,
        gpa: Gpa,
    ) -> Result<Shared<T>, SetupError> {
        Ok(Shared { part: resolve(memory, name, gpa, 1)?, gpa, _memory: memory.clone() })
    }
}

impl<T: Shareable> Shared<[T]> {
    /// Finds `count` cells in a row. Fails if they are unaligned or outside guest memory.
    pub(crate) fn many(
        memory: &Arc<GuestMemory>,
        name: &'static str,
        gpa: Gpa,
        count: u16,
    ) -> Result<Shared<[T]>, SetupError> {
        let count = usize::from(count);
        let part = NonNull::slice_from_raw_parts(resolve(memory, name, gpa, count)?, count);
        Ok(Shared { part, gpa, _memory: memory.clone() })
    }
}

impl<T: ?Sized> Shared<T> {
    /// Returns its guest address and its length in bytes, for the log of a migration.
    pub(crate) fn place(&self) -> (Gpa, u64) {
        (self.gpa, size_of_val(&**self) as u64)
    }
}

impl<T: Shareable> Shared<[T]> {
    /// Returns the guest address and the length in bytes of `count` cells from `first` on.
    pub(crate) fn part(&self, first: usize, count: usize) -> (Gpa, u64) {
        let [offset, len] = [first, count].map(|cells| (cells * size_of::<T>()) as u64);
        (Gpa(self.gpa.0 + offset), len)
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `one` and `many`, which alone make this type, have found all bytes in guest
        // memory, aligned as `T` needs (pages of guest and host are aligned alike); the memory
        // stays mapped with `self`; `T` is `Shareable`, so any bits are a value and writes of the
        // other side are no data race.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.gpa)
    }
}
