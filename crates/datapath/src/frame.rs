//! A frame inside the switch: a private copy of its headers, parsed once, and payload that stays where it is.

use ports::{Burst, RawFrame, Slice};
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Kind, Malformed, Parsed, Traits};

use crate::counters::DropReason;

/// Bytes copied at first: every usual header stack, TCP options and two tags included.
const USUAL_HEADERS: usize = 128;
/// Bytes copied when the headers go on: what long extension header chains get.
const LONG_HEADERS: usize = 256;
/// Bytes of an 802.1Q tag.
const TAG: u16 = 4;

/// A range in the turn's header bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    len: u16,
}

/// The private header bytes of one turn: each frame's copy, and copies of copies where the way out changes them.
#[derive(Default)]
pub(crate) struct Headers(Vec<u8>);

#[allow(
    clippy::cast_possible_truncation,
    reason = "a turn has far less than 4 GiB of headers, a header at most 260 bytes"
)]
impl Headers {
    pub(crate) fn with_capacity(bytes: usize) -> Headers {
        Headers(Vec::with_capacity(bytes))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(crate) fn get(&self, span: Span) -> &[u8] {
        self.0
            .get(span.start as usize..span.start as usize + usize::from(span.len))
            .unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, span: Span) -> &mut [u8] {
        self.0
            .get_mut(span.start as usize..span.start as usize + usize::from(span.len))
            .unwrap_or_default()
    }

    /// A copy of the first `len` bytes of a span, to be changed.
    pub(crate) fn copy(&mut self, span: Span, len: u16) -> Span {
        let (from, start) = (span.start as usize, self.0.len() as u32);
        let len = len.min(span.len);
        self.0.extend_from_within(from..from + usize::from(len));
        Span { start, len }
    }

    /// Inserts a tag behind the addresses of the last span, which must be the newest.
    pub(crate) fn insert_tag(&mut self, span: Span, tpid: u16, tci: u16) -> Span {
        let [a, b] = tpid.to_be_bytes();
        let [c, d] = tci.to_be_bytes();
        let at = span.start as usize + 12;
        self.0.splice(at..at, [a, b, c, d]);
        Span { len: span.len + TAG, ..span }
    }

    /// Takes the outer tag out of the last span, which must be the newest.
    pub(crate) fn strip_tag(&mut self, span: Span) -> Span {
        let at = span.start as usize + 12;
        self.0.drain(at..at + usize::from(TAG));
        Span { len: span.len - TAG, ..span }
    }

    /// Copies the first bytes of a frame, enough for all usual headers.
    #[inline]
    fn copy_in(&mut self, burst: &Burst<'_>, raw: &RawFrame) -> Span {
        let ([slice], None) = (burst.slices(raw), raw.vlan) else {
            return self.gather(burst, raw, USUAL_HEADERS);
        };
        let start = self.0.len() as u32;
        // A length the compiler knows is copied without a call.
        match slice.bytes().first_chunk::<USUAL_HEADERS>() {
            Some(usual) => self.0.extend_from_slice(usual),
            None => self.0.extend_from_slice(slice.bytes()),
        }
        Span { start, len: slice.len().min(USUAL_HEADERS) as u16 }
    }

    /// Copies up to `want` bytes of a frame, and puts the tag that travelled beside it back in its place.
    fn gather(&mut self, burst: &Burst<'_>, raw: &RawFrame, want: usize) -> Span {
        let start = self.0.len();
        for slice in burst.slices(raw) {
            let missing = want - (self.0.len() - start).min(want);
            self.0.extend_from_slice(slice.take(missing).bytes());
        }
        let span = Span { start: start as u32, len: (self.0.len() - start) as u16 };
        match raw.vlan {
            Some(tag) if span.len >= 14 => self.insert_tag(span, tag.tpid, tag.tci),
            _ => span,
        }
    }

    /// Cuts the newest span short.
    fn trim(&mut self, span: Span, len: u16) -> Span {
        let len = len.min(span.len);
        self.0.truncate(span.start as usize + usize::from(len));
        Span { len, ..span }
    }
}

impl Span {
    pub(crate) fn len(self) -> u16 {
        self.len
    }
}

/// One frame of the burst.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// What was found in the header bytes.
    pub(crate) parsed: Parsed,
    /// What the source said, checked against `parsed`.
    pub(crate) vnet: VnetHeader,
    /// The private bytes: all headers, or the whole of a short frame.
    pub(crate) header: Span,
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
    /// Copies and parses one frame of the burst, and adds it to the turn's frames.
    #[inline]
    pub(crate) fn read(
        burst: &Burst<'_>,
        place: u16,
        raw: &RawFrame,
        headers: &mut Headers,
        frames: &mut Vec<Frame>,
    ) -> Result<(), DropReason> {
        let restored = if raw.vlan.is_some() { TAG } else { 0 };
        let len = raw.len + u32::from(restored);
        let header = headers.copy_in(burst, raw);
        // In place from here on: a frame has more fields than the processor registers.
        let (parsed, vnet) = (Parsed::UNKNOWN, VnetHeader::default());
        frames.push(Frame { parsed, vnet, header, len, vlan: 0, raw: place, restored });
        let Some(frame) = frames.last_mut() else { return Ok(()) };
        let result = frame.find_out(burst, raw, headers);
        if result.is_err() {
            frames.pop();
        }
        result
    }

