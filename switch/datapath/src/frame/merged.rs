//! Reads a train as the kernel hands it over on a packet socket or a TAP device: whatever its GRO,
//! a network card or a container's stack has merged or not yet segmented.
//!
//! The kernel has negotiated nothing, so its word is believed where it cannot harm. Checked is what
//! the later stages rely on: every header that segmentation writes lies in the private bytes, the
//! frame ends where its packets end, and the segments are bounded in number. Nothing that rules and
//! guards judge is taken for a tunnel, so segmentation does not write there. In particular:
//!
//! - **Tunnels.** The header names the transport inside (`csum_start`). The segments' outer headers
//!   are written from [`wire::tunnel::Layers`].
//! - **No unfinished checksum** (`rx-gro-list`, LRO): the checksum is the first segment's, and the
//!   transport is found by reading the headers. The pseudo-header's sum takes its place, so that
//!   there is one kind of train inside the switch.
//! - **More than 64 KiB** (BIG TCP): the IP length is 0, in IPv6 often with a hop-by-hop header that
//!   has the real one. That header is taken out, since no segment needs it.
//! - **Segments of any size** that a kernel makes: its smallest is [`SMALLEST`] bytes, with a
//!   smallest MSS of 48 and 40 bytes of options. Smaller ones are few, as Linux sends datagrams in
//!   one call. Their work is bounded by the turn's limit, at which segmentation stops.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::frame::headers::{LONG_HEADERS, TUNNEL_HEADERS};
use crate::frame::offload::{congestion, may_carry_transport};
use crate::frame::parts::Parts;
use ports::Slice;
use wire::checksum::Sum;
use wire::ipv6::{Ipv6Header, extension};
use wire::tunnel::{Layer, Layers, Wanted};
use wire::udp::UdpHeader;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Header, Kind, Traits, tcp, udp};

/// The smallest segment size of long trains: `TCP_MIN_GSO_SIZE`.
const SMALLEST: u16 = 8;
/// Segments that a train of smaller ones may have: `UDP_MAX_SEGMENTS`.
const FEW: u32 = 128;
/// Bytes of a hop-by-hop header with nothing but the jumbo payload option.
const JUMBO_HEADER: u16 = 8;

/// The transport of a train.
struct Transport {
    protocol: u8,
    l4: u16,
    payload: u16,
    /// The sum of its pseudo-header's addresses.
    addresses: Sum,
}

impl Frame {
    /// Takes a train as the kernel's header says. Header and pieces of the frame must be the newest.
    ///
    /// # Errors
    ///
    /// Returns the reason why the frame is dropped.
    pub(super) fn take_merged<'q>(
        &mut self,
        said: VnetHeader,
        slices: &[Slice<'q>],
        parts: &mut Parts<'q>,
    ) -> Result<(), DropReason> {
        let begun = said.flags().contains(Flags::NEEDS_CSUM);
        let start = said.csum_start.get().checked_add_signed(self.restored);
        let mut start = if begun { Some(start.ok_or(DropReason::BadOffload)?) } else { None };
        if self.len > u16::MAX.into() {
            start = self.read_big(start, slices, parts);
        }
        let transport = match self.own_transport(said.gso(), start, parts)? {
            Some(own) => own,
            None => self.inner_transport(said.gso(), start, slices, parts)?,
        };
        let Transport { protocol, l4, payload, addresses } = transport;
        let offset = if protocol == tcp::PROTOCOL { 16 } else { 6 };
        DropReason::BadOffload.when(begun && said.csum_offset.get() != offset)?;
        let bytes = self.len.saturating_sub(payload.into());
        DropReason::BadOffload.when(!is_bounded(bytes, said.gso_size.get()))?;
        let is_train = bytes > u32::from(said.gso_size.get());
        self.vnet = VnetHeader::default();
        self.vnet.set_flags(said.flags() & Flags::DATA_VALID);
        if !begun && !is_train {
            return Ok(());
        }
        self.vnet.set_flags(self.vnet.flags() | Flags::NEEDS_CSUM);
        self.vnet.csum_start.set(l4);
        self.vnet.csum_offset.set(offset);
        if is_train {
            let headers = parts.headers.get_mut(self.header);
            if !begun {
                let length = Sum::of(&(self.len - u32::from(l4)).to_be_bytes());
                let pseudo = (addresses + length).add_u16(protocol.into()).0.to_be_bytes();
                let place = headers.get_mut(usize::from(l4 + offset)..);
                let place = place.and_then(<[u8]>::first_chunk_mut);
                *place.ok_or(DropReason::UnknownTrain)? = pseudo;
            }
            let is_marked = protocol == tcp::PROTOCOL && congestion(headers, l4);
            self.vnet.set_gso(said.gso(), is_marked);
            self.vnet.gso_size = said.gso_size;
            self.vnet.hdr_len.set(payload);
        }
        Ok(())
    }

