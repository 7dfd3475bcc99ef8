//! Checks a guest's claims about a frame in the virtio-net header against the frame, and the
//! kernel's about a frame that is no train.
//!
//! [`Frame::read`](crate::frame::Frame::read) calls [`validate_offload`] for each frame with a
//! claim, or its counterpart for the kernel's trains ([merged.rs](super::merged)). No other function
//! reads a claim: later steps use the header made here. `DATA_VALID` alone is not a claim, because
//! it names no place in the frame.
//!
//! **Partial checksum** (`NEEDS_CSUM`). In TCP and UDP it starts at the transport header and is
//! stored in the protocol's own field. Linux also leaves the inner checksum of a tunnel unfinished
//! (VXLAN, GRE, IP in IP) and that of packets behind headers the switch does not know. Such a
//! checksum lies wholly behind the last header that [`wire::parse`] understood and before the
//! packet's end, in the first [`TUNNEL_HEADERS`] bytes. So finishing one writes either the
//! transport's checksum field or two bytes of payload, never a byte of the Ethernet, VLAN or IP
//! header, and its place stays right when a tag is inserted or stripped. Nor a byte that a guard
//! judges: in ARP, ICMP, DHCP, LLC, a fragment or a malformed packet nothing else is finished.
//!
//! **Train** (a segment size). Type, IP version and protocol agree, the partial checksum is the
//! transport's own, and the frame ends where the IP packet ends: bytes behind it would belong to no
//! segment and to no limit.
//!
//! **Segments of a train.** [`SMALLEST`] payload bytes or more each, or no more than [`FEW`]
//! segments, of UDP [`FEW_UDP`]. Whatever segments the train, this switch or the kernel behind a
//! TAP device, a full burst becomes at most 512 KiB / 48 B = 10,923 segments of TCP and 256 * 128 =
//! 32,768 datagrams; the switch itself stops at the turn's limit of work before that.
//!
//! **Congestion flags.** A train with ECE or CWR is one "with the Explicit Congestion Notification
//! bit set", whether its driver said so (`VIRTIO_NET_HDR_GSO_ECN`) or not: a device sends such
//! trains only to drivers that took `GUEST_ECN`, and then MUST set the bit (virtio 1.2, 5.1.6.4.1).
//! To others the train goes in segments, as the header asks: CWR in the first only.

use crate::counters::DropReason;
use crate::frame::headers::TUNNEL_HEADERS;
use ports::Burst;
use wire::ethernet::ethertype;
use wire::tcp::TcpFlags;
use wire::tunnel;
use wire::udp::UdpHeader;
use wire::upper;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Header, Kind, Parsed, Traits};

/// The smallest segment size of trains of any length: the smallest MSS that Linux takes from a peer
/// (`TCP_MIN_SND_MSS`).
pub(crate) const SMALLEST: u16 = 48;

/// Segments that a TCP train of smaller ones may have. A burst full of such trains makes as many
/// segments as a burst full of bytes makes of size [`SMALLEST`].
const FEW: usize = Burst::BYTES / Burst::FRAMES / SMALLEST as usize;

/// Datagrams that Linux sends in one call, however short (`UDP_MAX_SEGMENTS`).
const FEW_UDP: usize = 128;

