//! The state of a port's steering, which outlives a change of its settings: the indirection table,
//! the hash key, and the flows that it has sent.
//!
//! The control plane stores the table entry by entry, and all workers read it, without a new view.

use crate::port::followed::{Followed, Seed};
use ports::steering::{ENTRIES, random_key};
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use wire::toeplitz::Key;

/// The part of a port's steering that outlives a change of its settings.
pub(crate) struct Steering {
    /// The queue of each entry.
    table: [AtomicU8; ENTRIES],
    /// The Toeplitz key for settings without one.
    pub(crate) key: Key,
    pub(crate) seed: Seed,
    /// Made when the port first follows.
    pub(crate) followed: OnceLock<Followed>,
}

impl Steering {
    /// Draws the keys at random, and makes entries that name `queues` in turn.
    #[allow(clippy::cast_possible_truncation, reason = "entries name the first 128 queues")]
    pub(crate) fn new(queues: usize) -> Steering {
        let random = RandomState::new();
        Steering {
            table: std::array::from_fn(|entry| AtomicU8::new((entry % queues.max(1)) as u8)),
            key: random_key(),
            seed: [0, 1, 2].map(|place| random.hash_one(place)),
            followed: OnceLock::new(),
        }
    }

    /// Makes an entry name a queue; the next frame goes by it.
    #[allow(clippy::cast_possible_truncation, reason = "a queue beyond 255 is no port's")]
    pub(crate) fn set(&self, entry: usize, queue: usize) {
        self.table.get(entry).into_iter().for_each(|place| place.store(queue as u8, Relaxed));
    }

    /// Returns the queue that each entry names.
    pub(crate) fn named(&self) -> [u8; ENTRIES] {
        self.table.each_ref().map(|queue| queue.load(Relaxed))
    }

    /// Returns the queue of an entry when `in_use` queues are in use. An entry that names an unused
    /// queue goes to its own number modulo `in_use`, which spreads such entries evenly.
    #[inline]
    pub(crate) fn queue(&self, entry: usize, in_use: usize) -> usize {
        let named = self.table.get(entry).map_or(0, |queue| queue.load(Relaxed)).into();
        if named < in_use { named } else { entry % in_use.max(1) }
    }
}
