//! A train: in-order segments of one flow that leave as one frame.

use super::candidate::Candidate;
use super::fingerprint::Fingerprint;
use crate::frame::Frame;
use crate::frame::headers::{Headers, Span};
use crate::stage::segment::{Layout, set_ip_length};
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::tcp::{TcpFlags, TcpHeader, TimestampOption};
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Header, TcpOptions, Traits};
use zerocopy::big_endian::{U16, U32};

/// A train under construction.
#[derive(Clone, Copy)]
pub(crate) struct Train {
    /// Place of the first and the last segment among the turn's frames.
    pub(crate) head: u16,
    pub(crate) tail: u16,
    /// The number of segments.
    pub(crate) segments: u16,
    /// Whether no segment may join any more.
    pub(crate) closed: bool,
    /// Payload bytes of all segments, of the first and of the largest.
    pub(crate) payload: u32,
    pub(crate) first_payload: u32,
    pub(crate) largest_payload: u32,
    /// The sequence number that continues it.
    pub(crate) next_sequence: u32,
    /// The header words that the fast path compares.
    pub(super) fingerprint: Fingerprint,
    /// The newest segment. Its flags are those of all segments together, its hops the fewest.
    pub(crate) last: Candidate,
}

impl Train {
    pub(super) fn start(place: u16, segment: Candidate, fingerprint: Fingerprint) -> Train {
        Train {
            fingerprint,
            head: place,
            tail: place,
            segments: 1,
            closed: false,
            payload: segment.payload,
            first_payload: segment.payload,
            largest_payload: segment.payload,
            next_sequence: segment.sequence.wrapping_add(segment.payload),
            last: segment,
        }
    }

    /// Adds a segment that the rules let in.
    pub(crate) fn append(&mut self, place: u16, segment: &Candidate) {
        let Candidate { flags, hops, .. } = self.last;
        self.last = Candidate { flags, hops, ..*segment };
        self.grow(place, segment.payload, segment.flags, segment.hops);
    }

    /// Counts a segment with numbers that are in `last` already, and adds its flags and hops to the
    /// train's.
    #[inline(always)]
    pub(crate) fn grow(&mut self, place: u16, payload: u32, flags: TcpFlags, hops: u8) {
        self.tail = place;
        self.segments += 1;
        self.payload += payload;
        self.largest_payload = self.largest_payload.max(payload);
        self.next_sequence = self.next_sequence.wrapping_add(payload);
        self.last.payload = payload;
        self.last.flags |= flags & TcpFlags::PSH;
        self.last.hops = self.last.hops.min(hops);
    }

    /// Writes the header of the whole train into a copy of its first frame's. Returns the copy and
    /// the virtio-net header that goes with it.
    ///
    /// The rules are those of NDIS, "Updating the IP Headers for Coalesced Segments": lengths and
    /// IPv4 checksum are new, the hops are the fewest, and the rest is the first segment's.
    #[allow(clippy::cast_possible_truncation, reason = "a train is one IP packet at most")]
    pub(crate) fn write_header(&self, first: &Frame, headers: &mut Headers) -> (Span, VnetHeader) {
        let parsed = &first.parsed;
        let span = headers.copy(first.header, parsed.payload);
        let bytes = headers.get_mut(span);
        let transport_len = u32::from(parsed.payload - parsed.l4) + self.payload;
        let is_v4 = parsed.traits.contains(Traits::IPV4);
        let hops = match is_v4 {
            true => Ipv4Header::at_mut(bytes, parsed.l3).map(|ip| &mut ip.ttl),
            false => Ipv6Header::at_mut(bytes, parsed.l3).map(|ip| &mut ip.hop_limit),
        };
        hops.into_iter().for_each(|hops| *hops = self.last.hops);
        set_ip_length(bytes, is_v4, Layout::of(parsed, 0), transport_len as u16);
        self.write_tcp_header(first, bytes, transport_len);
        (span, self.vnet(first))
    }

    /// Writes the last segment's acknowledgement, window and timestamps. The checksum is left to
    /// the receiver, as for a frame that was never on a wire.
    fn write_tcp_header(&self, first: &Frame, bytes: &mut [u8], transport_len: u32) {
        let parsed = &first.parsed;
        let pseudo = wire::checksum::pseudo(bytes, parsed, transport_len).unwrap_or_default();
        if let Some(tcp) = TcpHeader::at_mut(bytes, parsed.l4) {
            tcp.acknowledgement = U32::new(self.last.acknowledgement);
            tcp.window = U16::new(self.last.window);
            tcp.flags = self.last.flags.bits();
            tcp.checksum = U16::new(pseudo.0);
        }
        if let (TcpOptions::Timestamp(at), Some((value, echo))) =
            (parsed.tcp_options, self.last.timestamps)
            && let Some(option) = TimestampOption::at_mut(bytes, at)
        {
            option.value = U32::new(value);
            option.echo = U32::new(echo);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than an IP packet")]
    fn vnet(&self, first: &Frame) -> VnetHeader {
        let mut vnet = VnetHeader::default();
        vnet.set_flags(Flags::NEEDS_CSUM);
        vnet.csum_start.set(first.parsed.l4);
        vnet.csum_offset.set(16);
        if self.payload > self.largest_payload {
            let v4 = first.parsed.traits.contains(Traits::IPV4);
            let ecn = self.last.flags.intersects(TcpFlags::ECE | TcpFlags::CWR);
            vnet.set_gso(if v4 { GsoType::Tcp4 } else { GsoType::Tcp6 }, ecn);
            vnet.gso_size.set(self.largest_payload as u16);
            vnet.hdr_len.set(first.parsed.payload);
            vnet.num_buffers.set(self.segments);
        }
        vnet
    }
}