    /// Reads a packet of more than 64 KiB anew, without the hop-by-hop header that has its length.
    /// Returns where the transport starts after that.
    fn read_big<'q>(
        &mut self,
        start: Option<u16>,
        slices: &[Slice<'q>],
        parts: &mut Parts<'q>,
    ) -> Option<u16> {
        let Parts { headers, pieces, .. } = &mut *parts;
        self.header = headers.lengthen(self.header, self.rest.of(pieces), LONG_HEADERS);
        let l3 = self.parsed.l3;
        let behind = l3 + Ipv6Header::LEN;
        let bytes = headers.get_mut(self.header);
        let jumbo = match bytes.get(behind.into()..) {
            Some([next, 0, 0xc2, 4, ..]) => Some(*next),
            _ => None,
        };
        let mut start = start;
        if self.parsed.traits.contains(Traits::IPV6)
            && let Some(next) = jumbo
            && let Some(ip) = Ipv6Header::at_mut(bytes, l3)
            && ip.next_header == extension::HOP_BY_HOP
        {
            ip.next_header = next;
            self.header = headers.take_out(self.header, behind, JUMBO_HEADER);
            self.len -= u32::from(JUMBO_HEADER);
            self.restored -= JUMBO_HEADER.cast_signed();
            start = start.map(|start| start.saturating_sub(JUMBO_HEADER));
        }
        self.parsed.read_big(headers.get(self.header), self.len as usize);
        parts.remove_newest(self.rest);
        self.lend_behind_header(slices, parts);
        start
    }

    /// Returns the transport of the frame's own packet, if the train is one of it.
    fn own_transport(
        &self,
        gso: GsoType,
        start: Option<u16>,
        parts: &Parts<'_>,
    ) -> Result<Option<Transport>, DropReason> {
        let parsed = &self.parsed;
        let (kind, family) = match gso {
            GsoType::Tcp4 => (Kind::Tcp, Traits::IPV4),
            GsoType::Tcp6 => (Kind::Tcp, Traits::IPV6),
            GsoType::UdpL4 => (Kind::Udp, parsed.traits & (Traits::IPV4 | Traits::IPV6)),
            GsoType::None | GsoType::Unknown(_) => return Err(DropReason::UnknownTrain),
        };
        if parsed.kind != kind || start.is_some_and(|start| start != parsed.l4) {
            return Ok(None);
        }
        // Without a start, a train of datagrams may be that of the tunnel, or of what is inside.
        if kind == Kind::Udp && start.is_none() {
            let headers = parts.headers.get(self.header);
            let is_tunnel = UdpHeader::at(headers, parsed.l4)
                .is_some_and(|udp| wire::tunnel::is_port(udp.destination_port.get()));
            DropReason::UnknownTrain.when(is_tunnel)?;
        }
        let fits = parsed.traits.contains(family)
            && !parsed.traits.contains(Traits::SURPLUS)
            && parsed.end == self.len;
        DropReason::BadOffload.when(!fits)?;
        let addresses = parsed.addresses(parts.headers.get(self.header)).unwrap_or_default();
        let (protocol, addresses) = (parsed.protocol, Sum::of(addresses));
        Ok(Some(Transport { protocol, l4: parsed.l4, payload: parsed.payload, addresses }))
    }

    /// Finds the transport inside a tunnel, and makes its header the end of the private bytes.
    fn inner_transport<'q>(
        &mut self,
        gso: GsoType,
        start: Option<u16>,
        slices: &[Slice<'q>],
        parts: &mut Parts<'q>,
    ) -> Result<Transport, DropReason> {
        let is_inside = start.is_none_or(|start| start >= self.parsed.payload);
        let is_whole = self.parsed.end == self.len && is_inside;
        let may_carry = may_carry_transport(parts.headers.get(self.header), &self.parsed);
        DropReason::UnknownTrain.when(!is_whole || !may_carry)?;
        let rest = self.rest.of(&parts.pieces);
        self.header = parts.headers.lengthen(self.header, rest, TUNNEL_HEADERS);
        let protocol = if gso == GsoType::UdpL4 { udp::PROTOCOL } else { tcp::PROTOCOL };
        let headers = parts.headers.get(self.header);
        let wanted = Wanted { protocol, start };
        let found = Layers::find(headers, self.parsed.network(), wanted);
        let found = found.ok_or(DropReason::UnknownTrain)?;
        let ip = found.ip().ok_or(DropReason::UnknownTrain)?;
        let fits = match gso {
            GsoType::Tcp4 => matches!(ip, Layer::Ipv4(_)),
            GsoType::Tcp6 => matches!(ip, Layer::Ipv6(_)),
            _ => true,
        };
        let mut ends = found.all().iter().filter_map(|layer| layer.end(headers));
        DropReason::UnknownTrain.when(!fits || ends.any(|end| end != self.len))?;
        let addresses = Sum::of(ip.addresses(headers).unwrap_or_default());
        self.header = parts.headers.trim(self.header, found.payload);
        parts.remove_newest(self.rest);
        self.lend_behind_header(slices, parts);
        Ok(Transport { protocol, l4: found.l4, payload: found.payload, addresses })
    }
}

/// Whether segments of this size are no more than a kernel makes of so many bytes.
fn is_bounded(bytes: u32, size: u16) -> bool {
    let most = if size >= SMALLEST { u16::MAX.into() } else { FEW };
    size > 0 && bytes.div_ceil(size.into()) <= most
}
