// UNSAFETY: the prefetch instructions are intrinsics; they access nothing that could fault.
//! Hints to the processor that a buffer will be touched soon: its first two lines, which hold the
//! virtio-net header and a small frame or the headers of a large one. DPDK's drivers put the header
//! at the end of one line and the frame at the start of the next. What comes after them the
//! processor finds by itself.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Prefetches a buffer that will be read.
#[inline(always)]
pub(crate) fn to_read(start: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints; they do not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().cast());
        _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().wrapping_add(LINE).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}

/// A buffer will be written. Spelled out, because the compiler makes a prefetch for reading of the
/// intrinsic on its baseline processor, and a line that is first shared and then claimed crosses
/// between the cores twice. A processor of this architecture that does not know the instruction
/// does nothing.
#[inline(always)]
pub(crate) fn to_write(start: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints; they do not fault, whatever the address.
    unsafe {
        std::arch::asm!(
            "prefetchw [{start}]",
            "prefetchw [{start} + {line}]",
            start = in(reg) start.as_ptr(),
            line = const LINE,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}
