//! One direction of a bad wire: frames put in come out later, twice, changed, or not at all.

use super::{Faults, PerMillion};
use crate::{Nanos, Outgoing, VlanTag};
use std::collections::VecDeque;
use wire::vnet::{Flags, VnetHeader};

/// A frame on the wire.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) vnet: VnetHeader,
    pub(super) vlan: Option<VlanTag>,
    pub(super) bytes: Vec<u8>,
    /// Its place among the frames of this call; `None` for a duplicate and for a frame of an
    /// earlier call.
    pub(super) place: Option<usize>,
    due: Nanos,
}

impl Held {
    pub(super) fn new(vnet: VnetHeader, vlan: Option<VlanTag>, bytes: Vec<u8>) -> Held {
        Held { vnet, vlan, bytes, place: None, due: Nanos(0) }
    }

    /// Returns the frame as another queue takes it.
    #[allow(clippy::cast_possible_truncation, reason = "a frame has less than 4 GiB")]
    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        let len = self.bytes.len() as u32;
        Outgoing { vnet: self.vnet, header: &self.bytes, payload: &[], len }
    }
}

/// One direction of a bad wire, with the frames that wait on it.
pub(super) struct Line {
    faults: Faults,
    chance: Chance,
    /// Waiting frames in the order in which they come out.
    waiting: VecDeque<Held>,
    /// A frame that waits for the next one to overtake it.
    aside: Option<Held>,
}

impl Line {
    pub(super) fn new(faults: Faults) -> Line {
        let chance = Chance(faults.seed);
        Line { faults, chance, waiting: VecDeque::new(), aside: None }
    }

    /// Returns the number of frames on the wire.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.aside.is_some())
    }

    /// Puts a frame in. Every frame draws the same number of random values, so one more fault does
    /// not change all later ones.
    pub(super) fn admit(&mut self, now: Nanos, mut frame: Held) {
        let [loss, corruption, duplication, reordering] = [
            self.faults.loss,
            self.faults.corruption,
            self.faults.duplication,
            self.faults.reordering,
        ]
        .map(|probability| self.chance.hits(probability));
        let bit = self.chance.next();
        if loss || (corruption && !corrupt(&mut frame, bit)) {
            return;
        }
        frame.due = now + self.faults.delay;
        if reordering && self.aside.is_none() {
            frame.due = frame.due + Faults::OVERTAKE;
            self.aside = Some(frame);
            return;
        }
        if duplication {
            self.waiting.push_back(Held { place: None, ..frame.clone() });
        }
        let due = frame.due;
        self.waiting.push_back(frame);
        if let Some(overtaken) = self.aside.take() {
            self.waiting.push_back(Held { due, ..overtaken });
        }
    }

    /// Returns the next frame that is due.
    pub(super) fn next_due(&mut self, now: Nanos) -> Option<Held> {
        match self.waiting.front() {
            Some(first) if first.due <= now => self.waiting.pop_front(),
            Some(_) => None,
            None => self.aside.take_if(|frame| frame.due <= now),
        }
    }

    /// Ends the call that put the waiting frames in: they lose their places.
    pub(super) fn forget_places(&mut self) {
        self.waiting.iter_mut().chain(&mut self.aside).for_each(|frame| frame.place = None);
    }
}

/// Flips a bit. Returns `false` if the receiver could not notice, so the frame has to be lost.
fn corrupt(frame: &mut Held, chance: u64) -> bool {
    let flags = frame.vnet.flags();
    if flags.contains(Flags::NEEDS_CSUM) || frame.bytes.is_empty() {
        return false;
    }
    frame.vnet.set_flags(flags - Flags::DATA_VALID);
    let bits = frame.bytes.len() as u64 * 8;
    let bit = usize::try_from(chance % bits).unwrap_or_default();
    if let Some(byte) = frame.bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
    true
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough for dice.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn hits(&mut self, probability: PerMillion) -> bool {
        self.next() % 1_000_000 < u64::from(probability.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends frames numbered in their first bytes. Returns what came out at the end of time.
    fn run(faults: Faults, count: u32) -> Vec<Vec<u8>> {
        let mut line = Line::new(faults);
        for number in 0..count {
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(60, 0);
            line.admit(Nanos(0), Held::new(VnetHeader::default(), None, bytes));
        }
        std::iter::from_fn(|| line.next_due(Nanos(u64::MAX))).map(|frame| frame.bytes).collect()
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_faults(
            seed: u64,
            [loss, corruption, duplication, reordering] in [0u32..500_000, 0u32..500_000, 0u32..500_000, 0u32..500_000],
        ) {
            let faults = Faults {
                seed,
                loss: PerMillion(loss),
                corruption: PerMillion(corruption),
                duplication: PerMillion(duplication),
                reordering: PerMillion(reordering),
                delay: Nanos(5),
            };
            prop_assert_eq!(run(faults, 100), run(faults, 100));
        }

        #[test]
        fn reordering_alone_loses_nothing_and_moves_each_frame_by_one(seed: u64, part in 1u32..=1_000_000) {
            let faults = Faults { seed, reordering: PerMillion(part), ..Faults::default() };
            let out: Vec<u32> = run(faults, 200).iter().map(|frame| number(frame)).collect();
            let mut sorted = out.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..200).collect::<Vec<_>>());
            prop_assert!((0..).zip(&out).all(|(at, &number)| number.abs_diff(at) <= 1));
        }
    }

    #[test]
    fn no_faults_change_nothing() {
        let out: Vec<u32> = run(Faults::default(), 50).iter().map(|frame| number(frame)).collect();
        assert_eq!(out, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn parts_per_million_are_met() {
        let half = PerMillion(500_000);
        let lost = run(Faults { loss: half, ..Faults::default() }, 10_000).len();
        assert!((4800..5200).contains(&lost), "{lost}");
        let twice = run(Faults { duplication: half, ..Faults::default() }, 10_000).len();
        assert!((14_800..15_200).contains(&twice), "{twice}");
        let all = PerMillion(1_000_000);
        assert_eq!(run(Faults { loss: all, ..Faults::default() }, 100).len(), 0);
        for (at, frame) in (0u32..).zip(run(Faults { corruption: all, ..Faults::default() }, 100)) {
            let sent = at.to_be_bytes().into_iter().chain([0; 56]);
            let flipped: u32 = sent.zip(frame).map(|(was, is)| (was ^ is).count_ones()).sum();
            assert_eq!(flipped, 1);
        }
    }

    #[test]
    fn a_delayed_frame_comes_when_it_is_due() {
        let mut line = Line::new(Faults { delay: Nanos(10), ..Faults::default() });
        line.admit(Nanos(5), Held::new(VnetHeader::default(), None, vec![1]));
        assert!(line.next_due(Nanos(14)).is_none());
        assert_eq!(line.len(), 1);
        assert!(line.next_due(Nanos(15)).is_some());
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn an_unfinished_checksum_is_lost_rather_than_corrupted() {
        let mut line = Line::new(Faults { corruption: PerMillion(1_000_000), ..Faults::default() });
        let mut vnet = VnetHeader::default();
        vnet.set_flags(Flags::NEEDS_CSUM);
        line.admit(Nanos(0), Held::new(vnet, None, vec![0; 60]));
        assert_eq!(line.len(), 0);
        vnet.set_flags(Flags::DATA_VALID);
        line.admit(Nanos(0), Held::new(vnet, None, vec![0; 60]));
        assert_eq!(line.next_due(Nanos(0)).map(|frame| frame.vnet.flags()), Some(Flags::empty()));
    }
}