/// Returns the virtio-net header for use inside the switch. It has only the claims that hold for
/// this frame of `len` bytes, with offsets from the frame's first byte.
///
/// `restored` is the number of bytes that the switch put back and the source did not count.
#[inline]
pub(crate) fn validate_offload(
    said: VnetHeader,
    (headers, parsed): (&[u8], &Parsed),
    len: u32,
    restored: i16,
) -> Result<VnetHeader, DropReason> {
    let mut vnet = VnetHeader::default();
    let flags = said.flags() & (Flags::NEEDS_CSUM | Flags::DATA_VALID);
    vnet.set_flags(flags);
    if flags.contains(Flags::NEEDS_CSUM) {
        let start = said.csum_start.get().checked_add_signed(restored);
        let valid =
            |start: &u16| is_partial_checksum((headers, parsed), (*start, said.csum_offset.get()));
        vnet.csum_start.set(start.filter(valid).ok_or(DropReason::BadOffload)?);
        vnet.csum_offset = said.csum_offset;
    }
    if said.gso() == GsoType::None {
        return Ok(vnet);
    }
    DropReason::BadOffload.when(!is_train(said, &vnet, parsed, len))?;
    if parsed.payload_len() > u32::from(said.gso_size.get()) {
        vnet.set_gso(said.gso(), parsed.kind == Kind::Tcp && congestion(headers, parsed.l4));
        vnet.gso_size = said.gso_size;
        vnet.hdr_len.set(parsed.payload);
    }
    Ok(vnet)
}

/// Whether a TCP header has ECE or CWR.
pub(super) fn congestion(headers: &[u8], l4: u16) -> bool {
    let flags = headers.get(usize::from(l4) + 13).copied().unwrap_or(0);
    TcpFlags::from_bits_retain(flags).intersects(TcpFlags::ECE | TcpFlags::CWR)
}

/// Returns the offset of the checksum in its transport header.
fn checksum_field(kind: Kind) -> Option<u16> {
    match kind {
        Kind::Tcp => Some(16),
        Kind::Udp => Some(6),
        _ => None,
    }
}

#[inline]
fn is_partial_checksum((headers, parsed): (&[u8], &Parsed), (start, offset): (u16, u16)) -> bool {
    if start == parsed.l4 && checksum_field(parsed.kind) == Some(offset) {
        return true;
    }
    let end = usize::from(start) + usize::from(offset) + 2;
    start >= parsed.payload
        && end + 2 <= TUNNEL_HEADERS
        && end <= parsed.end as usize
        && may_carry_transport(headers, parsed)
}

/// Whether another transport may be behind the headers that were parsed: not where rules and guards
/// judge more than those.
pub(super) fn may_carry_transport(headers: &[u8], parsed: &Parsed) -> bool {
    match parsed.kind {
        Kind::Udp => UdpHeader::at(headers, parsed.l4).is_some_and(|udp| !tunnel::is_dhcp(udp)),
        Kind::OtherIp => !matches!(parsed.protocol, upper::ICMP | upper::ICMPV6),
        Kind::NotIp => {
            parsed.ethertype >= ethertype::SMALLEST && parsed.ethertype != ethertype::ARP
        }
        Kind::Tcp | Kind::Fragment | Kind::Malformed(_) => false,
    }
}

/// Whether the claim of a train holds; `vnet` has the checksum's.
#[inline]
fn is_train(said: VnetHeader, vnet: &VnetHeader, parsed: &Parsed, len: u32) -> bool {
    let (kind, family) = match said.gso() {
        GsoType::Tcp4 => (Kind::Tcp, Traits::IPV4),
        GsoType::Tcp6 => (Kind::Tcp, Traits::IPV6),
        GsoType::UdpL4 => (Kind::Udp, parsed.traits & (Traits::IPV4 | Traits::IPV6)),
        GsoType::None | GsoType::Unknown(_) => return false,
    };
    parsed.kind == kind
        && parsed.traits.contains(family)
        && !parsed.traits.contains(Traits::SURPLUS)
        && parsed.end == len
        && vnet.flags().contains(Flags::NEEDS_CSUM)
        && vnet.csum_start.get() == parsed.l4
        && has_sane_segments(kind, parsed.payload_len(), said.gso_size.get())
}

#[inline]
fn has_sane_segments(kind: Kind, payload: u32, size: u16) -> bool {
    let few = if kind == Kind::Udp { FEW_UDP } else { FEW };
    size >= SMALLEST || size > 0 && payload.div_ceil(size.into()) as usize <= few
}
