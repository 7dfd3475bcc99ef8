//! The private header bytes of a turn: a copy per frame, and further copies where the egress side
//! changes them.

use ports::{Slice, VlanTag};

/// Bytes copied at first: enough for TCP with all its options over IPv6 with two tags.
pub(crate) const SHORT_HEADERS: usize = 128;
/// Bytes copied if the headers go on, as long extension header chains do.
pub(crate) const LONG_HEADERS: usize = 256;
/// Most bytes copied, where a tunnel has a transport inside that must be changed: Geneve may have
/// 252 bytes of options, and there may be a tunnel in a tunnel.
pub(crate) const TUNNEL_HEADERS: usize = 512;
/// Bytes of an 802.1Q tag.
pub(crate) const TAG: u16 = 4;

/// A range in the turn's header bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    len: u16,
}

impl Span {
    #[inline]
    pub(crate) fn len(self) -> u16 {
        self.len
    }
}

/// The private header bytes, a buffer that is filled from its start in each turn.
///
/// It only grows. If it shrank, a guest could make it grow again in every turn, and each turn would
/// pay for new pages, which no work is counted for. The work limit bounds it at 32 MiB: a copy of
/// 512 bytes is charged 60 units or more.
#[derive(Default)]
pub(crate) struct Headers {
    bytes: Vec<u8>,
    /// Where the next span starts: the bytes behind are free. May be set back to where it was.
    pub(crate) used: usize,
}

#[allow(clippy::cast_possible_truncation, reason = "32 MiB of headers, each 520 bytes at most")]
impl Headers {
    pub(crate) fn with_capacity(bytes: usize) -> Headers {
        Headers { bytes: vec![0; bytes], used: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        self.bytes.get(start..start + usize::from(span.len)).unwrap_or_else(nothing)
    }

    pub(crate) fn get_mut(&mut self, span: Span) -> &mut [u8] {
        let start = span.start as usize;
        self.bytes.get_mut(start..start + usize::from(span.len)).unwrap_or_default()
    }

    /// Returns the next `len` bytes, which stay free.
    #[inline]
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < self.used + len {
            self.grow(len);
        }
        self.bytes.get_mut(self.used..self.used + len).unwrap_or_default()
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.bytes.resize((self.used + len).next_power_of_two(), 0);
    }

    /// Takes the next `len` bytes into use.
    #[inline]
    fn claim(&mut self, len: usize) -> Span {
        let span = Span { start: self.used as u32, len: len as u16 };
        self.used += len;
        span
    }

    /// Makes room for the first copies of so many frames, so that [`Headers::copy_in`] need not
    /// ask.
    pub(crate) fn make_room(&mut self, frames: usize) {
        self.room(frames * (LONG_HEADERS + usize::from(TAG)));
    }

    /// Copies the first [`SHORT_HEADERS`] bytes of a frame in one piece and shows the copy.
    #[inline]
    pub(crate) fn copy_in(&mut self, bytes: &Slice<'_>) -> (Span, &[u8]) {
        let bytes = bytes.take(SHORT_HEADERS);
        let span = self.claim(bytes.len());
        let start = span.start as usize;
        let room = self.bytes.get_mut(start..start + SHORT_HEADERS);
        let room = room.and_then(<[u8]>::first_chunk_mut);
        let copy = room.and_then(|room| copy_short(&bytes, room));
        (span, copy.unwrap_or_default())
    }

