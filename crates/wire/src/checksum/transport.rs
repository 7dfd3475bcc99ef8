//! The checksum of TCP and UDP: pseudo-header, headers and payload together.
//!
//! The payload comes as pieces, because it still lies in the source's buffers. What has a routing header is checked
//! against the destination of its IP header, which for a packet under way is not the one the sender summed.

use super::Sum;
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::udp::UdpHeader;
use crate::{Header, Kind, Parsed, Traits};

/// What came of checking a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Good,
    /// It does not fit, or payload is missing.
    Bad,
    /// There is none: UDP over IPv4 that was sent without, or neither TCP nor UDP.
    Absent,
}

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

/// Checks the transport checksum of a frame whose payload is `pieces`, as for [`transport_sum`].
pub fn verify<'p>(
    headers: &[u8],
    parsed: &Parsed,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Verdict {
    match parsed.kind {
        Kind::Tcp => {}
        Kind::Udp => {
            let unsummed = UdpHeader::at(headers, parsed.l4).is_some_and(|udp| udp.checksum == 0);
            if unsummed {
                // RFC 8200, section 8.1: IPv6 has no UDP without a checksum.
                let v4 = parsed.traits.contains(Traits::IPV4);
                return if v4 { Verdict::Absent } else { Verdict::Bad };
            }
        }
        _ => return Verdict::Absent,
    }
    match transport_sum(headers, parsed, pieces) {
        Some(sum) if sum.is_valid() => Verdict::Good,
        _ => Verdict::Bad,
    }
}

/// Bytes that the checksum covers: the whole rest of the IP packet for TCP, what its header says for UDP.
fn transport_len(headers: &[u8], parsed: &Parsed) -> Option<u32> {
    match parsed.kind {
        Kind::Tcp => Some(parsed.end.saturating_sub(u32::from(parsed.l4))),
        Kind::Udp => Some(UdpHeader::at(headers, parsed.l4)?.length.get().into()),
        _ => None,
    }
}
