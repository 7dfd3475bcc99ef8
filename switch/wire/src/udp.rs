//! UDP (RFC 768).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// UDP's number in IP headers.
pub const PROTOCOL: u8 = 17;

/// The header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// The sender's port.
    pub source_port: U16,
    /// The receiver's port.
    pub destination_port: U16,
    /// Bytes of header and payload.
    pub length: U16,
    /// Over pseudo-header, header and payload; 0: none was computed.
    pub checksum: U16,
}
