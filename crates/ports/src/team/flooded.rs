//! Frames for an address of ours that were taken at another member than its home, since the switch outside has not learned
//! where it is: the copy that comes at home is the same frame.
//!
//! Elsewhere copies are told by their addresses ([`Claims`](super::claims::Claims)), which is enough where all frames of a pair are
//! flooded alike. A frame for one of our addresses is not: as soon as the switch has learned it, frames come at its home
//! alone, right behind those that were flooded, and none of them may be lost. So here a frame is known by its bytes.

use crate::Slice;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A burst of frames and more.
const SLOTS: usize = 1024;

/// How long a copy is waited for, in milliseconds: as long as a claim rests.
const REST_MS: u32 = 100;

/// Bytes of a frame that are looked at: headers, with what tells datagrams and segments apart.
const BYTES: usize = 128;

/// A slot is the upper half of a frame's hash, then milliseconds; 0 is free. Two frames in one slot: one is forgotten, and
/// its copy taken.
pub(super) struct Flooded {
    slots: Box<[AtomicU64]>,
    random: RandomState,
}

impl Flooded {
    pub(super) fn new() -> Flooded {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Flooded { slots, random: RandomState::new() }
    }

    /// The frame was taken away from its home.
    #[cold]
    pub(super) fn note(&self, slices: &[Slice<'_>], now_ms: u32) {
        let hash = self.hash(slices);
        let word = hash >> 32 << 32 | u64::from(now_ms);
        self.slot(hash).into_iter().for_each(|slot| slot.store(word, Relaxed));
    }

    /// Whether the frame was taken away from its home lately. This is asked once: the next frame that is alike is another.
    #[cold]
    pub(super) fn has_taken(&self, slices: &[Slice<'_>], now_ms: u32) -> bool {
        let hash = self.hash(slices);
        let Some(slot) = self.slot(hash) else { return false };
        let word = slot.load(Relaxed);
        word != 0
            && word >> 32 == hash >> 32
            && is_fresh(word, now_ms)
            && slot.compare_exchange(word, 0, Relaxed, Relaxed).is_ok()
    }

    /// Of the packet and its length, not of the Ethernet header: one device leaves a tag in it that another takes out.
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
    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        self.slots.get(hash as usize % SLOTS)
    }
}

/// The clock of the worker that noted it may be ahead, and then its age wraps.
#[allow(clippy::cast_possible_truncation, reason = "the lower half is the time")]
fn is_fresh(word: u64, now_ms: u32) -> bool {
    let age = now_ms.wrapping_sub(word as u32);
    !(REST_MS..=u32::MAX / 2).contains(&age)
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
        // Of the same bytes in other pieces, by a clock that lags.
        assert!(flooded.has_taken(&[Slice::from(&frame[..])], 4));
        assert!(!flooded.has_taken(&slices, 4), "the next one is another");
        flooded.note(&slices, 5);
        assert!(!flooded.has_taken(&slices, 5 + REST_MS));
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
