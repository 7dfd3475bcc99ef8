//! The fast path of [`parse`](super::parse): untagged TCP or UDP over IPv4 or IPv6 without IP
//! options, where TCP's options are none or padded timestamps.
//!
//! All headers are read through one struct, so there is one bounds check, and most fields of the
//! result are constant. Every other frame is left to the walk, which alone decides what is
//! malformed.

use crate::ethernet::{EthernetHeader, ethertype};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::tcp::{self, TcpHeader, TimestampOption};
use crate::udp::{self, UdpHeader};
use crate::{Header, Kind, Parsed, TcpOptions, Traits};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// Two bytes of padding and a timestamp, as every stack sends it (RFC 7323, appendix A).
const TIMESTAMP: [u8; 4] = [1, 1, TimestampOption::KIND, TimestampOption::LENGTH];

/// A frame with its transport right after an IP header of fixed size. For UDP, `tcp` is header and
/// payload; the smallest Ethernet frame has as much.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Packet<Ip> {
    /// Without a tag.
    pub ethernet: EthernetHeader,
    /// Without options.
    pub ip: Ip,
    /// Without options; where the packet is not TCP, what follows the IP header.
    pub tcp: TcpHeader,
}

/// Parses a frame of the fast path. After `None` the caller walks the headers.
#[inline(always)]
pub(super) fn read(parsed: &mut Parsed, headers: &[u8], frame_len: usize) -> Option<()> {
    let v4 = Packet::<Ipv4Header>::at(headers, 0)?;
    if v4.ethernet.ethertype == U16::new(ethertype::IPV4) {
        let (ip, network) = (&v4.ip, EthernetHeader::LEN);
        let fits = ip.version_ihl == 0x45 && !ip.is_fragment();
        let end = fits.then_some(u32::from(network) + u32::from(ip.total_length.get()))?;
        return v4.write(parsed, ip.protocol, end, headers, frame_len);
    }
    let v6 = Packet::<Ipv6Header>::at(headers, 0)?;
    let (ip, network) = (&v6.ip, EthernetHeader::LEN + Ipv6Header::LEN);
    let fits = v6.ethernet.ethertype == U16::new(ethertype::IPV6) && ip.version() == 6;
    let end = fits.then_some(u32::from(network) + u32::from(ip.payload_length.get()))?;
    v6.write(parsed, ip.next_header, end, headers, frame_len)
}

/// What [`Parsed`] says of an IP version.
pub trait Version: Header {
    const TRAITS: Traits;
    const ETHERTYPE: u16;
}

impl Version for Ipv4Header {
    const TRAITS: Traits = Traits::IPV4;
    const ETHERTYPE: u16 = ethertype::IPV4;
}

impl Version for Ipv6Header {
    const TRAITS: Traits = Traits::IPV6;
    const ETHERTYPE: u16 = ethertype::IPV6;
}

impl<Ip: Version> Packet<Ip> {
    /// Where the transport header starts.
    const L4: u16 = Self::LEN - TcpHeader::LEN;

    /// `end`: one past the last byte of the IP packet, from the frame's first.
    #[inline(always)]
    fn write(
        &self,
        parsed: &mut Parsed,
        protocol: u8,
        end: u32,
        headers: &[u8],
        frame_len: usize,
    ) -> Option<()> {
        if end as usize > frame_len {
            return None;
        }
        // Inlined with the constants of each transport.
        let write = |parsed: &mut Parsed, kind: Kind, header_len: u16, tcp_options: TcpOptions| {
            let payload = Self::L4 + header_len;
            *parsed = Parsed {
                kind,
                traits: Ip::TRAITS,
                ethertype: Ip::ETHERTYPE,
                vlan_tci: 0,
                l3: EthernetHeader::LEN,
                l4: Self::L4,
                payload,
                tcp_options,
                end,
                protocol,
            };
            (end >= u32::from(payload)).then_some(())
        };
        match (protocol, self.tcp.data_offset >> 4) {
            (tcp::PROTOCOL, 5) => write(parsed, Kind::Tcp, TcpHeader::LEN, TcpOptions::None),
            (tcp::PROTOCOL, 8) => {
                let options: &[u8; 12] = headers.get(usize::from(Self::LEN)..)?.first_chunk()?;
                let stamp = TcpOptions::Timestamp(Self::LEN + 2);
                let fits = options.starts_with(&TIMESTAMP);
                fits.then(|| write(parsed, Kind::Tcp, TcpHeader::LEN + 12, stamp))?
            }
            (udp::PROTOCOL, _) => {
                let length = UdpHeader::at(headers, Self::L4)?.length.get();
                let exact = u32::from(Self::L4) + u32::from(length) == end;
                exact.then(|| write(parsed, Kind::Udp, UdpHeader::LEN, TcpOptions::None))?
            }
            _ => None,
        }
    }
}