    /// Parses, and checks what the source said.
    #[inline]
    fn find_out(
        &mut self,
        burst: &Burst<'_>,
        raw: &RawFrame,
        headers: &mut Headers,
    ) -> Result<(), DropReason> {
        if !self.parsed.read(headers.get(self.header), self.len as usize) {
            return Err(DropReason::Runt);
        }
        if matches!(self.parsed.kind, Kind::Tcp | Kind::Udp) {
            self.trim(headers);
        } else if self.parsed.kind == Kind::Malformed(Malformed::BeyondHeaders) {
            self.read_long(headers, burst, raw);
        }
        if !raw.vnet.asks_nothing() {
            self.vnet = checked_offload(raw.vnet, self)?;
        }
        Ok(())
    }

    /// Gives up the private copy of payload that is in the source's buffers. The header must be the newest span.
    #[inline]
    fn trim(&mut self, headers: &mut Headers) {
        if u32::from(self.header.len) < self.len {
            self.header = headers.trim(self.header, self.parsed.payload);
        }
    }

    /// Copies and parses again, where the headers are longer than usual.
    #[cold]
    fn read_long(&mut self, headers: &mut Headers, burst: &Burst<'_>, raw: &RawFrame) {
        headers.trim(self.header, 0);
        self.header = headers.gather(burst, raw, LONG_HEADERS);
        self.parsed.read(headers.get(self.header), self.len as usize);
        if matches!(self.parsed.kind, Kind::Tcp | Kind::Udp) {
            self.trim(headers);
        }
    }

    /// The source's own bytes from `offset` (in the frame as the switch sees it) on, `len` of them.
    pub(crate) fn source<'q>(
        &self,
        burst: &Burst<'q>,
        offset: u32,
        len: u32,
    ) -> impl Iterator<Item = Slice<'q>> {
        let mut skip = self.skip(offset);
        let mut left = len as usize;
        self.slices(burst).iter().filter_map(move |slice| {
            let piece = slice.skip(skip).take(left);
            skip -= skip.min(slice.len());
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Adds what [`Frame::source`] gives to `pieces`: short where the source has the frame in one piece.
    #[inline(always)]
    pub(crate) fn lend<'q>(
        &self,
        burst: &Burst<'q>,
        offset: u32,
        len: u32,
        pieces: &mut Vec<Slice<'q>>,
    ) {
        if len == 0 {
            return;
        }
        match self.slices(burst) {
            [slice] => pieces.push(slice.skip(self.skip(offset)).take(len as usize)),
            _ => pieces.extend(self.source(burst, offset, len)),
        }
    }

    #[inline]
    fn slices<'s, 'q>(&self, burst: &'s Burst<'q>) -> &'s [Slice<'q>] {
        burst.frames().get(usize::from(self.raw)).map_or(&[], |raw| burst.slices(raw))
    }

    /// Bytes of the source before an offset in the frame.
    #[inline]
    fn skip(&self, offset: u32) -> usize {
        offset.saturating_sub(self.restored.into()) as usize
    }

    /// The payload, in the source's buffers.
    pub(crate) fn payload<'q>(&self, burst: &Burst<'q>) -> impl Iterator<Item = Slice<'q>> {
        self.source(burst, self.parsed.payload.into(), self.parsed.payload_len())
    }

    /// Adds the payload to `pieces`.
    #[inline]
    pub(crate) fn lend_payload<'q>(&self, burst: &Burst<'q>, pieces: &mut Vec<Slice<'q>>) {
        self.lend(burst, self.parsed.payload.into(), self.parsed.payload_len(), pieces);
    }

    /// Adds what is behind the private bytes to `pieces`.
    #[inline]
    pub(crate) fn lend_rest<'q>(&self, burst: &Burst<'q>, pieces: &mut Vec<Slice<'q>>) {
        self.lend(burst, self.header.len.into(), self.rest_len(), pieces);
    }

    /// Bytes behind the private ones.
    #[inline]
    pub(crate) fn rest_len(&self) -> u32 {
        self.len - u32::from(self.header.len).min(self.len)
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
        if end.is_none_or(|end| end > frame.header.len) || start < 14 {
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
