//! The fast path of coalescing under the NDIS rules: the next segment of the train that grew last,
//! in IPv4 without tag or IP options, with the same headers and a checksum that the guest or the
//! device vouches for.
//!
//! It reads the fixed headers through one struct. A segment that it refuses takes the slow path,
//! [`classify`](super::candidate::classify) and [`rules`](super::rules), which would take every
//! segment taken here.

use super::candidate::timestamps;
use super::fingerprint::Fingerprint;
use super::train::Train;
use crate::frame::Frame;
use wire::ethernet::EthernetHeader;
use wire::ipv4::Ipv4Header;
use wire::tcp::{TcpFlags, TcpHeader};
use wire::vnet::Flags;
use wire::{Header, Kind, Packet};
use zerocopy::transmute_ref;

/// Appends the frame to the train if the fast path applies, and returns whether it does. `limit` is
/// the most payload bytes of the train.
#[inline]
pub(super) fn append(train: &mut Train, frame: &Frame, header: &[u8], limit: u32) -> bool {
    let Some(segment) = Packet::<Ipv4Header>::at(header, 0) else { return false };
    let (ip, tcp, payload) = (&segment.ip, &segment.tcp, frame.parsed.payload_len());
    let stamps = timestamps(frame, header);
    let applies = is_vouched_for(frame)
        && header.len() >= usize::from(train.last.header_len)
        && has_same_headers(train, frame, header, tcp)
        && is_not_earlier(stamps, train.last.timestamps)
        && tcp.sequence.get() == train.next_sequence
        && (payload > 0 && train.payload > 0 && train.payload + payload <= limit)
        && wire::checksum::Sum::of_20(transmute_ref!(ip)).is_valid();
    if applies {
        let last = &mut train.last;
        last.acknowledgement = tcp.acknowledgement.get();
        last.window = tcp.window.get();
        last.identification = ip.identification.get();
        last.timestamps = stamps;
        train.grow(frame.place, payload, tcp.flags(), ip.ttl);
    }
    applies
}

/// Returns whether this is a TCP segment with a checksum that the guest has not finished yet, or
/// that the device has checked.
#[inline]
fn is_vouched_for(frame: &Frame) -> bool {
    frame.parsed.kind == Kind::Tcp
        && !frame.is_train()
        && frame.vnet.flags().intersects(Flags::NEEDS_CSUM | Flags::DATA_VALID)
}

/// Returns whether the segment is untagged IPv4 without options, of the train's flow, equal in all
/// fields that no train may mix, and without flags but ACK and PSH.
#[inline]
fn has_same_headers(train: &Train, frame: &Frame, header: &[u8], tcp: &TcpHeader) -> bool {
    let (parsed, last) = (&frame.parsed, &train.last);
    let congestion = TcpFlags::ECE | TcpFlags::CWR;
    parsed.l4 == EthernetHeader::LEN + Ipv4Header::LEN
        && parsed.payload == last.header_len
        && parsed.tcp_options != wire::TcpOptions::Other
        && tcp.flags().difference(TcpFlags::PSH) == TcpFlags::ACK
        && !last.flags.intersects(congestion)
        && tcp.data_offset & 0xf == last.reserved
        && train.fingerprint == Fingerprint::of(header)
}

/// Returns whether both have timestamps and the next one's is not earlier, or neither has any.
#[inline]
fn is_not_earlier(next: Option<(u32, u32)>, last: Option<(u32, u32)>) -> bool {
    match (next, last) {
        (Some((next, _)), Some((last, _))) => next.wrapping_sub(last) <= u32::MAX / 2,
        (next, last) => next.is_none() && last.is_none(),
    }
}
