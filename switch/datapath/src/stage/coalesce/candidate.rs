//! The facts about one segment that coalescing needs, read once from the private headers.

use crate::counters::RscException;
use crate::frame::Frame;
use crate::frame::addresses::Addresses;
use crate::frame::hash::mix;
use wire::checksum::Sum;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::tcp::{TcpFlags, TcpHeader, TimestampOption};
use wire::vnet::Flags;
use wire::{Header, Kind, TcpOptions, Traits};
use zerocopy::transmute;

/// The header fields that all segments of one connection share, with those of Ethernet.
#[derive(Clone, Copy, Eq, Default)]
pub(crate) struct FlowKey {
    /// Destination and source MAC.
    macs: Addresses,
    /// Source and destination address, as they stand in the header; IPv4 uses only the first word.
    addresses: [u64; 4],
    ports: u32,
    /// Both tags with their TPIDs as they stand behind the addresses; 0 without a tag.
    tags: u64,
    ethertype: u16,
}

/// Word by word: as derived it would be a call of `memcmp` for the arrays.
impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &FlowKey) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.addresses, other.addresses);
        (self.macs, a, b, c, d) == (other.macs, e, f, g, h)
            && (self.ports, self.tags, self.ethertype) == (other.ports, other.tags, other.ethertype)
    }
}

impl FlowKey {
    /// Returns whether the flow is IPv6.
    pub(crate) fn is_v6(&self) -> bool {
        self.ethertype == wire::ethernet::ethertype::IPV6
    }

    /// Hashes the flow under a seed that guests do not know.
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let [a, b, c, d] = self.addresses;
        let mixed = mix(a ^ seed, u64::from(self.ports) ^ seed.rotate_left(32));
        if self.is_v6() { mix(mix(mixed ^ b, c ^ seed) ^ d, seed | 1) } else { mixed }
    }
}

/// A segment that could be part of a train.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) key: FlowKey,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    /// The reserved bits beside the data offset, AccECN's AE among them.
    pub(crate) reserved: u8,
    /// Payload bytes.
    pub(crate) payload: u32,
    /// Bytes from the Ethernet header's start to the payload; equal within a train.
    pub(crate) header_len: u16,
    /// IPv4: type of service. IPv6: traffic class and flow label.
    pub(crate) class: u32,
    /// TTL or hop limit.
    pub(crate) hops: u8,
    /// IPv4: Don't Fragment.
    pub(crate) dont_fragment: bool,
    /// IPv4: identification.
    pub(crate) identification: u16,
    /// TSval and TSecr.
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Candidate {
    /// Reads the headers of TCP; `None` if they are incomplete.
    #[inline]
    fn read(frame: &Frame, header: &[u8]) -> Option<Candidate> {
        let parsed = &frame.parsed;
        let tcp = TcpHeader::at(header, parsed.l4)?;
        let mut segment = Candidate {
            key: FlowKey {
                macs: Addresses::read(header).unwrap_or_default(),
                addresses: [0; 4],
                ports: transmute!([tcp.source_port, tcp.destination_port]),
                tags: tags(header, parsed.l3),
                ethertype: parsed.ethertype,
            },
            sequence: tcp.sequence.get(),
            acknowledgement: tcp.acknowledgement.get(),
            window: tcp.window.get(),
            flags: tcp.flags(),
            reserved: tcp.data_offset & 0xf,
            payload: parsed.payload_len(),
            header_len: parsed.payload,
            class: 0,
            hops: 0,
            dont_fragment: false,
            identification: 0,
            timestamps: timestamps(frame, header),
        };
        if parsed.traits.contains(Traits::IPV4) {
            let ip = Ipv4Header::at(header, parsed.l3)?;
            segment.key.addresses[0] = transmute!([ip.source, ip.destination]);
            (segment.class, segment.hops) = (ip.tos.into(), ip.ttl);
            segment.dont_fragment = ip.dont_fragment();
            segment.identification = ip.identification.get();
        } else {
            let ip = Ipv6Header::at(header, parsed.l3)?;
            segment.key.addresses = transmute!([ip.source, ip.destination]);
            segment.class = ip.version_class_flow.get() & 0x0fff_ffff;
            segment.hops = ip.hop_limit;
        }
        Some(segment)
    }

    /// Returns the bits of `class` that are the ECN field: the lowest two of the traffic class.
    pub(crate) fn ecn_mask(&self) -> u32 {
        if self.key.is_v6() { 0b11 << 20 } else { 0b11 }
    }
}

