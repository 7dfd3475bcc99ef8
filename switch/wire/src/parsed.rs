//! The result of [`parse`](crate::parse): all that the rest of the switch reads about a frame's
//! headers.

use bitflags::bitflags;

bitflags! {
    /// What a frame is, beside its [`Kind`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Traits: u8 {
        /// An 802.1Q or 802.1ad tag stands after the addresses; `vlan_tci` holds the outer one.
        const VLAN = 1 << 0;
        /// A second tag stands behind the first.
        const QINQ = 1 << 1;
        /// The EtherType says IPv4.
        const IPV4 = 1 << 2;
        /// The EtherType says IPv6.
        const IPV6 = 1 << 3;
        /// IPv4 options or any IPv6 extension header.
        const IP_OPTIONS = 1 << 4;
        /// The IP packet is longer than its UDP datagram (RFC 9868 options live there): neither
        /// merged nor segmented.
        const SURPLUS = 1 << 5;
        /// The outer tag is one of 802.1ad.
        const SERVICE = 1 << 6;
        /// Behind the addresses and these tags stands one of [`ethertype::OLD_TAGS`], which is not
        /// read: a receiver may take what follows for a VLAN.
        ///
        /// [`ethertype::OLD_TAGS`]: crate::ethernet::ethertype::OLD_TAGS
        const OLD_TAG = 1 << 7;
    }
}

/// What the switch can do with a frame above Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4 or IPv6, header complete.
    Tcp,
    /// UDP over IPv4 or IPv6, header complete.
    Udp,
    /// IP with another transport, or none.
    OtherIp,
    /// A fragment of an IP packet (also the first).
    Fragment,
    /// Neither IPv4 nor IPv6 (ARP, LLDP, …).
    NotIp,
    /// Says it is IP and is not well formed: switched by its addresses, never touched otherwise.
    Malformed(Malformed),
}

impl Kind {
    /// Whether the header has ports, as those of TCP and UDP. Excluding the other kinds takes one
    /// comparison instead of three.
    #[inline]
    pub const fn has_ports(self) -> bool {
        use Kind::{Fragment, Malformed, NotIp, OtherIp};
        !matches!(self, OtherIp | Fragment | NotIp | Malformed(_))
    }
}

/// Why a frame that says it is IP is not taken for IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The frame ends inside a VLAN tag or the IP header.
    Truncated,
    /// The version nibble does not match the EtherType.
    IpVersion,
    /// IHL below 5.
    IpHeaderLength,
    /// The IP length is shorter than the IP headers (IPv6 extensions too), or longer than the
    /// frame.
    IpLength,
    /// More IPv6 extension headers than a switch will walk (8).
    TooManyExtensions,
    /// TCP data offset below 5 or beyond the packet.
    TcpHeaderLength,
    /// The UDP length is shorter than its header or longer than the IP payload. 0 is no exception:
    /// only jumbograms may say so (RFC 2675), and no port carries those; a train's UDP length
    /// covers all of it.
    UdpLength,
    /// The headers go on beyond the bytes handed over, though the frame does not end there:
    /// hand over more (up to 256 bytes) and parse again.
    BeyondHeaders,
}

impl Malformed {
    /// Returns this error unless `holds`.
    pub(crate) fn unless(self, holds: bool) -> Result<(), Malformed> {
        if holds { Ok(()) } else { Err(self) }
    }
}

/// Which options a TCP header carries, as coalescing asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOptions {
    /// None, or padding only.
    None,
    /// Exactly one timestamp option, with padding in any place; the value is its offset in the
    /// frame (of the kind byte).
    Timestamp(u16),
    /// Anything else, malformed options too.
    Other,
}

/// The result of [`parse`](crate::parse): offsets are from the first byte of the frame, lengths in
/// bytes. In this order the fields that the fast path sets stand together and are written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Parsed {
    /// What the frame is.
    pub kind: Kind,
    /// Facts beside the kind.
    pub traits: Traits,
    /// EtherType behind the VLAN tags, host order.
    pub ethertype: u16,
    /// TCI of the outer VLAN tag (priority, DEI, id), host order; 0 without one,
    /// [`Parsed::CUT_TAG`] where the frame ends inside a tag.
    pub vlan_tci: u16,
    /// Where the network header starts: 14, 18 or 22.
    pub l3: u16,
    /// Where the transport header starts (behind IPv6 extensions); 0 where there is none, and in
    /// fragments.
    pub l4: u16,
    /// Where the payload starts: the first byte that is no header. For other kinds than TCP and UDP
    /// this is the end of the deepest header that was understood.
    pub payload: u16,
    /// The TCP options, [`TcpOptions::None`] unless TCP.
    pub tcp_options: TcpOptions,
    /// One past the last byte of the IP packet; without IP the frame's length. `end - payload` is
    /// the payload's length without Ethernet padding.
    pub end: u32,
    /// IP protocol number of the transport (59 where IPv6 has none), 0 without IP.
    pub protocol: u8,
}

impl Parsed {
    /// The reserved VLAN id 4095, of which no port is a member: a frame that ends inside a tag
    /// belongs to no VLAN, since what pads it on its way would complete the tag.
    pub const CUT_TAG: u16 = 0xffff;
    /// The TCI of a frame with [`Traits::OLD_TAG`] alone: id and priority 0, and unlike that of
    /// other frames without a tag, so that [`Parsed::tags`] tells them apart.
    pub const OLD_TAG: u16 = 0x1000;

    /// Returns the number of payload bytes of the transport, without padding.
    pub const fn payload_len(&self) -> u32 {
        self.end.saturating_sub(self.payload as u32)
    }

    /// Returns the outer tag's TCI and how many tags there are, in one word to compare.
    #[inline]
    pub const fn tags(&self) -> u32 {
        (self.l3 as u32) << 16 | self.vlan_tci as u32
    }

    /// Returns the VLAN id of the outer tag, 0 for untagged and priority-tagged frames.
    pub const fn vlan_id(&self) -> u16 {
        self.vlan_tci & 0xfff
    }

    /// Returns source and destination address, one behind the other, in the frame's `headers`;
    /// `None` without an IP header.
    #[inline]
    pub fn addresses<'h>(&self, headers: &'h [u8]) -> Option<&'h [u8]> {
        let (start, len) = match self.traits & (Traits::IPV4 | Traits::IPV6) {
            Traits::IPV4 => (usize::from(self.l3) + 12, 8),
            Traits::IPV6 => (usize::from(self.l3) + 8, 32),
            _ => return None,
        };
        headers.get(start..start + len)
    }
}
