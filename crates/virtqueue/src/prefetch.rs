// UNSAFETY: the prefetch instructions are intrinsics; they access nothing that could fault.
//! Hints to the processor that a buffer will be touched soon.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// The first line of a buffer will be read.
#[inline(always)]
pub(crate) fn to_read(start: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it does not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}

/// The first line of a buffer will be written.
#[inline(always)]
pub(crate) fn to_write(start: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it does not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(start.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}
