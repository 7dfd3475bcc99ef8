//! The destinations of a turn's frames: a list per egress queue.

use crate::counters::DropReason;
use crate::port::view::Port;
use crate::settings::PortId;
use ports::Burst;
use std::collections::VecDeque;
use std::ops::Range;

/// Frames next to each other in the turn that go to one egress queue: usually all of them.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Places among the turn's frames: the first, and one past the last.
    first: u16,
    end: u16,
    /// Why they go there.
    pub(crate) cause: Cause,
}

/// Why a frame goes to a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its destination is behind the port.
    Addressed,
    /// Its destination is a group, or unknown.
    Flooded,
    /// The port mirrors another.
    Mirrored,
}

impl Run {
    /// Makes a run of `count` frames from `first` on.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a burst has 256 frames")]
    pub(crate) fn new(first: usize, count: usize, cause: Cause) -> Run {
        Run { first: first as u16, end: (first + count) as u16, cause }
    }

    /// Returns the number of frames.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.places().len()
    }

    #[inline]
    pub(crate) fn places(&self) -> Range<usize> {
        self.first.into()..self.end.into()
    }
}

/// One list for each egress queue of the view, and which of them are not empty. The list that was
/// touched first is taken first: if a flow changes its queue during a turn, the old queue mostly
/// gets its frames first.
#[derive(Default)]
pub(crate) struct Outbox {
    lists: Vec<Vec<Run>>,
    touched: VecDeque<Target>,
    /// Places of the frames that go nowhere, with the reasons.
    refused: Vec<(u16, DropReason)>,
}

/// An egress queue: its place in the outbox, its port and its number there.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) slot: usize,
    pub(crate) port: PortId,
    pub(crate) queue: usize,
}

impl Target {
    /// Returns a port's first queue, whatever the frame.
    pub(crate) fn first(port: &Port) -> Target {
        Target::nth(port, 0)
    }

    /// Returns a port's queue of this number.
    pub(crate) fn nth(port: &Port, queue: usize) -> Target {
        Target { slot: port.slot + queue, port: port.shared.id, queue }
    }

    /// Returns the sole queue in use of a port; `None` if there are several.
    pub(crate) fn sole(port: &Port) -> Option<Target> {
        let shared = &port.shared;
        let is_sole = shared.egress.len() < 2 || shared.queues_in_use() < 2;
        is_sole.then(|| Target::first(port))
    }
}

impl Outbox {
    /// Makes room for a view's queues.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.lists.resize_with(slots, Vec::new);
        self.touched.reserve(slots);
        self.refused.reserve(Burst::FRAMES);
    }

    /// Notes that the frame at a place goes nowhere.
    #[cold]
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "a burst has 256 frames")]
    pub(crate) fn refuse(&mut self, place: usize, reason: DropReason) {
        self.refused.push((place as u16, reason));
    }

    /// Takes the frames that go nowhere.
    pub(crate) fn take_refused(&mut self) -> impl Iterator<Item = (usize, DropReason)> {
        self.refused.drain(..).map(|(place, reason)| (place.into(), reason))
    }

    /// Adds frames behind those that are there already.
    #[inline]
    pub(crate) fn push(&mut self, target: Target, run: Run) {
        let Some(list) = self.lists.get_mut(target.slot) else { return };
        if list.is_empty() {
            self.touched.push_back(target);
        }
        append(list, run);
    }

    /// Takes out a list that is not empty; give it back with [`Outbox::put_back`].
    pub(crate) fn take(&mut self) -> Option<(Target, Vec<Run>)> {
        let target = self.touched.pop_front()?;
        let list = self.lists.get_mut(target.slot).map(std::mem::take)?;
        Some((target, list))
    }

    /// Keeps the allocation of a list that was delivered.
    pub(crate) fn put_back(&mut self, target: Target, mut list: Vec<Run>) {
        list.clear();
        if let Some(place) = self.lists.get_mut(target.slot) {
            *place = list;
        }
    }
}

/// Adds frames to a list, to its last run where they follow it.
#[inline]
pub(crate) fn append(list: &mut Vec<Run>, run: Run) {
    match list.last_mut() {
        Some(last) if last.end == run.first && last.cause == run.cause => last.end = run.end,
        _ => list.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list touched last was delivered first.
    #[test]
    fn lists_are_taken_in_the_order_they_were_touched() {
        let mut outbox = Outbox::default();
        outbox.resize(4);
        for slot in [2, 0, 2, 3] {
            let target = Target { slot, port: PortId(0), queue: slot };
            outbox.push(target, Run::new(slot, 1, Cause::Addressed));
        }
        let taken: Vec<_> = std::iter::from_fn(|| outbox.take()).collect();
        let counts: Vec<_> = taken.iter().map(|(target, list)| (target.slot, list.len())).collect();
        assert_eq!(counts, [(2, 2), (0, 1), (3, 1)]);
    }
}
