//! The short cut of [`parse`](super::parse) for what most frames under load are: untagged TCP over IPv4 or IPv6 without IP
//! options, whose own options are none or the usual timestamps.
//!
//! All headers are looked at through one struct, so there is one bounds check, and most of the answer is constant.
//! Whatever is unusual in the least is left to the walk, so nothing here decides what is malformed.

use super::group_trait;
use crate::ethernet::{EthernetHeader, ethertype};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::tcp::{self, TcpHeader, TimestampOption};
use crate::{Header, Kind, Parsed, TcpOptions, Traits};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Two bytes of padding and a timestamp: what every stack sends that uses timestamps at all.
const TIMESTAMP: [u8; 4] = [1, 1, TimestampOption::KIND, TimestampOption::LENGTH];

/// A frame whose TCP header follows an IP header of fixed size. Without options, `options` is payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Segment<Ip> {
    ethernet: EthernetHeader,
    ip: Ip,
    tcp: TcpHeader,
    options: [u8; 4],
    timestamps: [u8; 8],
}

impl Header for Segment<Ipv4Header> {}
impl Header for Segment<Ipv6Header> {}

/// The answer, where the frame is as usual.
#[inline]
pub(super) fn parse(headers: &[u8], frame_len: usize) -> Option<Parsed> {
    let v4 = Segment::<Ipv4Header>::at(headers, 0)?;
    match v4.ethernet.ethertype.get() {
        ethertype::IPV4 => segment_v4(v4, frame_len),
        ethertype::IPV6 => segment_v6(Segment::at(headers, 0)?, frame_len),
        _ => None,
    }
}

#[inline]
fn segment_v4(segment: &Segment<Ipv4Header>, frame_len: usize) -> Option<Parsed> {
    let ip = &segment.ip;
    if ip.version_ihl != 0x45 || ip.protocol != tcp::PROTOCOL || ip.is_fragment() {
        return None;
    }
    let end = u32::from(EthernetHeader::LEN) + u32::from(ip.total_length.get());
    let dont_fragment = if ip.dont_fragment() { Traits::DF } else { Traits::empty() };
    segment.answer(Traits::IPV4 | dont_fragment, end, frame_len)
}

#[inline]
fn segment_v6(segment: &Segment<Ipv6Header>, frame_len: usize) -> Option<Parsed> {
    let ip = &segment.ip;
    if ip.version() != 6 || ip.next_header != tcp::PROTOCOL {
        return None;
    }
    let headers = u32::from(EthernetHeader::LEN + Ipv6Header::LEN);
    segment.answer(Traits::IPV6, headers + u32::from(ip.payload_length.get()), frame_len)
}

impl<Ip> Segment<Ip>
where
    Segment<Ip>: Header,
{
    /// Where the TCP header starts.
    const L4: u16 = Self::LEN - TcpHeader::LEN - 12;

    #[inline]
    fn answer(&self, traits: Traits, end: u32, frame_len: usize) -> Option<Parsed> {
        let (payload, tcp_options) = match self.tcp.data_offset >> 4 {
            5 => (Self::L4 + TcpHeader::LEN, TcpOptions::None),
            8 if self.options == TIMESTAMP => {
                (Self::LEN, TcpOptions::Timestamp(Self::L4 + TcpHeader::LEN + 2))
            }
            _ => return None,
        };
        let padding = frame_len.checked_sub(end as usize)?;
        if end < u32::from(payload) {
            return None;
        }
        let padded = if padding > 0 { Traits::PADDED } else { Traits::empty() };
        Some(Parsed {
            kind: Kind::Tcp,
            traits: traits | group_trait(&self.ethernet) | padded,
            ethertype: self.ethernet.ethertype.get(),
            vlan_tci: 0,
            l3: EthernetHeader::LEN,
            l4: Self::L4,
            payload,
            end,
            protocol: tcp::PROTOCOL,
            tcp_flags: self.tcp.flags,
            tcp_options,
        })
    }
}
