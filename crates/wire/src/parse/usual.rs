//! The short cut of [`parse`](super::parse) for what most frames are: untagged TCP or UDP over IPv4 or IPv6 without IP
//! options, where TCP's own options are none or the usual timestamps.
//!
//! All headers are looked at through one struct, so there is one bounds check, and most of the answer is constant.
//! Whatever is unusual in the least is left to the walk, so nothing here decides what is malformed.

use super::group_trait;
use crate::ethernet::{EthernetHeader, ethertype};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::tcp::{self, TcpHeader, TimestampOption};
use crate::udp::{self, UdpHeader};
use crate::{Header, Kind, Parsed, TcpOptions, Traits};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Two bytes of padding and a timestamp: what every stack sends that uses timestamps at all.
const TIMESTAMP: [u8; 4] = [1, 1, TimestampOption::KIND, TimestampOption::LENGTH];

/// A frame whose transport follows an IP header of fixed size. Of UDP, `tcp` is header and payload; the smallest
/// Ethernet frame has as much.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Packet<Ip> {
    ethernet: EthernetHeader,
    ip: Ip,
    tcp: TcpHeader,
}

impl Header for Packet<Ipv4Header> {}
impl Header for Packet<Ipv6Header> {}

/// What the IP header said.
struct Network {
    traits: Traits,
    protocol: u8,
    /// One past the last byte of the IP packet, from the frame's first.
    end: u32,
}

/// Writes the answer, where the frame is as usual.
#[inline(always)]
pub(super) fn read(parsed: &mut Parsed, headers: &[u8], frame_len: usize) -> Option<()> {
    let v4 = Packet::<Ipv4Header>::at(headers, 0)?;
    match v4.ethernet.ethertype.get() {
        ethertype::IPV4 => v4.answer(parsed, &network_v4(&v4.ip)?, headers, frame_len),
        ethertype::IPV6 => {
            let v6 = Packet::<Ipv6Header>::at(headers, 0)?;
            v6.answer(parsed, &network_v6(&v6.ip)?, headers, frame_len)
        }
        _ => None,
    }
}

#[inline]
fn network_v4(ip: &Ipv4Header) -> Option<Network> {
    if ip.version_ihl != 0x45 || ip.is_fragment() {
        return None;
    }
    let end = u32::from(EthernetHeader::LEN) + u32::from(ip.total_length.get());
    let dont_fragment = if ip.dont_fragment() { Traits::DF } else { Traits::empty() };
    Some(Network { traits: Traits::IPV4 | dont_fragment, protocol: ip.protocol, end })
}

#[inline]
fn network_v6(ip: &Ipv6Header) -> Option<Network> {
    if ip.version() != 6 {
        return None;
    }
    let headers = u32::from(EthernetHeader::LEN + Ipv6Header::LEN);
    let end = headers + u32::from(ip.payload_length.get());
    Some(Network { traits: Traits::IPV6, protocol: ip.next_header, end })
}

impl<Ip> Packet<Ip>
where
    Packet<Ip>: Header,
{
    /// Where the transport header starts.
    const L4: u16 = Self::LEN - TcpHeader::LEN;

    #[inline(always)]
    fn answer(
        &self,
        parsed: &mut Parsed,
        network: &Network,
        headers: &[u8],
        frame_len: usize,
    ) -> Option<()> {
        let (kind, header_len, tcp_flags, tcp_options) = match network.protocol {
            tcp::PROTOCOL => {
                let (header_len, options) = self.tcp_options(headers)?;
                (Kind::Tcp, header_len, self.tcp.flags, options)
            }
            udp::PROTOCOL => {
                let length = UdpHeader::at(headers, Self::L4)?.length.get();
                let exact = u32::from(Self::L4) + u32::from(length) == network.end;
                (Kind::Udp, exact.then_some(UdpHeader::LEN)?, 0, TcpOptions::None)
            }
            _ => return None,
        };
        let padding = frame_len.checked_sub(network.end as usize)?;
        let payload = Self::L4 + header_len;
        if network.end < u32::from(payload) {
            return None;
        }
        let padded = if padding > 0 { Traits::PADDED } else { Traits::empty() };
        *parsed = Parsed {
            kind,
            traits: network.traits | group_trait(&self.ethernet) | padded,
            ethertype: self.ethernet.ethertype.get(),
            vlan_tci: 0,
            l3: EthernetHeader::LEN,
            l4: Self::L4,
            payload,
            end: network.end,
            protocol: network.protocol,
            tcp_flags,
            tcp_options,
        };
        Some(())
    }

    /// Length of the TCP header, and its options if they are none or the usual.
    #[inline]
    fn tcp_options(&self, headers: &[u8]) -> Option<(u16, TcpOptions)> {
        match self.tcp.data_offset >> 4 {
            5 => Some((TcpHeader::LEN, TcpOptions::None)),
            8 => {
                let options: &[u8; 12] = headers.get(usize::from(Self::LEN)..)?.first_chunk()?;
                let usual = options.starts_with(&TIMESTAMP);
                usual.then_some((TcpHeader::LEN + 12, TcpOptions::Timestamp(Self::LEN + 2)))
            }
            _ => None,
        }
    }
}