/// The coalescer's classes of frames.
pub(crate) enum Class {
    /// Not TCP: it passes unchanged, and open trains stay open.
    Stranger,
    /// TCP that goes alone and closes the open train of its flow. If that is an exception, it is
    /// counted.
    Alone(Option<FlowKey>, Option<RscException>),
    /// May start or join a train.
    Segment(Candidate),
}

/// Classifies a frame for the coalescer.
///
/// `payload_sum` computes the sum of the payload. It is called only if neither the guest nor the
/// device has marked the checksum as good. With `any_options`, which the GRO rules set, a frame
/// with IP options, TCP options or IPv6 extension headers is not an exception.
pub(crate) fn classify(
    frame: &Frame,
    header: &[u8],
    any_options: bool,
    payload_sum: impl FnOnce() -> Sum,
) -> Class {
    let parsed = &frame.parsed;
    match parsed.kind {
        Kind::Tcp => {}
        Kind::Fragment if parsed.protocol == wire::tcp::PROTOCOL => {
            return Class::Alone(None, Some(RscException::Fragment));
        }
        _ => return Class::Stranger,
    }
    let Some(segment) = Candidate::read(frame, header) else { return Class::Stranger };
    if frame.is_train() {
        return Class::Alone(Some(segment.key), None);
    }
    if let Some(exception) = exception(frame, header, segment.flags, any_options) {
        return Class::Alone(Some(segment.key), Some(exception));
    }
    if !checksums_good(frame, header, payload_sum) {
        return Class::Alone(Some(segment.key), Some(RscException::BadChecksum));
    }
    Class::Segment(segment)
}

/// Returns the four or eight bytes between the addresses and the EtherType; 0 without a tag.
#[inline]
fn tags(header: &[u8], l3: u16) -> u64 {
    let mut tags = [0; 8];
    if let Some(bytes) = header.get(12..usize::from(l3).saturating_sub(2)) {
        tags.iter_mut().zip(bytes).for_each(|(tag, byte)| *tag = *byte);
    }
    u64::from_ne_bytes(tags)
}

/// Returns which of the exception conditions 3 to 5 of NDIS holds: flags, TCP options, IP options.
#[inline]
fn exception(
    frame: &Frame,
    header: &[u8],
    flags: TcpFlags,
    any_options: bool,
) -> Option<RscException> {
    let plain = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::ECE | TcpFlags::CWR;
    if !flags.contains(TcpFlags::ACK) || !plain.contains(flags) {
        return Some(RscException::TcpFlags);
    }
    if !any_options && frame.parsed.traits.contains(Traits::IP_OPTIONS) {
        return Some(RscException::IpOptions);
    }
    if !any_options && frame.parsed.tcp_options == TcpOptions::Other {
        return Some(RscException::TcpOptions);
    }
    // The headers of a train are the first segment's: they must all be in the private bytes.
    (header.len() < usize::from(frame.parsed.payload)).then_some(RscException::Resources)
}

/// Exception condition 2: the IPv4 header's own sum is always checked, since a train gets a new
/// one; the transport's where neither the guest (not yet finished) nor the device (checked) vouches
/// for it.
#[inline]
fn checksums_good(frame: &Frame, header: &[u8], payload_sum: impl FnOnce() -> Sum) -> bool {
    let parsed = &frame.parsed;
    if parsed.traits.contains(Traits::IPV4)
        && !header.get(parsed.l3.into()..parsed.l4.into()).is_some_and(wire::ipv4::checksum_ok)
    {
        return false;
    }
    // A source route changes the destination that the checksum covers, so then our own sum decides.
    if frame.vnet.flags().intersects(Flags::NEEDS_CSUM | Flags::DATA_VALID)
        && !parsed.traits.contains(Traits::IP_OPTIONS)
    {
        return true;
    }
    let Some(tcp) = header.get(parsed.l4.into()..parsed.payload.into()) else { return false };
    let transport_len = parsed.end.saturating_sub(parsed.l4.into());
    let pseudo = wire::checksum::pseudo(header, parsed, transport_len);
    // A TCP header is a multiple of four bytes, so the payload starts at an even place.
    pseudo.is_some_and(|pseudo| (pseudo + Sum::of(tcp) + payload_sum()).is_valid())
}

/// Returns value and echo of the timestamp option.
#[inline]
pub(super) fn timestamps(frame: &Frame, header: &[u8]) -> Option<(u32, u32)> {
    let TcpOptions::Timestamp(at) = frame.parsed.tcp_options else { return None };
    let option = TimestampOption::at(header, at)?;
    Some((option.value.get(), option.echo.get()))
}