    /// Copies up to `want` bytes of a frame in any pieces, and puts the tag that travelled beside
    /// it back in its place.
    pub(crate) fn gather(
        &mut self,
        slices: &[Slice<'_>],
        tag: Option<VlanTag>,
        want: usize,
    ) -> Span {
        let span = self.append(slices, want);
        match tag {
            Some(tag) if span.len >= 14 => self.insert_tag(span, tag.tpid, tag.tci),
            _ => span,
        }
    }

    /// Copies up to `want` bytes behind those that are in use.
    fn append(&mut self, slices: &[Slice<'_>], want: usize) -> Span {
        let mut room = self.room(want);
        for slice in slices {
            let copied = slice.copy_to(room);
            room = room.get_mut(copied..).unwrap_or_default();
        }
        let missing = room.len();
        self.claim(want - missing)
    }

    /// Makes the newest span up to `want` bytes long with what follows it in the frame. What it
    /// holds stays: it was parsed, and the source may have changed its own since.
    pub(crate) fn lengthen(&mut self, span: Span, rest: &[Slice<'_>], want: usize) -> Span {
        let more = self.append(rest, want.saturating_sub(span.len.into()));
        Span { len: span.len + more.len, ..span }
    }

    /// Takes bytes out of the newest span.
    pub(crate) fn take_out(&mut self, span: Span, at: u16, len: u16) -> Span {
        let from = span.start as usize + usize::from(at);
        if usize::from(at + len) > usize::from(span.len) {
            return span;
        }
        self.bytes.copy_within(from + usize::from(len)..self.used, from);
        self.used -= usize::from(len);
        Span { len: span.len - len, ..span }
    }

    /// Copies the first `len` bytes of a span, so that the copy can be changed.
    pub(crate) fn copy(&mut self, span: Span, len: u16) -> Span {
        let (from, len) = (span.start as usize, usize::from(len.min(span.len)));
        self.room(len);
        self.bytes.copy_within(from..from + len, self.used);
        self.claim(len)
    }

    /// Inserts a tag behind the addresses of the last span, which must be the newest.
    pub(crate) fn insert_tag(&mut self, span: Span, tpid: u16, tci: u16) -> Span {
        let at = span.start as usize + 12;
        self.room(TAG.into());
        self.bytes.copy_within(at..self.used, at + usize::from(TAG));
        self.set_tag(span, tpid, tci);
        self.used += usize::from(TAG);
        Span { len: span.len + TAG, ..span }
    }

    /// Writes the outer tag of a span.
    pub(crate) fn set_tag(&mut self, span: Span, tpid: u16, tci: u16) {
        let at = span.start as usize + 12;
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
        if let Some(place) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = [a, b, c, d];
        }
    }

    /// Takes the outer tag out of the last span, which must be the newest.
    pub(crate) fn strip_tag(&mut self, span: Span) -> Span {
        let at = span.start as usize + 12;
        self.bytes.copy_within(at + usize::from(TAG)..self.used, at);
        self.used -= usize::from(TAG);
        Span { len: span.len - TAG, ..span }
    }

    /// Cuts the newest span short.
    #[inline]
    pub(crate) fn trim(&mut self, span: Span, len: u16) -> Span {
        let len = len.min(span.len);
        self.used = span.start as usize + usize::from(len);
        Span { len, ..span }
    }
}

/// Returns an empty slice, for a range that does not exist. A cold function costs a branch; a value
/// would be selected without one, which takes longer.
#[cold]
pub(crate) fn nothing<'a, T>() -> &'a [T] {
    &[]
}

/// Copies into the first bytes of `room`. What the compiler knows the length of is copied without a
/// call, so 32 to 128 bytes go as their first and last 64 or 32 bytes, which may overlap.
#[inline]
fn copy_short<'r>(bytes: &Slice<'_>, room: &'r mut [u8; SHORT_HEADERS]) -> Option<&'r [u8]> {
    let copy = room.get_mut(..bytes.len())?;
    match copy.len() {
        64.. => {
            bytes.copy_first::<64>(copy.first_chunk_mut()?);
            bytes.copy_last::<64>(copy.last_chunk_mut()?);
        }
        32.. => {
            bytes.copy_first::<32>(copy.first_chunk_mut()?);
            bytes.copy_last::<32>(copy.last_chunk_mut()?);
        }
        _ => {
            bytes.copy_to(copy);
        }
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_copy_is_what_was_given(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..40)) {
            let mut headers = Headers::default();
            headers.make_room(frames.len());
            let spans: Vec<Span> = frames.iter().map(|frame| headers.copy_in(&Slice::from(&frame[..])).0).collect();
            for (frame, span) in frames.iter().zip(spans) {
                prop_assert_eq!(headers.get(span), &frame[..frame.len().min(SHORT_HEADERS)]);
            }
        }

        #[test]
        fn pieces_are_gathered_and_tagged(bytes in prop::collection::vec(any::<u8>(), 14..300), cut in 0..14usize) {
            let mut headers = Headers::default();
            let slices = [Slice::from(&bytes[..cut]), Slice::from(&bytes[cut..])];
            let plain = headers.gather(&slices, None, 128);
            let tagged = headers.gather(&slices, Some(VlanTag { tpid: 0x8100, tci: 7 }), 128);
            let first = &bytes[..bytes.len().min(128)];
            prop_assert_eq!(headers.get(plain), first);
            let with_tag = [&first[..12], &[0x81, 0, 0, 7], &first[12..]].concat();
            prop_assert_eq!(headers.get(tagged), with_tag);
            let stripped = headers.strip_tag(tagged);
            prop_assert_eq!(headers.get(stripped), first);
            let short = headers.trim(stripped, 12);
            prop_assert_eq!(headers.get(short), &first[..12]);
            // The source has changed what was copied.
            let later = [&[0xff; 12][..], &bytes[12..]].concat();
            let long = headers.lengthen(short, &[Slice::from(&later[12..])], LONG_HEADERS);
            prop_assert_eq!(headers.get(long), &bytes[..bytes.len().min(LONG_HEADERS)]);
            let less = headers.take_out(long, 3, 8);
            prop_assert_eq!(headers.get(less), [&bytes[..3], &bytes[11..bytes.len().min(LONG_HEADERS)]].concat());
        }
    }
}
