//! A frame in the switch: a private copy of its headers, parsed once, and payload that stays in the
//! source's buffers.

pub(crate) mod addresses;
pub(crate) mod hash;
pub(crate) mod headers;
mod merged;
pub(crate) mod offload;
pub(crate) mod parts;
mod sctp;

use crate::counters::{DropReason, PortCell};
use crate::flow::watch::Dropped;
use crate::frame::headers::{Headers, LONG_HEADERS, SHORT_HEADERS, Span, TAG, TUNNEL_HEADERS};
use crate::frame::offload::validate_offload;
use crate::frame::parts::{Parts, PieceRange};
use ports::{Burst, RawFrame, Slice, Speaker, VlanTag};
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Kind, Malformed, Parsed};

/// Where the checksum is in an SCTP header.
const SCTP_FIELD: u16 = 8;

/// One frame of the burst.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame {
    /// The result of parsing the header bytes.
    pub(crate) parsed: Parsed,
    /// The source's claims that hold, see [`validate_offload`].
    pub(crate) vnet: VnetHeader,
    /// The private bytes: all headers, or the whole of a short frame.
    pub(crate) header: Span,
    /// The bytes behind the private ones, in the source's buffers.
    pub(crate) rest: PieceRange,
    /// Bytes of the frame, with its tag in place.
    pub(crate) len: u32,
    /// VLAN inside the switch; set when the frame is admitted.
    pub(crate) vlan: u16,
    /// The place in the burst, which is the same in the turn.
    pub(crate) place: u16,
    /// Bytes that stand in `header` and not in the source's buffers: a tag put back. Less than 0: a
    /// header was taken out.
    restored: i16,
}

impl Frame {
    /// Makes the frame at a place of the burst, to be read later.
    #[allow(clippy::cast_possible_truncation, reason = "a burst has 256 frames")]
    pub(crate) fn at(place: usize) -> Frame {
        Frame { place: place as u16, ..Frame::default() }
    }

