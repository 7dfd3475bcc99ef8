//! Frames that are taken before their turn: short ones of flows with nothing else in the ring
//! (sparse flows, RFC 8290, 4.1). The [ingress](super::ingress) uses this.
//!
//! A ring is read in order, so a lone request would wait for all that bulk connections have there.
//! Once a ring holds [`STANDING`] slots, each is looked at, in order and only once, for its flow's
//! class. A short frame whose class has nothing waiting is taken first. All slots before it have
//! been looked at, so it never overtakes a frame of its own flow.
//!
//! The answer to such a frame, and the next request, wait for the turn that is under way. So while
//! sparse flows come, bursts are short ([`Sparse::most_bytes`]).
//!
//! Longer frames keep their turn, to be merged with those behind them. The hash of flows has a
//! secret: a flow cannot choose its class, and two flows that share one only lose the privilege.

use super::ring::{Filled, Ring, was_taken};
use crate::{Burst, Nanos, Slice};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Classes of flows: twice the slots of a usual ring.
const CLASSES: usize = 8192;
/// The longest frame that is taken before its turn, in bytes: a request, an answer, an
/// acknowledgement. Most last segments of bulk writes are longer, and cost less merged with others.
const SHORT: usize = 200;
/// Filled slots from which on a ring is looked at. What fewer hold is about one turn's work.
const STANDING: u32 = 16;
/// Most slots that are looked at in one take.
const MOST_LOOKS: u32 = 512;
/// Most slots that wait to be taken before their turn.
const MOST_FOUND: usize = 256;
/// The bytes of a burst while sparse flows come. Into a TAP, where the kernel's receive path is part of
/// the turn, these take about an eighth of a millisecond; a full burst takes half of one.
const SHORT_BURST: usize = 128 * 1024;
/// How long bursts stay short after a frame of a sparse flow: longer than its answer takes, and than
/// the next request after that.
const LASTS: Nanos = Nanos(2 * Nanos::MILLISECOND.0);
/// Bytes of a frame that tell its flow: IPv6 to the ports.
const TOLD: usize = 58;

/// The waiting slots of a ring that were looked at. Slots are counted; the counts are called
/// places.
pub(super) struct Sparse {
    seed: u64,
    /// The place of the last slot of each class that keeps its turn. The class has nothing waiting
    /// if that was before `next`.
    last: Box<[u64]>,
    /// The place of the ring's next slot.
    next: u64,
    /// How many slots were looked at, from the next one on.
    seen: u32,
    /// Slots to take before their turn, oldest first.
    found: VecDeque<Found>,
    /// Places of the slots taken before their turn since the last release, oldest first.
    ahead: VecDeque<u64>,
    /// Until when bursts are short.
    short_until: Nanos,
}

/// A slot to take before its turn.
struct Found {
    place: u64,
    class: usize,
}

impl Sparse {
    pub(super) fn new() -> Sparse {
        Sparse {
            seed: RandomState::new().hash_one(0) | 1,
            last: vec![0; CLASSES].into(),
            next: 1,
            seen: 0,
            found: VecDeque::with_capacity(MOST_FOUND),
            ahead: VecDeque::with_capacity(MOST_FOUND),
            short_until: Nanos::default(),
        }
    }

    /// Returns the most bytes of a burst that has this many frames taken before their turn.
    pub(super) fn most_bytes(&mut self, ahead: usize, now: Nanos) -> usize {
        if ahead > 0 {
            self.short_until = now + LASTS;
        }
        if now < self.short_until { SHORT_BURST } else { Burst::BYTES }
    }

    /// Returns the part of a burst for frames before their turn: a flood of flows of one frame each
    /// must not stop the others.
    pub(super) fn share(room: usize) -> usize {
        room / 4
    }

    /// Looks at slots that have arrived since the last call, if the ring stands.
    pub(super) fn look(&mut self, ring: &Ring) {
        if self.seen == 0 && !ring.is_filled_ahead(STANDING - 1) {
            return;
        }
        for _ in 0..MOST_LOOKS {
            let Some(slot) = ring.look_ahead(self.seen) else { return };
            if !was_taken(&slot.header) {
                self.see(&slot);
            }
            self.seen += 1;
        }
    }

