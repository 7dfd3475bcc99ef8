//! When an address last sent through the team in a VLAN. A frame from it at a member right after
//! that is its own frame, sent back by the physical switch.
//!
//! Separate from [`HomeMembers`](super::home_members::HomeMembers), because each VLAN has its own
//! stations: one address may be a guest's in one VLAN and an outside router's in another, as VRRP
//! addresses are.

use super::age::has_passed;
use super::mix::Mix;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::Mac;

/// Milliseconds after a send during which a frame received from the same address counts as
/// reflected. A guest that moves to another host is silent for longer than this during the move, so
/// its first frame from there is not mistaken for a reflection.
pub(super) const REFLECTION_MS: u32 = 50;

/// The table is set-associative: sets, and entries in each. It holds some 5000 pairs at a time.
const SETS: usize = 1024;
const WAYS: usize = 8;

/// An entry is the upper half of a pair's hash, then milliseconds; 0 is free.
pub(super) struct Sent {
    entries: Box<[AtomicU64]>,
    mix: Mix,
}

impl Sent {
    pub(super) fn new() -> Sent {
        Sent { entries: (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect(), mix: Mix::new() }
    }

    /// Records that the address sends in the VLAN now. Does nothing if its set is full of pairs
    /// that sent just now, so that many addresses cannot push out recent ones.
    #[inline]
    pub(super) fn note(&self, mac: Mac, vlan: u16, now_ms: u32) {
        let (tag, set) = self.set(mac.to_u64(), vlan);
        let entry = tag | u64::from(now_ms);
        let has_tag = |word: &&AtomicU64| is_of(word.load(Relaxed), tag);
        match set.iter().find(has_tag) {
            Some(word) if word.load(Relaxed) == entry => {}
            Some(word) => word.store(entry, Relaxed),
            None => insert(set, entry, now_ms),
        }
    }

    /// Whether the address has sent in the VLAN just now.
    #[inline]
    pub(super) fn is_recent(&self, mac: u64, vlan: u16, now_ms: u32) -> bool {
        let (tag, set) = self.set(mac, vlan);
        let mut words = set.iter().map(|word| word.load(Relaxed));
        words.any(|word| is_of(word, tag) && is_recent(age(word, now_ms)))
    }

    /// Whether the pair's set is full of pairs that sent just now. [`note`](Self::note) would not
    /// have recorded this pair then, so it may have sent too.
    #[cold]
    pub(super) fn is_crowded(&self, mac: u64, vlan: u16, now_ms: u32) -> bool {
        let (_, set) = self.set(mac, vlan);
        let words = || set.iter().map(|word| word.load(Relaxed));
        words().all(|word| word != 0 && is_recent(age(word, now_ms)))
    }

    /// Returns the tag of a pair, in the upper half of a word, and its set.
    #[allow(clippy::cast_possible_truncation, reason = "cut to the number of sets")]
    fn set(&self, mac: u64, vlan: u16) -> (u64, &[AtomicU64]) {
        let hash = self.mix.hash(mac << 16 | u64::from(vlan));
        let start = hash as usize % SETS * WAYS;
        // Not 0, which is free.
        let tag = (hash >> 32 | 1) << 32;
        (tag, self.entries.get(start..start + WAYS).unwrap_or_default())
    }
}

/// Inserts an entry. Two workers may insert one pair at once: then it has two entries, and either
/// will do.
#[cold]
fn insert(set: &[AtomicU64], entry: u64, now_ms: u32) {
    let rest = |word: &&AtomicU64| match word.load(Relaxed) {
        0 => u32::MAX,
        found => Some(age(found, now_ms)).filter(|age| !is_recent(*age)).unwrap_or(0),
    };
    // The oldest entry.
    if let Some(word) = set.iter().max_by_key(rest)
        && rest(&word) > 0
    {
        word.store(entry, Relaxed);
    }
}

fn is_of(word: u64, tag: u64) -> bool {
    word >> 32 == tag >> 32
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is the time")]
fn age(word: u64, now_ms: u32) -> u32 {
    now_ms.wrapping_sub(word as u32)
}

/// Whether a send this many milliseconds ago is recent.
fn is_recent(age: u32) -> bool {
    !has_passed(age, REFLECTION_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mac(number: u64) -> Mac {
        Mac::from_u64(0x0200_0000_0000 + number)
    }

    proptest! {
        /// In any order of sends: recent is an address that sent in that VLAN in the last 50 ms, by
        /// a clock that may lag.
        #[test]
        fn what_sent_lately_is_recent_in_its_vlan_alone(
            sends in proptest::collection::vec((0u64..20, 0u16..3, 0u32..40), 1..100),
            start: u32,
            lag in 0u32..5,
        ) {
            let (sent, mut last) = (Sent::new(), std::collections::HashMap::new());
            let mut now = start;
            for (number, vlan, gap) in sends {
                now = now.wrapping_add(gap);
                sent.note(mac(number), vlan, now);
                last.insert((number, vlan), now);
                for pair in (0..20).flat_map(|number| [0, 1, 2].map(|vlan| (number, vlan))) {
                    let is_recent = sent.is_recent(mac(pair.0).to_u64(), pair.1, now.wrapping_sub(lag));
                    let wanted = last.get(&pair).is_some_and(|then| now.wrapping_sub(*then) < REFLECTION_MS + lag);
                    prop_assert_eq!(is_recent, wanted, "{:?}", pair);
                }
            }
        }
    }

    /// A guest that may send under any address must not erase when others sent.
    #[test]
    fn addresses_by_the_million_push_out_none_that_sent_just_now() {
        let sent = Sent::new();
        let known: Vec<Mac> = (0..200).map(mac).collect();
        known.iter().for_each(|known| sent.note(*known, 0, 1000));
        (1000..1_000_000).for_each(|number| sent.note(mac(number), 0, 1049));
        assert!(known.iter().all(|known| sent.is_recent(known.to_u64(), 0, 1049)));
        // New ones find room again once the others are silent.
        known.iter().for_each(|known| sent.note(*known, 7, 1099));
        assert!(known.iter().all(|known| sent.is_recent(known.to_u64(), 7, 1100)));
    }
}
