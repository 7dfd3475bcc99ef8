//! The virtio-net header (virtio 1.2, section 5.1.6): what travels beside a frame about checksums
//! and segmentation.
//!
//! Every port speaks it: vhost-user and TAP because their other side does, the others because the
//! switch does. Nothing in it is trusted: it is decoded as it stands, and the user of a
//! field checks it against the frame.

use crate::toeplitz::HashTypes;
use bitflags::bitflags;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32},
    transmute,
};

bitflags! {
    /// `flags` of the header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Flags: u8 {
        /// The transport checksum is only the pseudo-header's: finish it from `csum_start` on.
        const NEEDS_CSUM = 1;
        /// The transport checksum was checked and is good.
        const DATA_VALID = 2;
        /// `csum_start` and `csum_offset` carry RSC segment and duplicate-ACK counts.
        const RSC_INFO = 4;
    }
}

/// `gso_type` of the header, without the ECN bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GsoType {
    /// One frame, nothing to segment.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP segmentation (USO, `VIRTIO_NET_HDR_GSO_UDP_L4`).
    UdpL4,
    /// A value we do not serve, among them the old UFO (3).
    Unknown(u8),
}

/// The 12-byte header as it lies in memory, little-endian fields.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct VnetHeader {
    flags: u8,
    gso_type: u8,
    /// Bytes of headers in front of the payload; a hint, never trusted.
    pub hdr_len: U16,
    /// Payload bytes of each segment.
    pub gso_size: U16,
    /// Where the checksum starts, from the first byte of the frame.
    pub csum_start: U16,
    /// Where to put it, from `csum_start`.
    pub csum_offset: U16,
    /// Buffers a received frame takes (mergeable receive buffers); 0 from a guest. Inside the
    /// switch, where no buffer has been found yet, it holds what [`VnetHeader::coalesced`] tells.
    pub num_buffers: U16,
}

impl VnetHeader {
    /// Bytes of the header with `num_buffers`.
    pub const LEN: usize = 12;
    /// Bytes of the header with `num_buffers` and the hash (`VIRTIO_NET_F_HASH_REPORT`).
    pub const HASH_LEN: usize = 20;
    /// Bytes of the legacy header without `num_buffers`.
    pub const LEGACY_LEN: usize = 10;
    /// `VIRTIO_NET_HDR_GSO_ECN`: the train carries ECN echo or congestion flags.
    const GSO_ECN: u8 = 0x80;

    /// Returns the header as modern devices and TAP with a header size of 12 have it.
    #[inline]
    pub const fn decode(bytes: [u8; Self::LEN]) -> VnetHeader {
        transmute!(bytes)
    }

    /// Returns the bytes that [`VnetHeader::decode`] reads.
    #[inline]
    pub const fn encode(self) -> [u8; Self::LEN] {
        transmute!(self)
    }

    /// Returns the header as two little-endian words of eight and of four bytes. The number of
    /// buffers is in the upper half of the second.
    #[inline(always)]
    pub fn words(self) -> (u64, u32) {
        let [first, second, third]: [U32; 3] = transmute!(self);
        (u64::from(first.get()) | u64::from(second.get()) << 32, third.get())
    }

    /// Flags in the lower byte, `gso_type` in the upper.
    #[inline]
    pub fn claims(&self) -> u16 {
        u16::from_le_bytes([self.flags, self.gso_type])
    }

    /// Returns the number of segments of a train with this much payload; 1 without a segment size.
    pub fn segments_of(&self, payload: u32) -> u64 {
        match u32::from(self.gso_size.get()) {
            0 => 1,
            size => u64::from(payload.div_ceil(size).max(1)),
        }
    }

    /// Whether the header has no flag and no train, so the frame is as on a wire. Other fields have
    /// no meaning then.
    #[inline]
    pub fn asks_nothing(&self) -> bool {
        self.flags | self.gso_type == 0
    }

    /// Whether the header has no checksum to finish and no train. It may have a checksum that the
    /// device vouches for (`DATA_VALID`).
    #[inline]
    pub fn names_no_place(&self) -> bool {
        self.flags & Flags::NEEDS_CSUM.bits() | self.gso_type == 0
    }

    /// Segments that the switch has made this train of; 0: it came as it is.
    #[inline]
    pub fn coalesced(&self) -> u16 {
        self.num_buffers.get()
    }

