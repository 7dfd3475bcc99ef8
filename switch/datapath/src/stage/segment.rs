//! Segmentation: splits a train into frames of its segment size, or into shorter trains, for an
//! egress side that cannot take it whole.
//!
//! Follows "Offloading the Segmentation of Large TCP Packets" (MicrosoftDocs): all segments but the
//! last are full; FIN and PSH are only on the last, CWR only on the first; options are copied; the
//! IPv4 identification increments. Around a train in a tunnel, each header that depends on what it
//! carries is written anew as well ([`wire::tunnel`]).

use crate::frame::Frame;
use crate::frame::headers::{Headers, Span};
use ports::Slice;
use wire::checksum::Sum;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::tcp::{TcpFlags, TcpHeader};
use wire::tunnel::{Layer, Layers};
use wire::udp::UdpHeader;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Header, Parsed, Traits};
use zerocopy::big_endian::{U16, U32};

/// The last segment of a train that a turn finishes once it has begun: that of the longest train
/// that a guest may send, 64 KiB in segments of 48 bytes.
pub(crate) const FINISHED: u16 = 1365;

/// Returns the identification `steps` segments later: the low 15 bits count (LSO version 2), the
/// top bit stays.
pub(crate) const fn next_identification(first: u16, steps: u16) -> u16 {
    first & 0x8000 | first.wrapping_add(steps) & 0x7fff
}

/// Where the headers are in a template that may have gained or lost a tag.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) l3: u16,
    pub(crate) l4: u16,
    pub(crate) payload: u16,
}

impl Layout {
    /// Returns the parsed layout, moved back by `grown` bytes.
    pub(crate) fn of(parsed: &Parsed, grown: i16) -> Layout {
        let moved = |offset: u16| offset.saturating_add_signed(grown);
        Layout { l3: moved(parsed.l3), l4: moved(parsed.l4), payload: moved(parsed.payload) }
    }
}

/// A segment of a train.
pub(crate) struct Segment<'t> {
    /// The train.
    pub(crate) train: &'t Frame,
    /// Where its headers are in the template.
    pub(crate) layout: Layout,
    /// The headers around its transport, if it is in a tunnel.
    pub(crate) tunnel: Option<&'t Layers>,
    /// The number of the segment, from 0; of a shorter train, that of its first segment.
    pub(crate) number: u16,
    /// Whether it is the last.
    pub(crate) last: bool,
    /// Its payload bytes.
    pub(crate) len: u16,
}

