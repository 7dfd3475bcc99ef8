//! A worker's table of flows, of fixed size: a new flow takes the place of the smallest of its set,
//! so that what is large stays.

use super::sequence::{Range, Sequence};
use super::{FlowCounts, Key, SeenFlow};
use std::hash::{BuildHasher, RandomState};

/// Sets for flows, and sets for drops: neither can push the other out.
const SETS: usize = 256;
const DROP_SETS: usize = 64;
/// Places of a set.
const WAYS: usize = 4;

/// A flow and what was seen of it since the table was taken last; without frames, free.
#[derive(Clone, Copy, Default)]
struct Place {
    key: Key,
    counts: FlowCounts,
    /// Goes on from table to table.
    sequence: Sequence,
}

type Set = [Place; WAYS];

/// The flows that a worker has seen since the control plane took the table last: 1,024 that were
/// delivered and 256 that were dropped, in 144 KB.
pub(crate) struct FlowTable {
    seed: u64,
    sets: Box<[Set]>,
    dropped: Box<[Set]>,
    /// What was seen of flows that had to make room.
    others: FlowCounts,
}

impl Default for FlowTable {
    fn default() -> FlowTable {
        let sets = |count| vec![Set::default(); count].into_boxed_slice();
        FlowTable {
            seed: RandomState::new().hash_one(0),
            sets: sets(SETS),
            dropped: sets(DROP_SETS),
            others: FlowCounts::default(),
        }
    }
}

impl FlowTable {
    pub(super) fn add(&mut self, key: &Key, counts: &FlowCounts, range: Option<Range>) {
        let (seed, others) = (self.seed, &mut self.others);
        let Some(place) = add(&mut self.sets, key, seed, counts, others) else { return };
        if let Some(range) = range
            && place.sequence.came_before(range)
        {
            place.counts.resent += counts.frames;
        }
    }

    /// Remembers the sequence numbers of the flows of the table before, which has counted them.
    pub(super) fn follow(&mut self, last: &FlowTable) {
        self.seed = last.seed;
        for (place, last) in self.sets.iter_mut().flatten().zip(last.sets.iter().flatten()) {
            *place = Place { counts: FlowCounts::default(), ..*last };
        }
    }

    /// Adds what was dropped. What had to make room is not told: its frames were no traffic.
    pub(super) fn add_dropped(&mut self, key: &Key, counts: &FlowCounts) {
        add(&mut self.dropped, key, self.seed, counts, &mut FlowCounts::default());
    }

    /// Returns what was seen of flows that had to make room.
    pub(crate) fn others(&self) -> FlowCounts {
        self.others
    }

    /// Returns all flows, in no order.
    pub(crate) fn flows(&self) -> impl Iterator<Item = SeenFlow> {
        let places = self.sets.iter().chain(&*self.dropped).flatten();
        places.filter(|place| place.counts.sampled > 0).map(|place| {
            let (flow, dropped) = place.key.flow();
            SeenFlow { flow, dropped, counts: place.counts }
        })
    }

    /// Empties the table, and touches all of it, so that the worker that uses it next does not.
    pub(crate) fn clear(&mut self) {
        self.sets.iter_mut().chain(&mut self.dropped).for_each(|set| *set = Set::default());
        self.others = FlowCounts::default();
    }
}

/// Adds to the flow's place, which may be new. Returns it.
fn add<'s>(
    sets: &'s mut [Set],
    key: &Key,
    seed: u64,
    counts: &FlowCounts,
    others: &mut FlowCounts,
) -> Option<&'s mut Place> {
    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    let number = key.hash(seed) as usize % sets.len().max(1);
    let set = sets.get_mut(number)?;
    if let Some(place) = set.iter().position(|place| place.key == *key) {
        let place = set.get_mut(place)?;
        place.counts.add(counts);
        return Some(place);
    }
    let smallest = set.iter_mut().min_by_key(|place| place.counts.bytes)?;
    others.add(&smallest.counts);
    *smallest = Place { key: *key, counts: *counts, sequence: Sequence::default() };
    Some(smallest)
}
