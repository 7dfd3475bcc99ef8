//! IPv6 (RFC 8200).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

/// The fixed header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (4 bits), traffic class (8 bits: DSCP and ECN), flow label (20 bits).
    pub version_class_flow: U32,
    /// Bytes behind this header, extension headers among them.
    pub payload_length: U16,
    /// Number of the first extension header or of the transport.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Returns the version nibble.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_class_flow.as_bytes()[0] >> 4
    }
}

/// The first two bytes of every extension header this crate walks.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtensionHeader {
    /// Number of what follows it.
    pub next_header: u8,
    /// Its length: units of 8 bytes without the first; [`extension::AUTHENTICATION`] counts units
    /// of 4 without the first two; reserved in [`extension::FRAGMENT`], which is 8 bytes long.
    pub length: u8,
}

impl ExtensionHeader {
    /// Returns the length in bytes of the whole header, of which `kind` is the protocol number, one
    /// of [`extension::KNOWN`].
    pub(crate) fn bytes(&self, kind: u8) -> u16 {
        match kind {
            extension::FRAGMENT => 8,
            extension::AUTHENTICATION => (u16::from(self.length) + 2) * 4,
            _ => (u16::from(self.length) + 1) * 8,
        }
    }
}

/// Protocol numbers that are extension headers.
pub mod extension {
    /// Those that say how long they are in a way that is known. Others end a walk as
    /// [`crate::Kind::OtherIp`], as ESP does.
    pub const KNOWN: [u8; 5] = [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION];
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing.
    pub const ROUTING: u8 = 43;
    /// Fragment.
    pub const FRAGMENT: u8 = 44;
    /// Authentication (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// Nothing follows.
    pub const NONE: u8 = 59;
    /// Destination options.
    pub const DESTINATION: u8 = 60;
}
