//! A frame inside the switch: a private copy of its headers, parsed once, and payload that stays where it is.

use crate::counters::DropReason;
use crate::headers::{Headers, Span, TAG, USUAL_HEADERS};
use crate::parts::{Lent, Parts};
use ports::{Burst, RawFrame, Slice, VlanTag};
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Kind, Malformed, Parsed, Traits};

/// Bytes copied when the headers go on: what long extension header chains get.
const LONG_HEADERS: usize = 256;

/// One frame of the burst.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame {
    /// What was found in the header bytes.
    pub(crate) parsed: Parsed,
    /// What the source said, checked against `parsed`.
    pub(crate) vnet: VnetHeader,
    /// The private bytes: all headers, or the whole of a short frame.
    pub(crate) header: Span,
    /// What is behind the private bytes, in the source's buffers.
    pub(crate) rest: Lent,
    /// Bytes of the frame, the tag in place.
    pub(crate) len: u32,
    /// VLAN inside the switch; set when the frame is admitted.
    pub(crate) vlan: u16,
    /// Its place in the burst.
    pub(crate) raw: u16,
    /// Bytes that stand in `header` and not in the source's buffers: a tag put back.
    restored: u16,
}

impl Frame {
    /// Copies and parses the frame at `place` of the burst into this one. What was here before counts for nothing; after
    /// an error it is no frame. In place, since a frame has more fields than the processor registers.
    #[inline(always)]
    pub(crate) fn read<'q>(
        &mut self,
        burst: &Burst<'q>,
        place: u16,
        raw: &RawFrame,
        parts: &mut Parts<'q>,
    ) -> Result<(), DropReason> {
        let slices = burst.slices(raw);
        let (restored, header) = match (slices, raw.vlan) {
            ([slice], None) => (0, parts.headers.copy_in(slice.bytes())),
            (_, tag) => gather(slices, tag, parts),
        };
        let len = raw.len + u32::from(restored);
        (self.header, self.len, self.raw, self.restored) = (header, len, place, restored);
        (self.vnet, self.rest) = (VnetHeader::default(), Lent::default());
        if !self.parsed.read(parts.headers.get(header), len as usize) {
            return Err(DropReason::Runt);
        }
        if u32::from(header.len()) < len {
            self.lend_rest(slices, raw, parts);
        }
        if !raw.vnet.asks_nothing() {
            self.vnet = checked_offload(raw.vnet, self)?;
        }
        Ok(())
    }

    /// Lends what is no header, and gives up the private copy of it.
    #[inline]
    fn lend_rest<'q>(&mut self, slices: &[Slice<'q>], raw: &RawFrame, parts: &mut Parts<'q>) {
        if self.parsed.kind == Kind::Malformed(Malformed::BeyondHeaders) {
            self.read_long(&mut parts.headers, slices, raw);
        }
        if matches!(self.parsed.kind, Kind::Tcp | Kind::Udp) {
            self.header = parts.headers.trim(self.header, self.parsed.payload);
        }
        let (start, header) = (parts.pieces.len(), u32::from(self.header.len()));
        self.lend(slices, header, self.len.saturating_sub(header), &mut parts.pieces);
        self.rest = parts.since(start);
    }

    /// Copies and parses again, where the headers are longer than usual.
    #[cold]
    fn read_long(&mut self, headers: &mut Headers, slices: &[Slice<'_>], raw: &RawFrame) {
        headers.trim(self.header, 0);
        self.header = headers.gather(slices, raw.vlan, LONG_HEADERS);
        self.parsed.read(headers.get(self.header), self.len as usize);
    }

    /// Adds the source's own bytes from `offset` (in the frame as the switch sees it) on, `len` of them, to `pieces`.
    #[inline(always)]
    pub(crate) fn lend<'q>(
        &self,
        slices: &[Slice<'q>],
        offset: u32,
        len: u32,
        pieces: &mut Vec<Slice<'q>>,
    ) {
        let skip = offset.saturating_sub(self.restored.into()) as usize;
        match slices {
            [slice] => pieces.push(slice.skip(skip).take(len as usize)),
            _ => pieces.extend(stretch(slices, skip, len as usize)),
        }
    }

    /// The payload, in the source's buffers.
    pub(crate) fn payload<'q>(&self, burst: &Burst<'q>) -> impl Iterator<Item = Slice<'q>> {
        let skip = u32::from(self.parsed.payload).saturating_sub(self.restored.into());
        stretch(self.slices(burst), skip as usize, self.parsed.payload_len() as usize)
    }

    /// Adds the payload to the turn's pieces.
    #[inline]
    pub(crate) fn lend_payload<'q>(&self, burst: &Burst<'q>, parts: &mut Parts<'q>) {
        let (start, len) = (self.parsed.payload, self.parsed.payload_len());
        if self.header.len() == start && self.len == self.parsed.end {
            parts.lend_again(self.rest);
        } else if len > 0 {
            self.lend(self.slices(burst), start.into(), len, &mut parts.pieces);
        }
    }

    /// The whole frame, in the source's buffers.
    #[inline]
    pub(crate) fn slices<'s, 'q>(&self, burst: &'s Burst<'q>) -> &'s [Slice<'q>] {
        burst.frames().get(usize::from(self.raw)).map_or(&[], |raw| burst.slices(raw))
    }

    /// A train: more payload than one segment. Nothing else has a segment size, see [`checked_offload`].
    #[inline]
    pub(crate) fn is_train(&self) -> bool {
        self.vnet.gso_size.get() != 0
    }

    /// Bytes of the IP packet (or whatever follows the Ethernet header and tags), of a train's largest segment.
    #[inline]
    pub(crate) fn largest_packet(&self) -> u32 {
        let end = match self.vnet.gso_size.get() {
            0 => self.len,
            segment => u32::from(self.parsed.payload) + u32::from(segment),
        };
        end.saturating_sub(self.parsed.l3.into())
    }
}