    fn see(&mut self, slot: &Filled<'_>) {
        let (class, place) = (self.class(&slot.bytes), self.next + u64::from(self.seen));
        let Some(last) = self.last.get_mut(class) else { return };
        // A train waits beside the ring, in the order of the slots.
        let is_whole = slot.bytes.len() == slot.header.tp_len as usize;
        let is_sparse = *last < self.next && is_whole && slot.bytes.len() <= SHORT;
        if is_sparse && self.found.len() < MOST_FOUND {
            self.found.push_back(Found { place, class });
        }
        *last = place;
    }

    /// Takes the oldest slot that was found, lent until the next release.
    pub(super) fn take<'q>(&mut self, ring: &'q Ring) -> Option<Filled<'q>> {
        let Found { place, class } = self.found.pop_front()?;
        let slot = ring.look_ahead(self.before(place)?)?;
        if let Some(last) = self.last.get_mut(class).filter(|last| **last == place) {
            *last = 0;
        }
        self.ahead.push_back(place);
        Some(slot)
    }

    /// Skips the ring's next slot if it was taken before its turn. Returns whether it was.
    pub(super) fn skip(&mut self, ring: &Ring) -> bool {
        let is_ahead = self.ahead.front() == Some(&self.next);
        if !is_ahead && !ring.was_taken() {
            return false;
        }
        if is_ahead {
            self.ahead.pop_front();
        }
        ring.skip();
        self.advance();
        true
    }

    /// Notes that the ring's next slot was taken in its turn.
    pub(super) fn advance(&mut self) {
        self.next += 1;
        self.seen = self.seen.saturating_sub(1);
        while self.found.front().is_some_and(|found| found.place < self.next) {
            self.found.pop_front();
        }
    }

    /// Notes in the slots that were taken before their turn that their frames are delivered. Called
    /// before the ring's release: if this process is killed earlier, the next one takes them again.
    pub(super) fn release(&mut self, ring: &Ring) {
        while let Some(place) = self.ahead.pop_front() {
            if let Some(ahead) = self.before(place) {
                ring.note_taken(ahead);
            }
        }
    }

    /// Returns how many slots the ring still has before a place.
    fn before(&self, place: u64) -> Option<u32> {
        u32::try_from(place.checked_sub(self.next)?).ok()
    }

    /// Returns the class of a frame's flow: of addresses and ports of TCP and UDP, of addresses and
    /// protocol of other IP and of fragments, otherwise of the Ethernet addresses.
    fn class(&self, frame: &Slice<'_>) -> usize {
        let mut bytes = [0; TOLD];
        frame.copy_to(&mut bytes);
        let words = flow(&bytes);
        let hash = words.into_iter().fold(self.seed, |hash, word| mix(hash ^ word, self.seed));
        #[allow(clippy::cast_possible_truncation, reason = "a few bits")]
        let class = (hash % CLASSES as u64) as usize;
        class
    }
}

/// Returns the words that a flow's frames have in common.
fn flow(bytes: &[u8; TOLD]) -> [u64; 5] {
    let word = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_ne_bytes)
    };
    let half = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
    };
    let has_ports = |protocol: u8| matches!(protocol, 6 | 17 | 132);
    match [bytes[12], bytes[13]] {
        [0x08, 0x00] => {
            let l4 = 14 + 4 * usize::from(bytes[14] & 15);
            let is_fragment = bytes[20] & 0x3f != 0 || bytes[21] != 0;
            let tells = !is_fragment && has_ports(bytes[23]);
            let ports = if tells { half(l4) } else { 0 };
            [word(26), ports.into(), bytes[23].into(), 4, 0]
        }
        [0x86, 0xdd] => {
            let ports = if has_ports(bytes[20]) { half(54) } else { 0 };
            let last = u64::from(ports) << 8 | u64::from(bytes[20]);
            [word(22), word(30), word(38), word(46), last]
        }
        _ => [word(0), half(8).into(), u64::from(half(10)) >> 16, 0, 0],
    }
}

