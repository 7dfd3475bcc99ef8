//! What a worker sees of flows. The stages call it; without a table it does nothing.

use super::FlowCounts;
use super::key::Key;
pub(crate) use super::key::Way;
use super::sampler::Sampler;
use super::sequence::Range;
use super::table::FlowTable;
use crate::counters::DropReason;
use ports::{Nanos, Outgoing};
use wire::vnet::GsoType;

/// A worker's look at flows.
pub(crate) struct Watch {
    table: Option<FlowTable>,
    delivered: Sampler,
    dropped: Sampler,
}

/// A frame that is dropped: the first bytes, the length, and the reason.
pub(crate) type Dropped<'h> = (&'h [u8], u32, DropReason);

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { table: None, delivered: Sampler::new(), dropped: Sampler::new() }
    }

    /// Uses this table from now on. Returns the one before.
    pub(crate) fn exchange(&mut self, mut table: Option<FlowTable>) -> Option<FlowTable> {
        if let (Some(next), Some(last)) = (&mut table, &self.table) {
            next.follow(last);
        }
        std::mem::replace(&mut self.table, table)
    }

    /// Whether there is a table.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.table.is_some()
    }

    /// Looks at frames that are to be delivered.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, frames: &[Outgoing<'_>], way: Way<'_>, now: Nanos) {
        if let Some(table) = &mut self.table
            && !self.delivered.passes_over(frames.len(), now)
        {
            look(&mut self.delivered, table, frames, way);
        }
    }

    /// Looks at so many frames that are dropped.
    #[inline]
    pub(crate) fn drop<'h>(
        &mut self,
        frames: impl Iterator<Item = Dropped<'h>>,
        count: usize,
        way: Way<'_>,
        now: Nanos,
    ) {
        if let Some(table) = &mut self.table
            && !self.dropped.passes_over(count, now)
        {
            look_at_drops(&mut self.dropped, table, frames, count, way);
        }
    }

    /// Looks at one frame that is dropped.
    #[inline]
    pub(crate) fn drop_one(&mut self, frame: Dropped<'_>, way: Way<'_>, now: Nanos) {
        self.drop(std::iter::once(frame), 1, way, now);
    }
}

#[inline(never)]
fn look(sampler: &mut Sampler, table: &mut FlowTable, mut frames: &[Outgoing<'_>], way: Way<'_>) {
    while let Some((skipped, weight)) = sampler.next(frames.len()) {
        let Some(([.., frame], rest)) = frames.split_at_checked(skipped + 1) else { return };
        frames = rest;
        if let Some((key, parsed)) = Key::read(frame.header, frame.len, way, None) {
            let range = Range::read(frame.header, &parsed);
            table.add(&key, &counts(frame, weight), range);
        }
    }
}

#[inline(never)]
fn look_at_drops<'h>(
    sampler: &mut Sampler,
    table: &mut FlowTable,
    mut frames: impl Iterator<Item = Dropped<'h>>,
    mut left: usize,
    way: Way<'_>,
) {
    while let Some((skipped, weight)) = sampler.next(left) {
        let Some((header, len, reason)) = frames.nth(skipped) else { return };
        left -= skipped + 1;
        let bytes = weight * u64::from(len);
        let counts = FlowCounts { frames: weight, bytes, segments: weight, resent: 0, sampled: 1 };
        if let Some((key, _)) = Key::read(header, len, way, Some(reason)) {
            table.add_dropped(&key, &counts);
        }
    }
}

/// Returns what a frame counts that stands for so many.
fn counts(frame: &Outgoing<'_>, weight: u64) -> FlowCounts {
    #[allow(clippy::cast_possible_truncation, reason = "a header has at most 64 KiB")]
    let payload = frame.len.saturating_sub(frame.header.len() as u32);
    let segments = match frame.vnet.gso() {
        GsoType::None => 1,
        _ => frame.vnet.segments_of(payload),
    };
    FlowCounts {
        frames: weight,
        bytes: weight * u64::from(frame.len),
        segments: weight * segments,
        resent: 0,
        sampled: 1,
    }
}
