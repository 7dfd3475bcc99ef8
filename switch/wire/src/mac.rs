//! The MAC address: as header bytes, as a number, and as text.

use std::fmt;
use std::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An Ethernet address, in wire order.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

/// The text is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address: write six pairs of hex digits, as in 52:54:00:12:34:56")]
pub struct MacParseError(String);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns an address with these bits that belongs to no manufacturer: locally administered, of
    /// one station.
    pub const fn local(bits: [u8; 6]) -> Mac {
        let [first, b, c, d, e, f] = bits;
        Mac([first & 0xfc | 0x02, b, c, d, e, f])
    }

    /// Whether the group bit is set: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the address as the low 48 bits of a number, first byte highest.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns the address in the low 48 bits of a number.
    pub const fn from_u64(number: u64) -> Mac {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Mac([a, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Six pairs of hex digits in either case, joined by colons (Linux) or by hyphens (Windows), not by
/// both.
impl FromStr for Mac {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Mac, MacParseError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let bytes: Option<Vec<u8>> = text.split(separator).map(hex_pair).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Mac)
            .ok_or_else(|| MacParseError(text.to_owned()))
    }
}

/// Parses exactly two hex digits; `from_str_radix` alone would also take a sign or one digit.
fn hex_pair(text: &str) -> Option<u8> {
    if text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u8::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_address_reads_back_as_it_prints(bytes: [u8; 6]) {
            let mac = Mac(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.to_string().replace(':', "-").to_uppercase().parse(), Ok(mac));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Mac>();
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_remedy() {
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:00:12:34:5",
            "52:54:00:12:34:+5",
            "52-54:00:12:34:56",
            "525400123456",
            "52:54:00:12:34:5g",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
        let error = "vm1".parse::<Mac>().unwrap_err();
        assert!(error.to_string().starts_with("`vm1` is not a MAC address: write six"));
    }
}
