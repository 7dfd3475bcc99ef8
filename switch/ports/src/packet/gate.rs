//! How far a queue of a fan-out group has been read, and how far it may be read: shared by its
//! reader and moves of flows.
//!
//! Slots are counted from the opening of the queue on, and called places. The reader is the worker
//! that owns the queue; a [`Fence`](super::fence::Fence) holds it back by the limit. Per burst this
//! costs the reader one locked store and five plain ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The slots of a ring, looked at from outside.
pub(super) trait Slots: Send + Sync {
    /// How many there are.
    fn count(&self) -> u64;
    /// Whether the slot at a place is filled and not given back.
    fn is_filled(&self, place: u64) -> bool;
}

/// See the module.
pub(super) struct Gate {
    slots: Arc<dyn Slots>,
    /// Places before this one were taken. Written by the reader.
    taken: AtomicU64,
    /// Places before this one were delivered and given back. Written by the reader.
    released: AtomicU64,
    /// The reader takes places before this one only. Written by the fence.
    limit: AtomicU64,
    /// The reader is within a take.
    taking: AtomicBool,
    /// The reader is giving slots back, which `released` does not count yet.
    releasing: AtomicBool,
}

/// The limit of a queue that is not held.
const NONE: u64 = u64::MAX;

impl Gate {
    /// A queue that nothing was taken from and that is not held.
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

    /// The reader begins to take: how many slots it may. To be followed by [`Gate::leave`].
    pub(super) fn enter(&self) -> u64 {
        // This store and the next load pair with the store and the load in `hold` and `is_stopped`:
        // at least one side sees the other, so a reader that the fence takes for stopped has seen
        // the limit.
        self.taking.store(true, Ordering::SeqCst);
        let limit = self.limit.load(Ordering::SeqCst);
        limit.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// The reader has taken so many.
    pub(super) fn leave(&self, count: u64) {
        let taken = self.taken.load(Ordering::Relaxed) + count;
        self.taken.store(taken, Ordering::Release);
        self.taking.store(false, Ordering::Release);
    }

    /// The reader has delivered what it took and begins to give it back. To be followed by
    /// [`Gate::release`].
    pub(super) fn begin_release(&self) {
        // Ordered before the slots that are given back, whose stores release.
        self.releasing.store(true, Ordering::Relaxed);
    }

    /// The reader has given so many back.
    pub(super) fn release(&self, count: u64) {
        let released = self.released.load(Ordering::Relaxed) + count;
        self.released.store(released, Ordering::Release);
        self.releasing.store(false, Ordering::Release);
    }

    /// Whether the reader is giving slots back: the kernel may have filled some of them anew,
    /// behind those that [`Gate::filled_end`] looks at. If not, what is filled now is found.
    pub(super) fn is_releasing(&self) -> bool {
        // Pairs with the last store of `release`, so that its count is seen as well. And who sees a
        // frame that came after one in a slot given back sees the flag: the kernel orders the two
        // frames.
        self.releasing.load(Ordering::Acquire)
    }

    /// Whether the fence holds the reader back.
    pub(super) fn is_held(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != NONE
    }

    /// Has the reader take nothing; the places it has taken. In force once [`Gate::is_stopped`].
    pub(super) fn hold(&self) -> u64 {
        self.limit.store(0, Ordering::SeqCst);
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the reader has seen that it is held.
    pub(super) fn is_stopped(&self) -> bool {
        !self.taking.load(Ordering::SeqCst)
    }

    /// Lets the reader take up to a place; `None`: all.
    pub(super) fn open(&self, end: Option<u64>) {
        self.limit.store(end.unwrap_or(NONE), Ordering::Release);
    }

    /// Whether all before a place was delivered.
    pub(super) fn has_passed(&self, place: u64) -> bool {
        self.released.load(Ordering::Acquire) >= place
    }

    /// A place behind all that are filled now. Slots in front of filled ones can be empty still:
    /// the kernel hands them out in order, and on each processor one may be in the making. So the
    /// search ends after `processors` empty ones.
    pub(super) fn filled_end(&self, processors: usize) -> u64 {
        let end = self.released.load(Ordering::Acquire) + self.slots.count();
        let start = self.taken.load(Ordering::Acquire);
        let (mut found, mut empty) = (start, 0);
        for place in start..end {
            if self.slots.is_filled(place) {
                found = place + 1;
            } else if place >= self.taken.load(Ordering::Acquire) {
                // Otherwise it was filled, and the reader has given it back meanwhile.
                empty += 1;
                if empty > processors {
                    break;
                }
            }
        }
        found
    }
}