    /// Returns the header of a train of the switch's own making for a driver that reads its segment
    /// count (virtio 1.2, section 5.1.6.4, RSC_EXT). The checksum is vouched for: the fields that
    /// tell where to finish it are taken.
    pub fn with_rsc_info(self) -> VnetHeader {
        let mut header = self;
        header.set_flags(Flags::RSC_INFO | Flags::DATA_VALID);
        header.csum_start.set(self.coalesced());
        // Duplicate acknowledgements are never merged.
        header.csum_offset.set(0);
        header
    }

    /// Returns the flags, unknown bits left out.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_bits_truncate(self.flags)
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: Flags) {
        self.flags = flags.bits();
    }

    /// Returns the kind of train.
    #[inline]
    pub fn gso(&self) -> GsoType {
        match self.gso_type & !Self::GSO_ECN {
            0 => GsoType::None,
            1 => GsoType::Tcp4,
            4 => GsoType::Tcp6,
            5 => GsoType::UdpL4,
            other => GsoType::Unknown(other),
        }
    }

    /// Returns whether the ECN bit is set in the segmentation type.
    pub fn gso_ecn(&self) -> bool {
        self.gso_type & Self::GSO_ECN != 0
    }

    /// Sets the segmentation type; `ecn` for trains with ECE or CWR.
    pub fn set_gso(&mut self, gso: GsoType, ecn: bool) {
        let code = match gso {
            GsoType::None => 0,
            GsoType::Tcp4 => 1,
            GsoType::Tcp6 => 4,
            GsoType::UdpL4 => 5,
            GsoType::Unknown(code) => code,
        };
        self.gso_type = code | if ecn { Self::GSO_ECN } else { 0 };
    }
}

/// The hash of a received frame as its header reports it, behind the first 12 bytes (virtio 1.2,
/// section 5.1.6.4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReportedHash(Option<(u32, HashTypes)>);

impl ReportedHash {
    /// Makes the report of a hash and the one type by which it was made; `None` for a frame without
    /// one.
    pub fn new(hash: Option<(u32, HashTypes)>) -> ReportedHash {
        ReportedHash(hash)
    }

    /// Returns the value, the report of its type (1 for the lowest bit of [`HashTypes`], 0 for none)
    /// and padding.
    #[allow(clippy::cast_possible_truncation, reason = "the number of one of 16 bits")]
    pub fn encode(self) -> [u8; VnetHeader::HASH_LEN - VnetHeader::LEN] {
        let (value, report) = match self.0 {
            Some((hash, kind)) => (hash, kind.bits().trailing_zeros() as u16 + 1),
            None => (0, 0),
        };
        let ([a, b, c, d], [e, f]) = (value.to_le_bytes(), report.to_le_bytes());
        [a, b, c, d, e, f, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_decoding(bytes: [u8; 12]) {
            let header = VnetHeader::decode(bytes);
            prop_assert_eq!(header.encode(), bytes);
            let (first, last) = header.words();
            prop_assert_eq!([&first.to_le_bytes()[..], &last.to_le_bytes()].concat(), bytes);
        }

        #[test]
        fn segmentation_reads_back_as_set(gso_type: u8) {
            let header = VnetHeader { gso_type, ..VnetHeader::default() };
            let mut copy = VnetHeader::default();
            copy.set_gso(header.gso(), header.gso_ecn());
            prop_assert_eq!(copy, header);
        }
    }

    #[test]
    fn reports_of_hashes_have_the_numbers_of_virtio() {
        let report = |hash| ReportedHash::new(hash).encode();
        let one = |kind| Some((0x0403_0201, kind));
        assert_eq!(report(None), [0; 8]);
        assert_eq!(report(one(HashTypes::IPV4)), [1, 2, 3, 4, 1, 0, 0, 0]);
        assert_eq!(report(one(HashTypes::TCPV6)), [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(report(one(HashTypes::UDPV6_EX)), [1, 2, 3, 4, 9, 0, 0, 0]);
    }

    #[test]
    fn fields_stand_where_virtio_says() {
        let header = VnetHeader::decode([1, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0, 3, 0]);
        assert_eq!(header.flags(), Flags::NEEDS_CSUM);
        assert_eq!((header.gso(), header.gso_ecn()), (GsoType::Tcp4, true));
        let fields = [
            header.hdr_len,
            header.gso_size,
            header.csum_start,
            header.csum_offset,
            header.num_buffers,
        ];
        assert_eq!(fields.map(U16::get), [66, 1448, 34, 16, 3]);
        assert_eq!(VnetHeader { gso_type: 3, ..header }.gso(), GsoType::Unknown(3));
        assert_eq!(VnetHeader { flags: 0xff, ..header }.flags(), Flags::all());
    }
}