/// The first bytes of a frame in any pieces or with a tag beside it; how many bytes of tag were put back.
#[inline(never)]
fn gather(slices: &[Slice<'_>], tag: Option<VlanTag>, parts: &mut Parts<'_>) -> (u16, Span) {
    let header = parts.headers.gather(slices, tag, USUAL_HEADERS);
    (if tag.is_some() { TAG } else { 0 }, header)
}

/// The bytes of `slices` from `skip` on, `len` of them.
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

/// What the source asks for must fit what the frame is: the checksum's place inside the private bytes, a train's type
/// its protocol (virtio 1.2, 5.1.6.2.1). The answer says nothing more than the switch understands.
fn checked_offload(said: VnetHeader, frame: &Frame) -> Result<VnetHeader, DropReason> {
    let parsed = &frame.parsed;
    let mut vnet = VnetHeader::default();
    let flags = said.flags() & (Flags::NEEDS_CSUM | Flags::DATA_VALID);
    vnet.set_flags(flags);
    if flags.contains(Flags::NEEDS_CSUM) {
        let start =
            said.csum_start.get().checked_add(frame.restored).ok_or(DropReason::BadOffload)?;
        let end = start.checked_add(said.csum_offset.get()).and_then(|place| place.checked_add(2));
        if end.is_none_or(|end| end > frame.header.len()) || start < 14 {
            return Err(DropReason::BadOffload);
        }
        vnet.csum_start.set(start);
        vnet.csum_offset = said.csum_offset;
    }
    if said.gso() == GsoType::None {
        return Ok(vnet);
    }
    let (kind, family, checksum_at) = match said.gso() {
        GsoType::Tcp4 => (Kind::Tcp, Traits::IPV4, 16),
        GsoType::Tcp6 => (Kind::Tcp, Traits::IPV6, 16),
        GsoType::UdpL4 => (Kind::Udp, parsed.traits & (Traits::IPV4 | Traits::IPV6), 6),
        GsoType::None | GsoType::Unknown(_) => return Err(DropReason::BadOffload),
    };
    let fits = parsed.kind == kind
        && parsed.traits.contains(family)
        && flags.contains(Flags::NEEDS_CSUM)
        && vnet.csum_start.get() == parsed.l4
        && vnet.csum_offset.get() == checksum_at
        && !parsed.traits.contains(Traits::SURPLUS)
        && said.gso_size.get() > 0;
    if !fits {
        return Err(DropReason::BadOffload);
    }
    if parsed.payload_len() > u32::from(said.gso_size.get()) {
        vnet.set_gso(said.gso(), said.gso_ecn());
        vnet.gso_size = said.gso_size;
        vnet.hdr_len.set(parsed.payload);
    }
    Ok(vnet)
}
