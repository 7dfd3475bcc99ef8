//! The open trains of one egress queue in one turn, found by flow.

use super::candidate::FlowKey;

/// Places in the table: twice the most flows, so that a search is short.
const PLACES: usize = 256;

#[derive(Clone, Copy, Default)]
struct Place {
    /// The round in which it was written; from another round it is free.
    round: u32,
    train: u16,
    key: FlowKey,
}

/// A hash table of fixed size with open addressing, emptied by counting rounds.
pub(crate) struct Flows {
    places: Box<[Place; PLACES]>,
    round: u32,
    count: u8,
    seed: u64,
}

impl Flows {
    pub(crate) fn new(seed: u64) -> Flows {
        Flows { places: Box::new([Place::default(); PLACES]), round: 0, count: 0, seed }
    }

    /// Forgets all flows.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            *self.places = [Place::default(); PLACES];
            self.round = 1;
        }
    }

    /// Returns the train of a flow, to be read or replaced, and whether it was added. An unknown
    /// flow is added with train `new`.
    ///
    /// # Errors
    ///
    /// Fails if the flow is unknown and there are `limit` flows.
    pub(crate) fn find_or_add(
        &mut self,
        key: &FlowKey,
        limit: u8,
        new: u16,
    ) -> Result<(&mut u16, bool), ()> {
        let place = self.search(key).and_then(|at| self.places.get_mut(at)).ok_or(())?;
        let added = place.round != self.round;
        if added {
            if self.count >= limit {
                return Err(());
            }
            self.count += 1;
            *place = Place { round: self.round, train: new, key: *key };
        }
        Ok((&mut place.train, added))
    }

    /// Returns the train of a flow, if it is known.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u16> {
        let place = self.search(key).and_then(|at| self.places.get(at))?;
        (place.round == self.round).then_some(place.train)
    }

    /// Returns the place of a flow, or else the first free place where it would be.
    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    fn search(&self, key: &FlowKey) -> Option<usize> {
        let start = (key.hash(self.seed) >> 48) as usize;
        let fits = |place: &Place| place.round != self.round || place.key == *key;
        let mut places = (0..PLACES).map(|step| (start + step) % PLACES);
        places.find(|at| self.places.get(*at).is_some_and(fits))
    }
}
