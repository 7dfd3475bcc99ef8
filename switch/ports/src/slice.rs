// UNSAFETY: a slice of payload is an address and a length, so that a guest's memory, which the
// guest may write at any time, is never a Rust reference; and so that a list of slices is an iovec
// array without a copy.
//! Lent payload bytes.
//!
//! **A guest may change lent bytes at any moment**, so there is no `&[u8]` of them: a reference
//! promises the compiler that the bytes stay, and it may read them twice and rely on both reads.
//! Bytes leave a slice in four ways, all by raw pointer: copied to private memory (here), copied to
//! another guest ([`vhost`](crate::vhost)'s `copy.rs`), summed ([`Slice::sum`]), or read by the
//! kernel ([`Slice::as_io_slices`]). Each gives one value of each byte, old or new. No decision
//! depends on bytes that the guest can still change: headers are parsed from a private copy. All
//! happen without a [`lock`](crate::lock): a guest's page may have to be faulted in.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::marker::PhantomData;
use vhost_user::expect_none_held;
use wire::checksum::Sum;

/// Bytes lent for `'a` by the port they came from. Laid out as `struct iovec`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Slice<'a> {
    iovec: libc::iovec,
    loan: PhantomData<&'a [u8]>,
}

// SAFETY: a slice only gives read access to memory that stays mapped for 'a (the contract of
// `from_raw`), whichever thread reads.
unsafe impl Send for Slice<'_> {}
// SAFETY: as above; a slice has no state of its own.
unsafe impl Sync for Slice<'_> {}

impl<'a> Slice<'a> {
    /// Makes a slice of bytes that must not be a Rust reference, such as a guest's.
    ///
    /// # Safety
    /// `start..start + len` stays mapped and readable for `'a`. It may be written by others
    /// meanwhile.
    #[inline]
    pub unsafe fn from_raw(start: *const u8, len: usize) -> Slice<'a> {
        Slice {
            iovec: libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len },
            loan: PhantomData,
        }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.iovec.iov_len
    }

    /// Whether the slice has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.iovec.iov_base.cast_const().cast()
    }

    /// Returns the part from `from` on, empty if `from` is past the end.
    #[inline]
    pub fn skip(&self, from: usize) -> Slice<'a> {
        let from = from.min(self.len());
        // SAFETY: a part of the lent range.
        unsafe { Slice::from_raw(self.as_ptr().add(from), self.len() - from) }
    }

    /// Returns the first `len` bytes, or all if there are fewer.
    #[inline]
    pub fn take(&self, len: usize) -> Slice<'a> {
        // SAFETY: a part of the lent range.
        unsafe { Slice::from_raw(self.as_ptr(), len.min(self.len())) }
    }

    /// Copies as many bytes as both hold. Returns the number copied.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        expect_none_held();
        let count = self.len().min(out.len());
        // SAFETY: the source is mapped for 'a, the destination is ours alone, and lent memory is
        // never borrowed mutably.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), out.as_mut_ptr(), count) };
        count
    }

    /// Copies the first `LEN` bytes. Returns `false` if there are fewer.
    #[inline(always)]
    pub fn copy_first<const LEN: usize>(&self, out: &mut [u8; LEN]) -> bool {
        expect_none_held();
        let fits = LEN <= self.len();
        if fits {
            // SAFETY: as in `copy_to`, for a part of the source.
            unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), out.as_mut_ptr(), LEN) };
        }
        fits
    }

    /// Copies the last `LEN` bytes. Returns `false` if there are fewer.
    #[inline(always)]
    pub fn copy_last<const LEN: usize>(&self, out: &mut [u8; LEN]) -> bool {
        expect_none_held();
        let fits = LEN <= self.len();
        if fits {
            // SAFETY: as above.
            unsafe {
                let start = self.as_ptr().add(self.len() - LEN);
                std::ptr::copy_nonoverlapping(start, out.as_mut_ptr(), LEN);
            }
        }
        fits
    }

    /// Copies all bytes to the end of a list.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        expect_none_held();
        let (before, len) = (out.len(), self.len());
        out.reserve(len);
        // SAFETY: the list has room for `len` more bytes, all of which are written; the source as
        // in `copy_to`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.as_ptr(), out.as_mut_ptr().add(before), len);
            out.set_len(before + len);
        }
    }

    /// Returns the Internet checksum's sum of the bytes.
    #[inline]
    pub fn sum(&self) -> Sum {
        expect_none_held();
        // SAFETY: mapped and readable for 'a.
        unsafe { Sum::of_raw(self.as_ptr(), self.len()) }
    }

    /// Returns a list of slices as an `iovec` array for the kernel.
    pub fn as_io_slices<'s>(list: &'s [Slice<'a>]) -> &'s [IoSlice<'a>] {
        expect_none_held();
        // SAFETY: both are laid out as iovec (`IoSlice` guarantees it on Unix), and both only read
        // for 'a.
        unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), list.len()) }
    }
}

impl<'a> From<&'a [u8]> for Slice<'a> {
    fn from(bytes: &'a [u8]) -> Slice<'a> {
        // SAFETY: a reference lives and stays unchanged for 'a.
        unsafe { Slice::from_raw(bytes.as_ptr(), bytes.len()) }
    }
}
