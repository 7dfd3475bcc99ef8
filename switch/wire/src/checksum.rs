// UNSAFETY: adds up memory that others may write meanwhile, which is never a Rust reference.
//! The Internet checksum (RFC 1071) as a value that can be added up piece by piece.
//!
//! A [`Sum`] is what the 16-bit words come to, not yet inverted. Payload lies in slices of any
//! length, so pieces are joined by [`Sum::add_at`], which knows that a piece at an odd offset has
//! its bytes swapped. [`pseudo`] starts the sum of TCP and UDP.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::Parsed;
use std::ops::Add;

/// A ones-complement sum of 16-bit big-endian words, folded to 16 bits. Not yet inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sum(pub u16);

/// Bytes from which the vector unit wins over its set-up.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 256;

impl Sum {
    /// Returns the sum of `bytes`, of which the first is the upper half of a word. An odd last byte
    /// is padded with a zero.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        // SAFETY: a reference is readable.
        unsafe { Sum::of_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Like [`Sum::of`], for memory that others may write: each byte counts with a value that it
    /// had meanwhile.
    ///
    /// # Safety
    /// `len` bytes from `start` on are mapped and readable.
    #[inline]
    pub unsafe fn of_raw(start: *const u8, len: usize) -> Sum {
        #[cfg(target_arch = "x86_64")]
        if len >= WIDE
            // SAFETY: as the caller says.
            && let Some(sum) = unsafe { avx2::sum(start, len) }
        {
            return sum;
        }
        // SAFETY: as the caller says.
        unsafe { Sum::of_scalar_raw(start, len) }
    }

    /// Like [`Sum::of`] without the vector unit, for short pieces and other processors.
    #[inline]
    pub fn of_scalar(bytes: &[u8]) -> Sum {
        // SAFETY: a reference is readable.
        unsafe { Sum::of_scalar_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// # Safety
    /// The requirements of [`Sum::of_raw`] apply.
    unsafe fn of_scalar_raw(start: *const u8, len: usize) -> Sum {
        let (mut total, mut last) = (0u64, [0; 8]);
        // SAFETY: both pointers lie in the `len` bytes, or at their end.
        let (mut word, end) = unsafe { (start, start.add(len & !7)) };
        while word != end {
            // SAFETY: 8 bytes before `end`, or more.
            total = add_with_carry(total, unsafe { word.cast::<u64>().read_unaligned() });
            // SAFETY: as above.
            word = unsafe { word.add(8) };
        }
        for (at, to) in (0..len % 8).zip(&mut last) {
            // SAFETY: the rest of the `len` bytes.
            *to = unsafe { end.add(at).read() };
        }
        Sum::fold(add_with_carry(total, u64::from_ne_bytes(last)))
    }

    /// Like [`Sum::of`], for an IPv4 header without options, the only length that is summed for
    /// every segment.
    #[inline(always)]
    pub fn of_20(bytes: &[u8; 20]) -> Sum {
        let [a, b, c, d, e] = bytes.as_chunks::<4>().0 else { return Sum::of_scalar(bytes) };
        let word = |bytes: &[u8; 4]| u64::from(u32::from_ne_bytes(*bytes));
        Sum::fold(word(a) + word(b) + word(c) + word(d) + word(e))
    }

    /// Folds a sum of words in the machine's byte order. Swapping the bytes of every word swaps
    /// those of the sum (RFC 1071, section 2 B), so the order is set right once, here.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the last line of folding leaves 16 bits")]
    fn fold(total: u64) -> Sum {
        let total = (total >> 32) + (total & 0xffff_ffff);
        let total = (total >> 32) + (total & 0xffff_ffff);
        let total = (total >> 16) + (total & 0xffff);
        let total = (total >> 16) + (total & 0xffff);
        Sum((total as u16).to_be())
    }

    /// Joins the sum of a piece that starts `offset` bytes behind the first byte of `self`.
    #[inline]
    #[must_use]
    pub const fn add_at(self, offset: usize, piece: Sum) -> Sum {
        let piece = if offset % 2 == 1 { piece.0.swap_bytes() } else { piece.0 };
        self.add_u16(piece)
    }

    /// Adds one word, host order.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Sum {
        let (sum, carry) = self.0.overflowing_add(word);
        Sum(sum + carry as u16)
    }

    /// Returns the checksum to write: the inverted sum. UDP writes [`Sum::finish_udp`].
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.0
    }

    /// Returns the checksum to write into a UDP header, where 0 would mean that there is none (RFC
    /// 768).
    #[inline]
    pub const fn finish_udp(self) -> u16 {
        if self.0 == 0xffff { 0xffff } else { !self.0 }
    }

    /// Returns whether data is intact, where this is the sum of the data and its checksum.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 == 0xffff
    }
}

impl Add for Sum {
    type Output = Sum;
    #[inline]
    fn add(self, other: Sum) -> Sum {
        self.add_u16(other.0)
    }
}

/// Returns the pseudo-header of a parsed frame for `len` bytes of transport; `None` where it has no
/// IP header. What has a routing header is summed with the destination of its IP header, which for
/// a packet under way is not the one the sender summed.
#[inline]
pub fn pseudo(headers: &[u8], parsed: &Parsed, len: u32) -> Option<Sum> {
    let addresses = Sum::of_scalar(parsed.addresses(headers)?);
    Some((addresses + Sum::of_scalar(&len.to_be_bytes())).add_u16(parsed.protocol.into()))
}

#[inline]
const fn add_with_carry(total: u64, word: u64) -> u64 {
    let (sum, carry) = total.overflowing_add(word);
    sum + carry as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Computes the sum of RFC 1071 word by word.
    fn by_definition(bytes: &[u8]) -> Sum {
        let mut total = 0u32;
        for word in bytes.chunks(2) {
            total += u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from);
            total = (total >> 16) + (total & 0xffff);
        }
        Sum(u16::try_from(total).unwrap())
    }

    proptest! {
        #[test]
        fn both_loops_give_what_the_definition_says(bytes in vec(any::<u8>(), 0..3000), from in 0usize..16) {
            let bytes = bytes.get(from..).unwrap_or_default();
            let expected = by_definition(bytes);
            prop_assert_eq!(Sum::of_scalar(bytes), expected);
            prop_assert_eq!(Sum::of(bytes), expected);
        }

        #[test]
        fn a_short_header_sums_as_any_bytes(bytes: [u8; 20]) {
            prop_assert_eq!(Sum::of_20(&bytes), by_definition(&bytes));
        }

        #[test]
        fn pieces_of_any_length_join_to_the_whole(pieces in vec(vec(any::<u8>(), 0..600), 0..6)) {
            let mut sum = Sum::default();
            let mut offset = 0;
            for piece in &pieces {
                sum = sum.add_at(offset, Sum::of(piece));
                offset += piece.len();
            }
            prop_assert_eq!(sum, by_definition(&pieces.concat()));
        }

        #[test]
        fn a_sum_with_its_checksum_is_valid(sum: u16) {
            prop_assert!(Sum(sum).add_u16(Sum(sum).finish()).is_valid());
            prop_assert!(Sum(sum).add_u16(Sum(sum).finish_udp()).is_valid());
            prop_assert_ne!(Sum(sum).finish_udp(), 0);
        }
    }

    #[test]
    fn no_carry_is_lost_in_a_longest_train_of_ones() {
        let bytes = vec![0xff; 65_535];
        assert_eq!(Sum::of(&bytes), by_definition(&bytes));
        assert_eq!(Sum::of_scalar(&bytes), by_definition(&bytes));
    }
}
