//! The parts of a turn's frames: private header bytes and lent payload slices; each frame is a
//! range of both.

use crate::frame::headers::{Headers, nothing};
use ports::{Burst, Slice, recycle};
use std::ops::Range;

/// A range in the turn's pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PieceRange {
    start: u32,
    count: u32,
}

impl PieceRange {
    /// Returns the range from the first of these pieces to the last of `last`.
    pub(crate) fn to(self, last: PieceRange) -> PieceRange {
        PieceRange { start: self.start, count: last.start + last.count - self.start }
    }

    #[inline]
    pub(crate) fn of<'p, 'q>(self, pieces: &'p [Slice<'q>]) -> &'p [Slice<'q>] {
        pieces.get(self.range()).unwrap_or_else(nothing)
    }

    #[inline]
    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.count as usize
    }
}

/// The private header bytes and lent payload of a turn. They are filled when the burst is read; the
/// delivery to each egress queue adds its own and removes them again.
#[derive(Default)]
pub(crate) struct Parts<'q> {
    pub(crate) headers: Headers,
    pub(crate) pieces: Vec<Slice<'q>>,
    /// The work of checksums that were finished when the burst was read.
    pub(crate) work: u64,
}

/// A fill level of a turn's parts, to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    headers: usize,
    pieces: usize,
}

impl<'q> Parts<'q> {
    /// Makes room for most turns.
    pub(crate) fn new() -> Parts<'q> {
        Parts {
            headers: Headers::with_capacity(128 * 1024),
            pieces: Vec::with_capacity(4 * Burst::FRAMES),
            work: 0,
        }
    }

    /// Empties the parts, for a turn with other loans.
    pub(crate) fn recycle<'next>(mut self) -> Parts<'next> {
        self.headers.used = 0;
        Parts { headers: self.headers, pieces: recycle(self.pieces), work: 0 }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { headers: self.headers.used, pieces: self.pieces.len() }
    }

    /// Takes away what came after a mark.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.headers.used = mark.headers;
        self.pieces.truncate(mark.pieces);
    }

    /// Removes the newest pieces.
    pub(crate) fn remove_newest(&mut self, newest: PieceRange) {
        self.pieces.truncate(newest.start as usize);
    }

    /// Returns the pieces from `start` to the last.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a turn has far less than 4 G pieces")]
    pub(crate) fn since(&self, start: usize) -> PieceRange {
        PieceRange { start: start as u32, count: (self.pieces.len() - start) as u32 }
    }

    #[inline]
    pub(crate) fn slices(&self, range: PieceRange) -> &[Slice<'q>] {
        range.of(&self.pieces)
    }

    /// Adds pieces that are there already once more, at the end.
    #[inline]
    pub(crate) fn push_again(&mut self, range: PieceRange) {
        match self.slices(range) {
            [piece] => self.pieces.push(*piece),
            _ => self.pieces.extend_from_within(range.range()),
        }
    }
}
