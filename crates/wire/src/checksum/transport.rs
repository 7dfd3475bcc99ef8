//! The checksum of TCP and UDP: pseudo-header, headers and payload together.
//!
//! The payload comes as pieces, because it still lies in the source's buffers. What has a routing header is checked
//! against the destination of its IP header, which for a packet under way is not the one the sender summed.

use super::Sum;
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::udp::UdpHeader;
use crate::{Header, Kind, Parsed, Traits};

/// The pseudo-header of IPv4: `len` is the transport's header and payload in bytes.
#[inline]
pub fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u32) -> Sum {
    Sum::of_scalar(&source) + Sum::of_scalar(&destination) + protocol_and_len(protocol, len)
}

/// The pseudo-header of IPv6: `len` is the transport's header and payload in bytes.
#[inline]
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, len: u32) -> Sum {
    Sum::of_scalar(&source) + Sum::of_scalar(&destination) + protocol_and_len(protocol, len)
}

fn protocol_and_len(protocol: u8, len: u32) -> Sum {
    Sum::of_scalar(&len.to_be_bytes()).add_u16(u16::from(protocol))
}

/// The pseudo-header of a parsed frame for `len` bytes of transport; `None` where it has no IP header.
#[inline]
pub fn pseudo(headers: &[u8], parsed: &Parsed, len: u32) -> Option<Sum> {
    if parsed.traits.contains(Traits::IPV4) {
        let ip = Ipv4Header::at(headers, parsed.l3)?;
        Some(pseudo_v4(ip.source, ip.destination, parsed.protocol, len))
    } else if parsed.traits.contains(Traits::IPV6) {
        let ip = Ipv6Header::at(headers, parsed.l3)?;
        Some(pseudo_v6(ip.source, ip.destination, parsed.protocol, len))
    } else {
        None
    }
}

/// The sum of pseudo-header, transport header and payload of a TCP or UDP frame, the checksum field included as it
/// stands. The pieces start at `parsed.payload`; what they hold behind the payload (padding) is left out.
/// `None`: neither TCP nor UDP, or less payload than the frame says.
pub fn transport_sum<'p>(
    headers: &[u8],
    parsed: &Parsed,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Option<Sum> {
    let transport_len = transport_len(headers, parsed)?;
    let header = headers.get(usize::from(parsed.l4)..usize::from(parsed.payload))?;
    let mut sum = pseudo(headers, parsed, transport_len)? + Sum::of(header);
    let mut missing = (transport_len as usize).checked_sub(header.len())?;
    let mut offset = 0;
    for piece in pieces {
        let piece = piece.get(..missing).unwrap_or(piece);
        sum = sum.add_at(offset, Sum::of(piece));
        offset += piece.len();
        missing -= piece.len();
    }
    (missing == 0).then_some(sum)
}

/// Bytes that the checksum covers: the whole rest of the IP packet for TCP, what its header says for UDP.
fn transport_len(headers: &[u8], parsed: &Parsed) -> Option<u32> {
    match parsed.kind {
        Kind::Tcp => Some(parsed.end.saturating_sub(u32::from(parsed.l4))),
        Kind::Udp => Some(UdpHeader::at(headers, parsed.l4)?.length.get().into()),
        _ => None,
    }
}