/// Multiplies, and returns both halves of the product as one word.
#[allow(clippy::cast_possible_truncation, reason = "the halves")]
fn mix(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::super::ring::simulated::Kernel;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::iter::from_fn;

    /// A frame of a flow with a number.
    fn frame(flow: u16, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14] = 0x45;
        bytes[23] = 17;
        bytes[34..36].copy_from_slice(&flow.to_be_bytes());
        bytes[60..64].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn read(slice: &Slice<'_>) -> (u16, u32) {
        let mut bytes = Vec::new();
        slice.append_to(&mut bytes);
        (
            u16::from_be_bytes([bytes[34], bytes[35]]),
            u32::from_be_bytes(*bytes[60..].first_chunk().unwrap()),
        )
    }

    /// Takes a burst as the ingress does. Returns how many were ahead, and all.
    fn turn(ring: &mut Ring, sparse: &mut Sparse, most: usize) -> (usize, Vec<(u16, u32)>) {
        let mut frames = Vec::new();
        sparse.look(ring);
        while frames.len() < Sparse::share(most)
            && let Some(slot) = sparse.take(ring)
        {
            frames.push(read(&slot.bytes));
        }
        let ahead = frames.len();
        while frames.len() < most {
            if sparse.skip(ring) {
                continue;
            }
            let Some(slot) = ring.take() else { break };
            sparse.advance();
            frames.push(read(&slot.bytes));
        }
        sparse.release(ring);
        ring.release();
        (ahead, frames)
    }

    proptest! {
        /// Whatever arrives and however much is taken at a time: each frame once, each flow in
        /// order, and when all is taken nothing is counted as waiting.
        #[test]
        fn each_frame_comes_once_and_its_flow_in_order(
            steps in vec((vec(0u16..12, 0..60), 1usize..40), 1..80),
            slots in 8u32..200,
        ) {
            let (mut ring, mut kernel) = Kernel::new(slots);
            let mut sparse = Sparse::new();
            let (mut sent, mut got) = (vec![0; 12], vec![0; 12]);
            for (flows, most) in steps {
                for flow in flows {
                    if kernel.fill(&frame(flow, sent[usize::from(flow)])) {
                        sent[usize::from(flow)] += 1;
                    }
                }
                for (flow, number) in turn(&mut ring, &mut sparse, most).1 {
                    prop_assert_eq!(number, got[usize::from(flow)], "flow {}", flow);
                    got[usize::from(flow)] += 1;
                }
            }
            while ring.has_filled() {
                for (flow, number) in turn(&mut ring, &mut sparse, 7).1 {
                    prop_assert_eq!(number, got[usize::from(flow)], "flow {}", flow);
                    got[usize::from(flow)] += 1;
                }
            }
            prop_assert_eq!(sent, got);
            prop_assert!(sparse.last.iter().all(|place| *place < sparse.next));
            prop_assert_eq!((sparse.seen, sparse.found.len(), sparse.ahead.len()), (0, 0, 0));
        }
    }

    #[test]
    fn a_lone_frame_does_not_wait_for_others() {
        let (mut ring, mut kernel) = Kernel::new(4096);
        let mut sparse = Sparse::new();
        (0..2000u16).for_each(|number| assert!(kernel.fill(&frame(number % 16, number.into()))));
        kernel.fill(&frame(77, 0));
        kernel.fill(&frame(77, 1));
        // The flows of the bulk are as new at first, and 512 slots are looked at in a turn.
        let turns = (0..).map(|_| turn(&mut ring, &mut sparse, 64).1);
        let turns: Vec<_> = turns.take_while(|frames| !frames.is_empty()).collect();
        let first = turns.iter().position(|frames| frames.contains(&(77, 0))).unwrap();
        let second = turns.iter().position(|frames| frames.contains(&(77, 1))).unwrap();
        assert!(first <= 4 && second > 25, "{first} {second}");
    }

    /// A flood of flows of one frame each.
    #[test]
    fn sparse_flows_have_a_quarter_of_a_burst() {
        let (mut ring, mut kernel) = Kernel::new(4096);
        let mut sparse = Sparse::new();
        (0..300).for_each(|number| assert!(kernel.fill(&frame(0, number))));
        (0..3000).for_each(|flow| assert!(kernel.fill(&frame(flow + 1, 0))));
        let first = (0..7).map(|_| turn(&mut ring, &mut sparse, 64));
        for (ahead, frames) in first {
            assert_eq!(frames.len(), 64);
            assert!(ahead <= 16);
        }
    }

    /// A process that is killed within a turn has perhaps not delivered its frames.
    #[test]
    fn frames_taken_first_come_to_the_next_process_unless_they_were_delivered() {
        for is_delivered in [false, true] {
            let (mut ring, mut kernel) = Kernel::new(64);
            (0..20).for_each(|number| assert!(kernel.fill(&frame(1, number))));
            assert!(kernel.fill(&frame(77, 0)));
            let mut sparse = Sparse::new();
            sparse.look(&ring);
            let first: Vec<_> =
                from_fn(|| sparse.take(&ring)).map(|slot| read(&slot.bytes)).collect();
            assert_eq!(first, [(1, 0), (77, 0)]);
            if is_delivered {
                sparse.release(&ring);
            }
            let (_, again) = turn(&mut ring, &mut Sparse::new(), 64);
            assert_eq!(first.iter().all(|frame| again.contains(frame)), !is_delivered);
            assert_eq!(again.len(), if is_delivered { 19 } else { 21 });
        }
    }

    /// A byte there and back took two and a half times as long as through a bridge.
    #[test]
    fn bursts_are_short_while_sparse_flows_come() {
        let mut sparse = Sparse::new();
        let mut most = |ahead, us: u64| sparse.most_bytes(ahead, Nanos(1_000 * us));
        assert_eq!(most(0, 5), Burst::BYTES);
        assert_eq!([most(1, 10), most(0, 2_009)], [SHORT_BURST; 2]);
        assert_eq!([most(7, 2_009), most(0, 4_008)], [SHORT_BURST; 2]);
        assert_eq!(most(0, 4_009), Burst::BYTES);
    }

    #[test]
    fn a_ring_that_does_not_stand_is_not_looked_at() {
        let (mut ring, mut kernel) = Kernel::new(64);
        let mut sparse = Sparse::new();
        let few = u16::try_from(STANDING - 1).unwrap();
        (0..few).for_each(|flow| assert!(kernel.fill(&frame(flow, 0))));
        sparse.look(&ring);
        assert_eq!(sparse.seen, 0);
        kernel.fill(&frame(few, 0));
        assert_eq!(turn(&mut ring, &mut sparse, 12).0, 3, "a quarter, now that it stands");
    }

    #[test]
    fn a_flow_is_what_its_addresses_and_ports_say() {
        let sparse = Sparse::new();
        let class = |bytes: &[u8]| sparse.class(&Slice::from(bytes));
        let base = frame(1, 1);
        let changed = |at: usize| {
            let mut bytes = base.clone();
            bytes[at] ^= 1;
            class(&bytes)
        };
        // Address, port, protocol; not: Ethernet addresses, TOS, length, TTL, payload.
        assert!(
            [26, 29, 30, 33, 34, 37, 23].map(changed).iter().all(|other| *other != class(&base))
        );
        assert!(
            [0, 11, 15, 17, 22, 40, 60].map(changed).iter().all(|other| *other == class(&base))
        );
        // Fragments of a datagram have no ports, but the first.
        let fragment = |offset: u8, port: u8| {
            let mut bytes = base.clone();
            (bytes[20], bytes[21], bytes[34]) = (0x20, offset, port);
            class(&bytes)
        };
        assert_eq!(fragment(0, 1), fragment(9, 200));
        assert_eq!(class(&[]), class(&[0; 58]));
    }
}
