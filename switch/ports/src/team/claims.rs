//! Accepts one of the copies of a frame that arrive at several members.
//!
//! The switch outside floods a frame for a group, or for an address it has not learned, to every
//! member. The first member to receive a pair of source and destination *claims* it. Copies at
//! other members are dropped until the claim has rested for [`REST`]. So no frame is lost if a
//! member does not receive what others receive: behind a switch that snoops multicast, in its own
//! VLAN or fabric, or while it is silently dead. A fixed member for all such frames would miss
//! those.
//!
//! A pair is a slot of a table, chosen by a hash with a random key. Two pairs in one slot take it
//! from each other: then a copy may be taken twice, but a frame is never lost.

use super::age::AHEAD_MS;
use super::mask::{Mask, Place};
use crate::Nanos;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 4096;

/// How long a claim holds after its last frame. Copies of a frame arrive closer together than that.
pub(super) const REST: Nanos = Nanos(100 * Nanos::MILLISECOND.0);

/// Bits of a slot that hold the time in milliseconds; above them are the place and the pair's tag.
const TIME: u64 = (1 << 32) - 1;

pub(super) struct Claims {
    slots: Box<[AtomicU64]>,
    random: RandomState,
}

impl Claims {
    pub(super) fn new() -> Claims {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Claims { slots, random: RandomState::new() }
    }

    /// Returns the hash of a pair of addresses in a VLAN, for [`Claims::take`] and
    /// [`Claims::may_take`].
    pub(super) fn pair(&self, addresses: [u8; 12], vlan: u16) -> u64 {
        self.random.hash_one((addresses, vlan))
    }

    /// Claims the pair for a member, and replaces any claim before.
    pub(super) fn take(&self, pair: u64, place: Place, now: Nanos) {
        if let Some(slot) = self.slot(pair) {
            let word = word(pair, place, now);
            if slot.load(Relaxed) != word {
                slot.store(word, Relaxed);
            }
        }
    }

    /// Whether a member may accept a frame of the pair: it has the claim, or no other member that
    /// is alive had one lately.
    pub(super) fn may_take(&self, pair: u64, place: Place, alive: Mask, now: Nanos) -> bool {
        let Some(slot) = self.slot(pair) else { return true };
        let mine = word(pair, place, now);
        let mut found = slot.load(Relaxed);
        // If two members claim it in one moment, one wins. Another pair that takes the slot
        // meanwhile is no reason to refuse the frame.
        for _ in 0..2 {
            if is_held(found, mine, alive) {
                return false;
            }
            match slot.compare_exchange(found, mine, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => found = other,
            }
        }
        !is_held(found, mine, alive)
    }

    /// Whether another member that is alive has received frames of the pair lately.
    pub(super) fn is_elsewhere(&self, pair: u64, place: Place, alive: Mask, now: Nanos) -> bool {
        let found = self.slot(pair).map_or(0, |slot| slot.load(Relaxed));
        is_held(found, word(pair, place, now), alive)
    }

    #[allow(clippy::cast_possible_truncation, reason = "cut to the number of slots")]
    fn slot(&self, pair: u64) -> Option<&AtomicU64> {
        self.slots.get(pair as usize % SLOTS)
    }
}

/// Whether a word is another member's claim to the same pair, and has not rested.
fn is_held(found: u64, mine: u64, alive: Mask) -> bool {
    let holder = Place((found >> 32 & 7) as u8);
    let rested = (mine & TIME).wrapping_sub(found & TIME) & TIME;
    // The clock of the worker that claimed it may be ahead; then the time wraps.
    let is_ahead = rested > TIME - u64::from(AHEAD_MS);
    let is_other = found >> 32 & 7 != mine >> 32 & 7;
    let is_of_pair = found >> 35 == mine >> 35 && found != 0;
    is_of_pair && is_other && alive.has(holder) && (is_ahead || rested < millis(REST))
}

const fn millis(time: Nanos) -> u64 {
    time.0 / Nanos::MILLISECOND.0
}

fn word(pair: u64, place: Place, now: Nanos) -> u64 {
    (pair >> 35) << 35 | (place.index() as u64) << 32 | millis(now) & TIME
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: Mask = Mask(3);

    fn at(ms: u64) -> Nanos {
        Nanos(ms * Nanos::MILLISECOND.0)
    }

    proptest! {
        /// Frames of one pair, each with copies at some members in any order, no later than the
        /// claim rests. Each frame is taken at least once if the members that receive it stay the
        /// same, and never twice.
        #[test]
        fn of_all_copies_one_is_taken(
            frames in proptest::collection::vec((0u64..400, proptest::sample::subsequence(vec![0u8, 1, 2], 1..=3)), 1..20)
        ) {
            let claims = Claims::new();
            let pair = claims.pair([7; 12], 0);
            let mut now = 1000;
            for (gap, places) in frames {
                now += gap;
                let taken = places.iter().filter(|place| {
                    claims.may_take(pair, Place(**place), Mask(7), at(now))
                });
                let taken = taken.count();
                prop_assert!(taken <= 1);
                // All members receive it: the one with the claim takes it.
                prop_assert!(taken == 1 || places.len() < 3);
            }
        }
    }

    #[test]
    fn a_member_that_died_holds_no_claim() {
        let claims = Claims::new();
        let pair = claims.pair([7; 12], 0);
        assert!(claims.may_take(pair, Place(0), BOTH, at(5)));
        assert!(!claims.may_take(pair, Place(1), BOTH, at(5)));
        assert!(claims.may_take(pair, Place(1), Mask(2), at(5)));
    }

    /// Both members had the frame: the second one's worker had read its clock a millisecond
    /// earlier.
    #[test]
    fn a_clock_that_lags_takes_no_copy() {
        let claims = Claims::new();
        let pair = claims.pair([7; 12], 0);
        assert!(claims.may_take(pair, Place(0), BOTH, at(9)));
        assert!(!claims.may_take(pair, Place(1), BOTH, at(8)));
    }

    /// A claim of 25 to 50 days ago counted as one of a clock that is ahead: a pair that arrived
    /// only at the other member from then on was refused for weeks.
    #[test]
    fn an_old_claim_is_none_however_old_it_is() {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        for days in 1..49 {
            let claims = Claims::new();
            let pair = claims.pair([7; 12], 0);
            assert!(claims.may_take(pair, Place(0), BOTH, at(5)));
            assert!(claims.may_take(pair, Place(1), BOTH, at(5 + days * DAY_MS)), "{days} days");
        }
    }

    #[test]
    fn a_member_that_gets_no_more_loses_its_claim() {
        let claims = Claims::new();
        let pair = claims.pair([7; 12], 0);
        assert!(claims.may_take(pair, Place(0), BOTH, at(5)));
        assert!(!claims.may_take(pair, Place(1), BOTH, at(104)));
        assert!(claims.may_take(pair, Place(1), BOTH, at(105)));
        assert!(!claims.may_take(pair, Place(0), BOTH, at(106)));
    }

    #[test]
    fn pairs_do_not_stand_in_each_others_way() {
        let claims = Claims::new();
        for byte in 0..=255 {
            assert!(claims.may_take(claims.pair([byte; 12], 0), Place(byte % 2), BOTH, at(9)));
        }
    }
}
