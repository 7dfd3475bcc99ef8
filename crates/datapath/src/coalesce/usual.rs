//! The short cut of coalescing for what most segments are: the next bytes of the train that grew last, in IPv4 without
//! tag or IP options, with headers as before and a checksum that somebody vouches for, under the rules of NDIS.
//!
//! It reads the fixed headers through one struct and says of no segment why it does not fit: that one goes the long way
//! of [`classify`](super::candidate::classify) and [`rules`](super::rules), which would let in every segment taken here.

use super::candidate::timestamps;
use super::likeness::Likeness;
use super::train::Train;
use crate::frame::Frame;
use wire::ethernet::EthernetHeader;
use wire::ipv4::Ipv4Header;
use wire::tcp::{TcpFlags, TcpHeader};
use wire::vnet::Flags;
use wire::{Header, Kind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref};

/// The headers of a segment, options apart.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Segment {
    ethernet: EthernetHeader,
    ip: Ipv4Header,
    tcp: TcpHeader,
}

impl Header for Segment {}

/// Takes the frame at `place` into the train if it is as usual. `limit`: most payload bytes of the train.
#[inline]
pub(super) fn append(
    train: &mut Train,
    place: u16,
    frame: &Frame,
    header: &[u8],
    limit: u32,
) -> bool {
    let Some(segment) = Segment::at(header, 0) else { return false };
    let (ip, tcp, payload) = (&segment.ip, &segment.tcp, frame.parsed.payload_len());
    let stamps = timestamps(frame, header);
    let usual = is_vouched_for(frame)
        && header.len() >= usize::from(train.last.header_len)
        && has_same_headers(train, frame, header, tcp)
        && is_not_earlier(stamps, train.last.timestamps)
        && tcp.sequence.get() == train.next_sequence
        && (payload > 0 && train.payload > 0 && train.payload + payload <= limit)
        && wire::checksum::Sum::of_20(transmute_ref!(ip)).is_valid();
    if usual {
        let last = &mut train.last;
        last.acknowledgement = tcp.acknowledgement.get();
        last.window = tcp.window.get();
        last.identification = ip.identification.get();
        last.timestamps = stamps;
        train.grow(place, payload, tcp.flags(), ip.ttl);
    }
    usual
}

/// A TCP segment whose checksum the guest has not finished yet or the device has checked.
#[inline]
fn is_vouched_for(frame: &Frame) -> bool {
    frame.parsed.kind == Kind::Tcp
        && !frame.is_train()
        && frame.vnet.flags().intersects(Flags::NEEDS_CSUM | Flags::DATA_VALID)
}

/// Untagged IPv4 without options, of the same flow, with everything alike that no train may mix, and no flag but ACK and PSH.
#[inline]
fn has_same_headers(train: &Train, frame: &Frame, header: &[u8], tcp: &TcpHeader) -> bool {
    let (parsed, last) = (&frame.parsed, &train.last);
    let congestion = TcpFlags::ECE | TcpFlags::CWR;
    parsed.l4 == EthernetHeader::LEN + Ipv4Header::LEN
        && parsed.payload == last.header_len
        && parsed.tcp_options != wire::TcpOptions::Other
        && tcp.flags().difference(TcpFlags::PSH) == TcpFlags::ACK
        && !last.flags.intersects(congestion)
        && train.likeness == Likeness::of(header)
}

/// Both with timestamps, the first not earlier than the second, or both without.
#[inline]
fn is_not_earlier(next: Option<(u32, u32)>, last: Option<(u32, u32)>) -> bool {
    match (next, last) {
        (Some((next, _)), Some((last, _))) => next.wrapping_sub(last) <= u32::MAX / 2,
        (next, last) => next.is_none() && last.is_none(),
    }
}
