//! TCP (RFC 9293) and its timestamp option (RFC 7323).

use bitflags::bitflags;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

/// TCP's number in IP headers.
pub const PROTOCOL: u8 = 6;

bitflags! {
    /// The flag byte.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct TcpFlags: u8 {
        /// The sender has no more data.
        const FIN = 1 << 0;
        /// Opens a connection.
        const SYN = 1 << 1;
        /// Ends a connection at once.
        const RST = 1 << 2;
        /// Hand the data to the application.
        const PSH = 1 << 3;
        /// The acknowledgement number counts.
        const ACK = 1 << 4;
        /// The urgent pointer counts.
        const URG = 1 << 5;
        /// Echo of a congestion mark (RFC 3168).
        const ECE = 1 << 6;
        /// The sender has slowed down (RFC 3168).
        const CWR = 1 << 7;
    }
}

/// The header without options.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// The sender's port.
    pub source_port: U16,
    /// The receiver's port.
    pub destination_port: U16,
    /// Number of the first payload byte.
    pub sequence: U32,
    /// Number of the next byte expected from the other side.
    pub acknowledgement: U32,
    /// Header length in words of 4 bytes (upper 4 bits), reserved bits and AccECN's AE.
    pub data_offset: u8,
    /// The flag bits, see [`TcpFlags`].
    pub flags: u8,
    /// Bytes the sender will take, before scaling.
    pub window: U16,
    /// Over pseudo-header, header and payload.
    pub checksum: U16,
    /// End of urgent data, from the sequence number.
    pub urgent: U16,
}

impl TcpHeader {
    /// Returns the length in bytes of the header with its options, as the header states.
    #[inline]
    pub const fn header_len(&self) -> u16 {
        ((self.data_offset >> 4) as u16) << 2
    }

    /// Returns the flags by name.
    #[inline]
    pub const fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits_retain(self.flags)
    }
}

/// The timestamp option, at the offset that [`crate::TcpOptions::Timestamp`] gives.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TimestampOption {
    /// 8.
    pub kind: u8,
    /// 10.
    pub length: u8,
    /// The sender's clock (TSval).
    pub value: U32,
    /// The other side's clock as last seen (TSecr).
    pub echo: U32,
}

impl TimestampOption {
    /// The option's kind byte.
    pub const KIND: u8 = 8;
    /// Its length byte.
    pub const LENGTH: u8 = 10;
}
