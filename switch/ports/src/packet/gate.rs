//! How far a queue of a fan-out group has been read, and how far it may be read. Its reader and
//! moves of flows share this.
//!
//! Slots are counted from the opening of the queue on; the counts are called places. The reader is
//! the worker that owns the queue; a [`Fence`](super::fence::Fence) holds it back by the limit. Per
//! burst this costs the reader one locked store and five plain ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The slots of a ring, seen from outside.
pub(super) trait Slots: Send + Sync {
    /// Returns the number of slots.
    fn count(&self) -> u64;
    /// Whether the slot at a place is filled and not given back.
    fn is_filled(&self, place: u64) -> bool;
}

/// The progress and the limit of a queue's reader.
pub(super) struct Gate {
    slots: Arc<dyn Slots>,
    /// Places before this one were taken. Written by the reader.
    taken: AtomicU64,
    /// Places before this one were delivered and given back. Written by the reader.
    released: AtomicU64,
    /// The reader takes places before this one only. Written by the fence.
    limit: AtomicU64,
    /// Whether the reader is within a take.
    taking: AtomicBool,
    /// Whether the reader is giving back slots that `released` does not count yet.
    releasing: AtomicBool,
}

/// The limit of a queue that is not held.
const NONE: u64 = u64::MAX;

impl Gate {
    /// Creates the gate of a queue that is not held and that no frame was taken from.
    pub(super) fn new(slots: Arc<dyn Slots>) -> Gate {
        Gate {
            slots,
            taken: AtomicU64::new(0),
            released: AtomicU64::new(0),
            limit: AtomicU64::new(NONE),
            taking: AtomicBool::new(false),
            releasing: AtomicBool::new(false),
        }
    }

    /// Begins a take. Returns how many slots the reader may take. Must be followed by
    /// [`Gate::leave`].
    pub(super) fn enter(&self) -> u64 {
        // This store and the next load pair with the store and the load in `hold` and `is_stopped`:
        // at least one side sees the other, so a reader that the fence takes for stopped has seen
        // the limit.
        self.taking.store(true, Ordering::SeqCst);
        let limit = self.limit.load(Ordering::SeqCst);
        limit.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Whether this answer of [`Gate::enter`] is that of a queue that a fence holds.
    pub(super) fn is_limit(may_take: u64) -> bool {
        may_take < NONE / 2
    }

    /// Ends a take of `count` slots.
    pub(super) fn leave(&self, count: u64) {
        let taken = self.taken.load(Ordering::Relaxed) + count;
        self.taken.store(taken, Ordering::Release);
        self.taking.store(false, Ordering::Release);
    }

    /// Begins to give slots back after their delivery. Must be followed by [`Gate::release`].
    pub(super) fn begin_release(&self) {
        // Ordered before the given-back slots by the release stores of their status words.
        self.releasing.store(true, Ordering::Relaxed);
    }

    /// Ends giving back `count` slots.
    pub(super) fn release(&self, count: u64) {
        let released = self.released.load(Ordering::Relaxed) + count;
        self.released.store(released, Ordering::Release);
        self.releasing.store(false, Ordering::Release);
    }

    /// Whether the reader is giving slots back: the kernel may have refilled some of them, behind
    /// the slots that [`Gate::filled_end`] checks. If not, all slots filled now are found.
    pub(super) fn is_releasing(&self) -> bool {
        // Pairs with the last store of `release`, so that its count is seen as well. A thread that
        // sees a frame that came after one in a slot given back also sees the flag: the kernel
        // orders the two frames.
        self.releasing.load(Ordering::Acquire)
    }

    /// Whether the fence holds the reader back.
    pub(super) fn is_held(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != NONE
    }

    /// Stops the reader. Returns the places it has taken. In force once [`Gate::is_stopped`]
    /// returns `true`.
    pub(super) fn hold(&self) -> u64 {
        self.limit.store(0, Ordering::SeqCst);
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the reader has seen that it is held.
    pub(super) fn is_stopped(&self) -> bool {
        !self.taking.load(Ordering::SeqCst)
    }

    /// Lets the reader take up to a place; `None` removes the limit.
    pub(super) fn open(&self, end: Option<u64>) {
        self.limit.store(end.unwrap_or(NONE), Ordering::Release);
    }

    /// Whether all slots before a place were delivered.
    pub(super) fn has_passed(&self, place: u64) -> bool {
        self.released.load(Ordering::Acquire) >= place
    }

    /// Returns the number of slots up to which the ring may fill while the reader is held: an eighth
    /// is left for frames that arrive until the reader runs again.
    pub(super) fn most(&self) -> u64 {
        let count = self.slots.count();
        count - count / 8
    }

    /// Returns how many slots are filled, including those that the reader is delivering.
    pub(super) fn waiting(&self, processors: usize) -> u64 {
        let released = self.released.load(Ordering::Acquire);
        self.filled_end(processors).saturating_sub(released)
    }

    /// Whether [`Gate::most`] slots are filled. Reads one slot: they are filled in order.
    pub(super) fn is_nearly_full(&self) -> bool {
        let released = self.released.load(Ordering::Acquire);
        self.slots.is_filled(released + self.most().saturating_sub(1))
    }

    /// Returns a place behind all slots that are filled now. Slots in front of filled ones can
    /// still be empty: the kernel hands them out in order, and each processor may be filling one.
    /// So the search ends after `processors` empty ones.
    pub(super) fn filled_end(&self, processors: usize) -> u64 {
        let end = self.released.load(Ordering::Acquire) + self.slots.count();
        let start = self.taken.load(Ordering::Acquire);
        let (mut found, mut empty) = (start, 0);
        for place in start..end {
            if self.slots.is_filled(place) {
                found = place + 1;
            } else if place >= self.taken.load(Ordering::Acquire) {
                // Otherwise it was filled, and the reader has given it back since.
                empty += 1;
                if empty > processors {
                    break;
                }
            }
        }
        found
    }
}
