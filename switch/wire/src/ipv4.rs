//! IPv4 (RFC 791).

use crate::Header;
use crate::checksum::Sum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// The header without options.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (4) and header length in words of 4 bytes.
    pub version_ihl: u8,
    /// DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_length: U16,
    /// Joins the fragments of one packet.
    pub identification: U16,
    /// Reserved, DF and MF (3 bits), fragment offset in units of 8 bytes (13 bits).
    pub flags_offset: U16,
    /// Hops left.
    pub ttl: u8,
    /// The transport's number.
    pub protocol: u8,
    /// Checksum of the header.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Don't Fragment, in `flags_offset`.
    pub const DF: u16 = 0x4000;
    /// More Fragments, in `flags_offset`.
    pub const MF: u16 = 0x2000;
    /// The fragment offset, in `flags_offset`.
    pub const OFFSET_MASK: u16 = 0x1fff;

    /// Returns the version nibble.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Returns the length in bytes of the header with its options, as the header states.
    #[inline]
    pub const fn header_len(&self) -> u16 {
        ((self.version_ihl & 0xf) as u16) << 2
    }

    /// Whether the packet is a fragment, the first or a later one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset.get() & (Self::MF | Self::OFFSET_MASK) != 0
    }

    /// Whether Don't Fragment is set.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset.get() & Self::DF != 0
    }
}

/// Writes the checksum of `header`, an IPv4 header with its options and nothing behind them.
/// Bytes too short to be one stay as they are.
pub fn fill_checksum(header: &mut [u8]) {
    if let Some(fixed) = Ipv4Header::at_mut(header, 0) {
        fixed.checksum = U16::ZERO;
        let checksum = Sum::of(header).finish();
        if let Some(fixed) = Ipv4Header::at_mut(header, 0) {
            fixed.checksum = U16::new(checksum);
        }
    }
}

/// Returns whether the checksum of `header` (with its options and nothing behind them) is right.
pub fn checksum_ok(header: &[u8]) -> bool {
    Sum::of(header).is_valid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_filled_checksum_is_right_and_a_changed_byte_makes_it_wrong(
            words in proptest::collection::vec(1u8.., 5..=15),
            place in 0usize..20,
        ) {
            let mut header: Vec<u8> = words.iter().flat_map(|&word| [word; 4]).collect();
            fill_checksum(&mut header);
            prop_assert!(checksum_ok(&header));
            header[place] ^= 0x10;
            prop_assert!(!checksum_ok(&header));
        }
    }

    #[test]
    fn a_known_header() {
        let mut header = *b"\x45\0\0\x73\0\0\x40\0\x40\x11\0\0\xc0\xa8\0\x01\xc0\xa8\0\xc7";
        fill_checksum(&mut header);
        assert_eq!(Ipv4Header::at(&header, 0).unwrap().checksum.get(), 0xb861);
    }
}
