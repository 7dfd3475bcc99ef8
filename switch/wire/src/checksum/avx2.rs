// UNSAFETY: vector loads of the checksum loop, behind run-time detection of the instructions they
// need.
//! The checksum of long pieces, 64 bytes a step.
//!
//! Each step widens the 32-bit words to 64-bit lanes, and adds four of them to a lane, so that
//! no carry can be lost before 2^30 steps.
//! The processor is asked once a process (std caches the answer) and the answer is read once a
//! call.
#![allow(unsafe_code)]

use super::{Sum, add_with_carry};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
};

/// Returns the sum of `len` bytes; `None` where the processor has no AVX2.
///
/// # Safety
/// The requirements of [`Sum::of_raw`] apply.
#[inline]
pub(super) unsafe fn sum(start: *const u8, len: usize) -> Option<Sum> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    // SAFETY: the line above found the instructions that the function is compiled for; the bytes as
    // the caller says.
    Some(unsafe { sum_avx2(start, len) })
}

#[target_feature(enable = "avx2")]
unsafe fn sum_avx2(start: *const u8, len: usize) -> Sum {
    let low_halves = _mm256_set1_epi64x(0xffff_ffff);
    let mut low = _mm256_setzero_si256();
    let mut high = _mm256_setzero_si256();
    for step in 0..len / 64 {
        // SAFETY: the 64 bytes of this step are among the caller's.
        let [first, second] = unsafe { load(start.add(64 * step)) };
        let lows = _mm256_add_epi64(
            _mm256_and_si256(first, low_halves),
            _mm256_and_si256(second, low_halves),
        );
        let highs =
            _mm256_add_epi64(_mm256_srli_epi64::<32>(first), _mm256_srli_epi64::<32>(second));
        low = _mm256_add_epi64(low, lows);
        high = _mm256_add_epi64(high, highs);
    }
    let total = lanes(_mm256_add_epi64(low, high)).into_iter().fold(0, add_with_carry);
    // SAFETY: the rest of the caller's bytes.
    Sum::fold(total) + unsafe { Sum::of_scalar_raw(start.add(len & !63), len % 64) }
}

#[target_feature(enable = "avx2")]
unsafe fn load(step: *const u8) -> [__m256i; 2] {
    let start = step.cast::<__m256i>();
    // SAFETY: both loads, 32 bytes each, lie within the caller's 64 bytes; they need no alignment.
    unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
}

#[target_feature(enable = "avx2")]
fn lanes(vector: __m256i) -> [u64; 4] {
    let mut lanes = [0; 4];
    // SAFETY: the store writes the 32 bytes of `lanes` and needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}
