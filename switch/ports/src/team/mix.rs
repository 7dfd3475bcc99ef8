//! A hash of single words with a random key, for tables with one look-up a frame.
//!
//! Multiplying by a random number alone would put consecutive addresses, which guests often have,
//! into few slots.

use std::hash::{BuildHasher, RandomState};

/// The key of one table.
pub(super) struct Mix([u64; 2]);

impl Mix {
    pub(super) fn new() -> Mix {
        let random = RandomState::new();
        Mix([0, 1].map(|place| random.hash_one(place)))
    }

    /// Returns a hash in which every bit depends on every bit of the word. The steps are those of
    /// SplitMix64 (Steele, Lea, Flood 2014), with the key before each.
    #[inline]
    pub(super) fn hash(&self, word: u64) -> u64 {
        let [first, second] = self.0;
        let mut hash = word ^ first;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ second;
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few of 256 words, consecutive or apart by any step, share one of 4096 slots. By chance 8
        /// do once in 10^15.
        #[test]
        fn words_in_a_row_are_spread(start: u64, step in 1u64..1 << 48) {
            let (mix, mut slots) = (Mix::new(), std::collections::HashMap::new());
            for place in 0..256u64 {
                let hash = mix.hash(start.wrapping_add(place.wrapping_mul(step)));
                *slots.entry(hash % 4096).or_insert(0) += 1;
            }
            prop_assert!(slots.values().all(|count| *count < 8));
        }
    }
}