impl Segment<'_> {
    /// Writes the segment's header: a copy of the template with everything that differs. The
    /// transport checksum is left unfinished.
    pub(crate) fn header(&self, headers: &mut Headers, template: Span) -> (Span, VnetHeader) {
        let Layout { l3, l4, payload } = self.layout;
        let span = headers.copy(template, payload);
        let bytes = headers.get_mut(span);
        let transport_len = payload - l4 + self.len;
        let checksum_at = if let Some(tunnel) = self.tunnel {
            let checksum_at = self.transport(bytes, transport_len);
            self.around(bytes, tunnel, checksum_at);
            checksum_at
        } else {
            let is_v4 = self.train.parsed.traits.contains(Traits::IPV4);
            if is_v4 {
                self.identify(bytes, l3);
            }
            set_ip_length(bytes, is_v4, self.layout, transport_len);
            self.transport(bytes, transport_len)
        };
        let mut vnet = VnetHeader::default();
        vnet.set_flags(Flags::NEEDS_CSUM);
        vnet.csum_start.set(l4);
        vnet.csum_offset.set(checksum_at);
        if self.len > self.train.vnet.gso_size.get() {
            let flags = TcpHeader::at(bytes, l4).map_or(TcpFlags::empty(), TcpHeader::flags);
            let congestion = flags.intersects(TcpFlags::ECE | TcpFlags::CWR);
            let gso = self.train.vnet.gso();
            vnet.set_gso(gso, gso != GsoType::UdpL4 && congestion);
            vnet.gso_size = self.train.vnet.gso_size;
            vnet.hdr_len.set(payload);
        }
        (span, vnet)
    }

    /// Counts the identification of the IPv4 header at `l3`.
    fn identify(&self, bytes: &mut [u8], l3: u16) {
        if let Some(ip) = Ipv4Header::at_mut(bytes, l3) {
            let first = ip.identification.get();
            ip.identification = U16::new(next_identification(first, self.number));
        }
    }

    /// Writes the headers around the transport of a tunnel, from the inside out, since checksums
    /// cover what is inside.
    ///
    /// The sum of an unfinished transport is known without its payload: once finished, it is the
    /// complement of the pseudo-header's, which stands in the checksum's place.
    fn around(&self, bytes: &mut [u8], tunnel: &Layers, checksum_at: u16) {
        let Layout { l4, payload, .. } = self.layout;
        let end = u32::from(payload) + u32::from(self.len);
        #[allow(clippy::cast_possible_truncation, reason = "no packet exceeds the port's MTU")]
        let behind = |at: u16| (end - u32::from(at)) as u16;
        let at = usize::from(l4 + checksum_at);
        let begun = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let inside = Sum(!u16::from_be_bytes(begun));
        let sum_from = |bytes: &[u8], at: u16| {
            let headers = bytes.get(at.into()..l4.into()).unwrap_or_default();
            Sum::of(headers).add_at(headers.len(), inside)
        };
        let layers = tunnel.all();
        for (place, layer) in layers.iter().enumerate().rev() {
            match *layer {
                Layer::Ipv4(at) => {
                    self.identify(bytes, at);
                    let length = behind(at);
                    if let Some(ip) = Ipv4Header::at_mut(bytes, at) {
                        ip.total_length = U16::new(length);
                        let header = usize::from(at)..usize::from(at + ip.header_len());
                        wire::ipv4::fill_checksum(bytes.get_mut(header).unwrap_or_default());
                    }
                }
                Layer::Ipv6(at) => {
                    if let Some(ip) = Ipv6Header::at_mut(bytes, at) {
                        ip.payload_length = U16::new(behind(at + Ipv6Header::LEN));
                    }
                }
                // The transport itself, which is written.
                Layer::Udp(at) if at == l4 => {}
                Layer::Udp(at) => {
                    let ip = layers.iter().take(place).rev().find(|layer| layer.is_ip());
                    let addresses = ip.and_then(|ip| ip.addresses(bytes)).map(Sum::of);
                    let pseudo = addresses.unwrap_or_default().add_u16(wire::udp::PROTOCOL.into());
                    write_outer_udp(bytes, at, behind(at), |bytes| pseudo + sum_from(bytes, at));
                }
                Layer::Gre(at) => {
                    let field = usize::from(at) + 4;
                    if let Some(place) = bytes.get_mut(field..field + 2) {
                        place.fill(0);
                    }
                    let checksum = sum_from(bytes, at).finish().to_be_bytes();
                    if let Some(place) = bytes.get_mut(field..field + 2) {
                        place.copy_from_slice(&checksum);
                    }
                }
                Layer::Pppoe(at) => {
                    if let Some(place) = bytes.get_mut(usize::from(at) + 4..usize::from(at) + 6) {
                        place.copy_from_slice(&behind(at + 6).to_be_bytes());
                    }
                }
            }
        }
    }

    /// Writes the transport header, and returns where the checksum is in it.
    ///
    /// The unfinished checksum is that of the train's pseudo-header with another length (RFC 1624):
    /// only the sender knows the final destination of a source route, which is part of it.
    #[allow(clippy::cast_possible_truncation, reason = "both halves of a length are added")]
    fn transport(&self, bytes: &mut [u8], transport_len: u16) -> u16 {
        // The difference is subtracted by adding its complement: one more word, whatever the carry.
        // A train beyond 64 KiB has a length of two words.
        let shorter = self.train.train_payload() - u32::from(self.len);
        let shorter = Sum(shorter as u16).add_u16((shorter >> 16) as u16);
        let pseudo = |sum: U16| U16::new(Sum(sum.get()).add_u16(!shorter.0).0);
        if self.train.vnet.gso() == GsoType::UdpL4 {
            if let Some(udp) = UdpHeader::at_mut(bytes, self.layout.l4) {
                udp.length = U16::new(transport_len);
                udp.checksum = pseudo(udp.checksum);
            }
            return 6;
        }
        if let Some(tcp) = TcpHeader::at_mut(bytes, self.layout.l4) {
            let before = u32::from(self.number) * u32::from(self.train.vnet.gso_size.get());
            let mut flags = tcp.flags();
            flags.set(TcpFlags::CWR, flags.contains(TcpFlags::CWR) && self.number == 0);
            flags.set(TcpFlags::FIN, flags.contains(TcpFlags::FIN) && self.last);
            flags.set(TcpFlags::PSH, flags.contains(TcpFlags::PSH) && self.last);
            tcp.flags = flags.bits();
            tcp.sequence = U32::new(tcp.sequence.get().wrapping_add(before));
            tcp.checksum = pseudo(tcp.checksum);
        }
        16
    }
}

/// Writes the length of an IP packet with so many bytes behind its headers, and last the checksum
/// of an IPv4 header.
pub(crate) fn set_ip_length(bytes: &mut [u8], is_v4: bool, layout: Layout, transport_len: u16) {
    let Layout { l3, l4, .. } = layout;
    if !is_v4 {
        if let Some(ip) = Ipv6Header::at_mut(bytes, l3) {
            // Extension headers count as payload.
            ip.payload_length = U16::new(l4 - l3 - Ipv6Header::LEN + transport_len);
        }
        return;
    }
    if let Some(ip) = Ipv4Header::at_mut(bytes, l3) {
        ip.total_length = U16::new(l4 - l3 + transport_len);
    }
    if let Some(ip) = bytes.get_mut(l3.into()..l4.into()) {
        wire::ipv4::fill_checksum(ip);
    }
}