    /// Copies and parses the frame at this place of the burst, and overwrites what was here before.
    /// It is done in place, since a frame has more fields than the processor has registers. After
    /// an error the frame is dropped.
    #[inline(always)]
    pub(crate) fn read<'q>(
        &mut self,
        burst: &Burst<'q>,
        raw: &RawFrame,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let slices = burst.slices(raw);
        let (restored, header, bytes) = if raw.vlan.is_none()
            && let [slice] = slices
        {
            let (header, bytes) = parts.headers.copy_in(slice);
            (0, header, bytes)
        } else {
            gather(slices, raw.vlan, &mut parts.headers)
        };
        let len = raw.len.saturating_add_signed(restored.into());
        (self.header, self.len, self.restored) = (header, len, restored);
        (self.vnet, self.rest) = (VnetHeader::default(), PieceRange::default());
        if !self.parsed.read(bytes, len as usize) {
            return Err(DropReason::Runt);
        }
        if u32::from(header.len()) < len {
            self.lend_rest(slices, raw, parts);
        }
        if raw.vnet.asks_nothing() {
            return Ok(());
        }
        if raw.vnet.names_no_place() {
            self.vnet.set_flags(raw.vnet.flags() & Flags::DATA_VALID);
            return Ok(());
        }
        self.take_claims(burst, raw, parts, cell)
    }

    /// Lends what is no header, and gives up the private copy of it.
    #[inline]
    fn lend_rest<'q>(&mut self, slices: &[Slice<'q>], raw: &RawFrame, parts: &mut Parts<'q>) {
        match self.parsed.kind {
            Kind::Tcp | Kind::Udp => self.trim(&mut parts.headers),
            Kind::Malformed(Malformed::BeyondHeaders) => {
                self.read_long(&mut parts.headers, slices, raw);
            }
            _ => {}
        }
        self.lend_behind_header(slices, parts);
    }

    /// Lends what is behind the private bytes.
    #[inline]
    fn lend_behind_header<'q>(&mut self, slices: &[Slice<'q>], parts: &mut Parts<'q>) {
        let start = parts.pieces.len();
        let skip = usize::from(self.header.len().saturating_add_signed(-self.restored));
        match slices {
            [slice] => parts.pieces.push(slice.skip(skip)),
            _ => parts.pieces.extend(stretch(slices, skip, usize::MAX)),
        }
        self.rest = parts.since(start);
    }

    /// The header must be the newest span.
    #[inline]
    fn trim(&mut self, headers: &mut Headers) {
        self.header = headers.trim(self.header, self.parsed.payload);
    }

    /// Copies and parses again, where the headers are longer than [`SHORT_HEADERS`].
    #[cold]
    fn read_long(&mut self, headers: &mut Headers, slices: &[Slice<'_>], raw: &RawFrame) {
        headers.trim(self.header, 0);
        self.header = headers.gather(slices, raw.vlan, LONG_HEADERS);
        self.parsed.read(headers.get(self.header), self.len as usize);
        if matches!(self.parsed.kind, Kind::Tcp | Kind::Udp) {
            self.trim(headers);
        }
    }

    /// Keeps the source's claims about the frame that hold.
    #[inline(never)]
    fn take_claims<'q>(
        &mut self,
        burst: &Burst<'q>,
        raw: &RawFrame,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let slices = burst.slices(raw);
        if burst.speaker() == Speaker::Kernel && raw.vnet.gso() != GsoType::None {
            self.take_merged(raw.vnet, slices, parts)?;
        } else {
            let found = (parts.headers.get(self.header), &self.parsed);
            self.vnet = validate_offload(raw.vnet, found, self.len, self.restored)?;
        }
        if self.is_train() {
            cell.ingress_trains.add(1);
            cell.ingress_train_segments.add(self.vnet.segments_of(self.train_payload()));
        }
        if self.vnet.flags().contains(Flags::NEEDS_CSUM) {
            cell.unfinished_checksums.add(1);
            let (start, offset) = (self.vnet.csum_start.get(), self.vnet.csum_offset.get());
            let is_sctp = offset == SCTP_FIELD && burst.speaker() == Speaker::Kernel;
            if start + offset + if is_sctp { 4 } else { 2 } > self.header.len() {
                self.copy_inner_headers(slices, parts);
            }
            if is_sctp {
                self.finish_sctp(slices, parts);
            }
        }
        Ok(())
    }

    /// Copies more of a tunnel's packet: its inner checksum must be in the private bytes, to be
    /// finished there. Header and pieces of the frame must be the newest.
    #[cold]
    fn copy_inner_headers<'q>(&mut self, slices: &[Slice<'q>], parts: &mut Parts<'q>) {
        let end = self.vnet.csum_start.get() + self.vnet.csum_offset.get() + 4;
        let want = if usize::from(end) <= LONG_HEADERS { LONG_HEADERS } else { TUNNEL_HEADERS };
        self.header = parts.headers.lengthen(self.header, self.rest.of(&parts.pieces), want);
        parts.remove_newest(self.rest);
        self.lend_behind_header(slices, parts);
    }

    /// Returns the payload, in the source's buffers.
    pub(crate) fn payload<'q>(&self, burst: &Burst<'q>) -> impl Iterator<Item = Slice<'q>> {
        let (start, len) = match self.is_train() {
            true => (self.vnet.hdr_len.get(), self.train_payload()),
            false => (self.parsed.payload, self.parsed.payload_len()),
        };
        let skip = start.saturating_add_signed(-self.restored);
        stretch(self.slices(burst), skip.into(), len as usize)
    }

    /// Adds the payload to the turn's pieces.
    #[inline]
    pub(crate) fn lend_payload<'q>(&self, burst: &Burst<'q>, parts: &mut Parts<'q>) {
        if self.payload_is_rest() {
            parts.push_again(self.rest);
        } else {
            parts.pieces.extend(self.payload(burst));
        }
    }

    /// Returns whether there is payload, and the bytes behind the private ones are exactly that
    /// payload.
    #[inline]
    pub(crate) fn payload_is_rest(&self) -> bool {
        let header = self.header.len();
        header == self.parsed.payload && u32::from(header) < self.len && self.len == self.parsed.end
    }

    /// Returns the whole frame, in the source's buffers.
    #[inline]
    pub(crate) fn slices<'s, 'q>(&self, burst: &'s Burst<'q>) -> &'s [Slice<'q>] {
        burst.frames().get(usize::from(self.place)).map_or(&[], |raw| burst.slices(raw))
    }

    /// Returns the frame as one that is dropped.
    pub(crate) fn dropped<'h>(&self, headers: &'h Headers, reason: DropReason) -> Dropped<'h> {
        (headers.get(self.header), self.len, reason)
    }

    /// Returns whether the frame was dropped when it was read: it has no private bytes, so no
    /// addresses to go to.
    pub(crate) fn is_dropped(&self) -> bool {
        self.header.len() == 0
    }

    /// Returns whether the frame is a train: it has more payload than one segment. Only trains have
    /// a segment size, see [`validate_offload`].
    #[inline]
    pub(crate) fn is_train(&self) -> bool {
        self.vnet.gso_size.get() != 0
    }

    /// Returns the bytes of the IP packet, or of what follows the Ethernet header and tags. For a
    /// train it is the largest segment's packet.
    #[inline]
    pub(crate) fn largest_packet(&self) -> u32 {
        let end = match self.vnet.gso_size.get() {
            0 => self.len,
            segment => u32::from(self.vnet.hdr_len.get()) + u32::from(segment),
        };
        end.saturating_sub(self.parsed.l3.into())
    }

    /// Returns the payload bytes of a train, which ends with its packet.
    pub(crate) fn train_payload(&self) -> u32 {
        self.len.saturating_sub(self.vnet.hdr_len.get().into())
    }

    /// Whether the segments of a train are inside a tunnel.
    pub(crate) fn is_in_tunnel(&self) -> bool {
        self.is_train() && self.vnet.csum_start.get() != self.parsed.l4
    }

    /// Whether an IP header can say how long the packet is.
    pub(crate) fn fits_ip(&self) -> bool {
        self.len.saturating_sub(self.parsed.l3.into()) <= u16::MAX.into()
    }

    /// Returns the datagrams of a train of UDP, otherwise 0.
    pub(crate) fn datagrams(&self) -> u16 {
        let count = match self.vnet.gso() {
            GsoType::UdpL4 => self.vnet.segments_of(self.train_payload()),
            _ => 0,
        };
        u16::try_from(count).unwrap_or(u16::MAX)
    }
}

/// Copies the first bytes of a frame that is in several pieces or has a tag beside it. Returns the
/// bytes of tag put back, and the copy.
#[inline(never)]
fn gather<'h>(
    slices: &[Slice<'_>],
    tag: Option<VlanTag>,
    headers: &'h mut Headers,
) -> (i16, Span, &'h [u8]) {
    let header = headers.gather(slices, tag, SHORT_HEADERS);
    (if tag.is_some() { TAG.cast_signed() } else { 0 }, header, headers.get(header))
}

/// Returns `len` bytes of `slices`, from `skip` on.
fn stretch<'q>(
    slices: &[Slice<'q>],
    mut skip: usize,
    mut len: usize,
) -> impl Iterator<Item = Slice<'q>> {
    slices.iter().filter_map(move |slice| {
        let piece = slice.skip(skip).take(len);
        skip -= skip.min(slice.len());
        len -= piece.len();
        (!piece.is_empty()).then_some(piece)
    })
}
