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

/// Fixed, open addressing, emptied by counting rounds.
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

    /// The train of a flow, to be read or replaced. A flow that is not there is added with train `new`, unless `limit`
    /// flows are: then `Err`. `Ok((train, true))`: it was added.
    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    pub(crate) fn find_or_add(
        &mut self,
        key: &FlowKey,
        limit: u8,
        new: u16,
    ) -> Result<(&mut u16, bool), ()> {
        let start = (key.hash(self.seed) >> 48) as usize;
        let round = self.round;
        let taken = |place: &Place| place.round == round;
        let at = (0..PLACES)
            .map(|step| (start + step) % PLACES)
            .find(|at| self.places.get(*at).is_some_and(|place| !taken(place) || place.key == *key))
            .ok_or(())?;
        let place = self.places.get_mut(at).ok_or(())?;
        let added = place.round != round;
        if added {
            if self.count >= limit {
                return Err(());
            }
            self.count += 1;
            *place = Place { round, train: new, key: *key };
        }
        Ok((&mut place.train, added))
    }

    /// The train of a flow, if it is known.
    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u16> {
        let start = (key.hash(self.seed) >> 48) as usize;
        (0..PLACES)
            .filter_map(|step| self.places.get((start + step) % PLACES))
            .take_while(|place| place.round == self.round)
            .find(|place| place.key == *key)
            .map(|place| place.train)
    }
}
