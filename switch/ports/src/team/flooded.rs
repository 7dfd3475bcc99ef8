//! Frames for a team's address that were accepted at a member other than its home, because the
//! physical switch has not learned the address. The copy that arrives at home is the same frame.
//!
//! Elsewhere copies are recognised by their addresses ([`Claims`](super::claims::Claims)), which is
//! enough where all frames of a pair are flooded alike. That does not hold for a frame for one of
//! our addresses: as soon as the switch has learned it, frames arrive only at its home, right
//! behind the flooded ones, and none of them may be lost. So here a frame is recognised by its
//! bytes.

use super::age::has_passed;
use crate::Slice;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sets of slots, and slots of a set: enough for a burst of frames and more.
const SETS: usize = 256;
const WAYS: usize = 4;

/// How long a copy is expected, in milliseconds: as long as a claim rests.
const REST_MS: u32 = 100;

/// Bytes of a frame that are hashed: headers, including the fields that distinguish datagrams and
/// segments.
const BYTES: usize = 128;

/// A slot is the upper half of a frame's hash, then milliseconds; 0 is free. If more frames of a
/// set expect copies than it has slots, one is forgotten and its copy accepted.
pub(super) struct Flooded {
    slots: Box<[AtomicU64]>,
    random: RandomState,
}

impl Flooded {
    pub(super) fn new() -> Flooded {
        let slots = (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect();
        Flooded { slots, random: RandomState::new() }
    }

    /// Notes a frame that was accepted at a member other than its home.
    #[cold]
    pub(super) fn note(&self, slices: &[Slice<'_>], now_ms: u32) {
        let hash = self.hash(slices);
        let word = hash >> 32 << 32 | u64::from(now_ms);
        let set = self.set(hash);
        let is_free = |slot: &&AtomicU64| !is_fresh(slot.load(Relaxed), now_ms);
        if let Some(slot) = set.iter().find(is_free).or(set.first()) {
            slot.store(word, Relaxed);
        }
    }

    /// Whether the frame was accepted lately at a member other than its home. Forgets the frame:
    /// the next equal one is another.
    #[cold]
    pub(super) fn has_taken(&self, slices: &[Slice<'_>], now_ms: u32) -> bool {
        let hash = self.hash(slices);
        self.set(hash).iter().any(|slot| {
            let word = slot.load(Relaxed);
            word >> 32 == hash >> 32
                && is_fresh(word, now_ms)
                && slot.compare_exchange(word, 0, Relaxed, Relaxed).is_ok()
        })
    }

    /// Hashes the packet and its length without the Ethernet header: one device leaves a tag in it
    /// that another takes out.
    fn hash(&self, slices: &[Slice<'_>]) -> u64 {
        let mut bytes = [0; BYTES];
        let mut len = 0;
        for slice in slices {
            len += slice.copy_to(bytes.get_mut(len..).unwrap_or_default());
        }
        let is_tagged = bytes.get(12..14) == Some(&[0x81, 0]);
        let header = if is_tagged { 18 } else { 14 };
        let total: usize = slices.iter().map(Slice::len).sum();
        let mut hasher = self.random.build_hasher();
        hasher.write_usize(total - header.min(total));
        hasher.write(bytes.get(header..len.min(header + BYTES - 18)).unwrap_or_default());
        hasher.finish()
    }

    #[allow(clippy::cast_possible_truncation, reason = "cut to the number of slots")]
    fn set(&self, hash: u64) -> &[AtomicU64] {
        let start = hash as usize % SETS * WAYS;
        self.slots.get(start..start + WAYS).unwrap_or_default()
    }
}

/// Whether a slot holds a frame that may still have a copy on its way.
#[allow(clippy::cast_possible_truncation, reason = "the lower half is the time")]
fn is_fresh(word: u64, now_ms: u32) -> bool {
    word != 0 && !has_passed(now_ms.wrapping_sub(word as u32), REST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_by_its_bytes_and_once() {
        let flooded = Flooded::new();
        let frame = [7; 200];
        let mut other = frame;
        other[60] = 8;
        let slices = [Slice::from(&frame[..90]), Slice::from(&frame[90..])];
        flooded.note(&slices, 5);
        assert!(!flooded.has_taken(&[Slice::from(&other[..])], 6));
        assert!(!flooded.has_taken(&[Slice::from(&frame[..199])], 6));
        // The same bytes in other pieces, by a clock that lags.
        assert!(flooded.has_taken(&[Slice::from(&frame[..])], 4));
        assert!(!flooded.has_taken(&slices, 4), "the next one is another");
        flooded.note(&slices, 5);
        assert!(!flooded.has_taken(&slices, 5 + REST_MS));
    }

    /// Frames of a burst often shared a slot: then one was forgotten, and arrived twice.
    #[test]
    fn frames_of_a_burst_do_not_push_each_other_out() {
        let forgotten = (0..100).map(|_| {
            let flooded = Flooded::new();
            let frames: Vec<[u8; 60]> = (0..64).map(|number| [number; 60]).collect();
            frames.iter().for_each(|frame| flooded.note(&[Slice::from(&frame[..])], 5));
            let is_known = |frame: &&[u8; 60]| flooded.has_taken(&[Slice::from(&frame[..])], 5);
            frames.len() - frames.iter().filter(is_known).count()
        });
        // Out of 6400. With a slot for each hash it was some 190.
        assert!(forgotten.sum::<usize>() < 40);
    }

    #[test]
    fn frames_that_are_alike_have_as_many_copies() {
        let (flooded, frame) = (Flooded::new(), [7; 60]);
        let slices = [Slice::from(&frame[..])];
        (0..3).for_each(|_| flooded.note(&slices, 5));
        assert!((0..3).all(|_| flooded.has_taken(&slices, 5)));
        assert!(!flooded.has_taken(&slices, 5));
    }

    #[test]
    fn a_tag_that_one_device_takes_out_makes_no_other_frame() {
        let flooded = Flooded::new();
        let frame = [7; 200];
        let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
        flooded.note(&[Slice::from(&tagged[..])], 5);
        assert!(flooded.has_taken(&[Slice::from(&frame[..])], 5));
    }

    #[test]
    fn runts_are_no_trouble() {
        let flooded = Flooded::new();
        for len in 0..20 {
            flooded.note(&[Slice::from(&[0x81; 20][..len])], 5);
        }
        flooded.note(&[], 5);
    }
}