/// Writes the length of a UDP header, and its checksum if it has one. `sum` returns the sum of the
/// pseudo-header without its length, and of all that the checksum covers.
fn write_outer_udp(bytes: &mut [u8], at: u16, length: u16, sum: impl Fn(&[u8]) -> Sum) {
    let Some(udp) = UdpHeader::at_mut(bytes, at) else { return };
    udp.length = U16::new(length);
    if udp.checksum.get() == 0 {
        return;
    }
    udp.checksum = U16::ZERO;
    let checksum = sum(bytes).add_u16(length).finish_udp();
    if let Some(udp) = UdpHeader::at_mut(bytes, at) {
        udp.checksum = U16::new(checksum);
    }
}

/// Returns the segments of a train, or shorter trains of `each` of its segments.
#[allow(clippy::cast_possible_truncation, reason = "65,535 segments at most, see offload.rs")]
pub(crate) fn segments<'t>(
    train: &'t Frame,
    layout: Layout,
    tunnel: Option<&'t Layers>,
    each: u16,
) -> impl Iterator<Item = Segment<'t>> {
    let (each, total) = (u32::from(each), train.train_payload());
    let size = u32::from(train.vnet.gso_size.get().max(1)) * each;
    let count = total.div_ceil(size);
    (0..count).map(move |number| {
        let len = size.min(total - number * size) as u16;
        let last = number + 1 == count;
        Segment { train, layout, tunnel, number: (number * each) as u16, last, len }
    })
}

/// Cuts the payload of a train from its start on. Each slice is visited once, not once for each
/// segment, since a guest chooses how many there are of both.
pub(crate) struct Cutter<'q, S> {
    slices: S,
    /// What is left of the last slice.
    left: Slice<'q>,
}

impl<'q, S: Iterator<Item = Slice<'q>>> Cutter<'q, S> {
    pub(crate) fn new(slices: S) -> Cutter<'q, S> {
        Cutter { slices, left: Slice::from(&[][..]) }
    }

    /// Adds the next `len` bytes to `pieces`.
    pub(crate) fn cut(&mut self, mut len: usize, pieces: &mut Vec<Slice<'q>>) {
        while len > 0 {
            if self.left.is_empty() {
                let Some(next) = self.slices.next() else { return };
                self.left = next;
            }
            let piece = self.left.take(len);
            self.left = self.left.skip(piece.len());
            len -= piece.len();
            pieces.push(piece);
        }
    }
}

/// Sums bytes where they are.
pub(crate) fn sum_of<'q>(pieces: impl Iterator<Item = Slice<'q>>) -> Sum {
    let add =
        |(at, sum): (usize, Sum), piece: Slice<'q>| (at + piece.len(), sum.add_at(at, piece.sum()));
    pieces.fold((0, Sum::default()), add).1
}

/// Finishes a checksum that is only the pseudo-header's: sums from `csum_start` to the end of the
/// frame and writes the result to its place (virtio 1.2, 5.1.6.2.1). Then clears the virtio header.
pub(crate) fn finish_checksum(header: &mut [u8], vnet: &mut VnetHeader, rest: &[Slice<'_>]) {
    let (start, offset) = (usize::from(vnet.csum_start.get()), usize::from(vnet.csum_offset.get()));
    let Some(covered) = header.get_mut(start..) else { return };
    let sum = Sum::of(covered).add_at(covered.len(), sum_of(rest.iter().copied()));
    if let Some(place) = covered.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
        // UDP has its checksum at 6, and writes 0xffff for 0.
        *place = if offset == 6 { sum.finish_udp() } else { sum.finish() }.to_be_bytes();
    }
    *vnet = VnetHeader::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_train_is_cut_in_order_and_each_slice_is_visited_once(
            slices in vec(vec(any::<u8>(), 1..40), 0..60),
            size in 1..100usize,
        ) {
            let whole = slices.concat();
            let mut visited = 0;
            let lent = slices.iter().map(|slice| Slice::from(&slice[..])).inspect(|_| visited += 1);
            let (mut cutter, mut pieces) = (Cutter::new(lent), Vec::new());
            for segment in whole.chunks(size) {
                pieces.clear();
                cutter.cut(segment.len(), &mut pieces);
                let mut bytes = Vec::new();
                pieces.iter().for_each(|piece| piece.append_to(&mut bytes));
                prop_assert_eq!(&bytes, segment);
                prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            }
            prop_assert_eq!(visited, slices.len());
        }
    }
}
