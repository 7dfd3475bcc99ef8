//! Chooses the member through which a flow leaves, with algorithm `dynamic`.
//!
//! A flow keeps its member while its frames follow each other within [`GAP`] plus the time that
//! bytes waiting at that member take to leave. After a longer pause, a *flowlet*, it may change its
//! member without overtaking itself, since the delays of paths through one network differ by less.
//! The choice starts at the flow's hash, and goes to the member that sent least lately if that one
//! is well behind the hash's.
//!
//! The slot depends on the hash alone: flows that share one share a member, which breaks no order.

use super::mask::{Mask, PLACES, Place};
use super::mix::Mix;
use crate::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::{Kind, Parsed, Traits, upper};

const SLOTS: usize = 4096;

/// Pause between two frames of a flow after which it may change its member.
pub const GAP: Nanos = Nanos(500_000);

/// The longest time that a flow keeps a member for bytes waiting there: flows that pause leave a
/// member that sends nothing any more.
const LONGEST_DELAY: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// Time after which sent bytes count half.
const HALF_LIFE: Nanos = Nanos(5 * Nanos::MILLISECOND.0);

/// Bytes by which a member may be ahead of another before new flowlets avoid it.
const SLACK: u64 = 64 * 1024;

/// Marks a slot that was used.
const USED: u64 = 8;

pub(super) struct Flowlets {
    /// For each slot: when the flow last sent, in units of 16 ns; [`USED`]; its member.
    slots: Box<[AtomicU64]>,
    /// Bytes that each member sent lately.
    sent: [AtomicU64; PLACES],
    /// Nanoseconds that bytes waiting at a member take to leave, at the rate it sent lately; an
    /// upper bound if it has just begun.
    delays: [AtomicU64; PLACES],
    /// When `sent` was last halved.
    halved: AtomicU64,
    mix: Mix,
}

impl Flowlets {
    pub(super) fn new() -> Flowlets {
        Flowlets {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            sent: Default::default(),
            delays: Default::default(),
            halved: AtomicU64::new(0),
            mix: Mix::new(),
        }
    }

    /// Returns the member of a flow, given its [hash](Flowlets::flow).
    #[allow(clippy::cast_possible_truncation, reason = "cut to the number of slots and of places")]
    #[inline]
    pub(super) fn member(&self, flow: u64, alive: Mask, now: Nanos) -> Option<Place> {
        let slot = self.slots.get((flow >> 40) as usize % SLOTS)?;
        let word = slot.load(Relaxed);
        let (place, last) = (Place((word & 7) as u8), Nanos(word & !15));
        let delay = self.delays.get(place.index()).map_or(0, |delay| delay.load(Relaxed));
        let keeps = word & USED != 0 && now.since(last) < GAP + Nanos(delay) && alive.has(place);
        let place = if keeps { place } else { self.choose(flow, alive)? };
        let new = now.0 & !15 | USED | u64::from(place.0);
        if new != word {
            slot.store(new, Relaxed);
        }
        Some(place)
    }

    /// Chooses a member for a new flowlet.
    #[cold]
    fn choose(&self, flow: u64, alive: Mask) -> Option<Place> {
        let sent =
            |place: &Place| self.sent.get(place.index()).map_or(0, |sent| sent.load(Relaxed));
        let by_hash = alive.nth(flow & 0xffff_ffff)?;
        let least = alive.places().min_by_key(sent)?;
        Some(if sent(&by_hash) > sent(&least) + SLACK { least } else { by_hash })
    }

    /// Counts bytes given to a member, and the bytes that wait there now.
    pub(super) fn count(&self, place: Place, bytes: u64, waiting: u64, now: Nanos) {
        let halved = self.halved.load(Relaxed);
        if now.since(Nanos(halved)) >= HALF_LIFE
            && self.halved.compare_exchange(halved, now.0, Relaxed, Relaxed).is_ok()
        {
            for sent in &self.sent {
                sent.store(sent.load(Relaxed) / 2, Relaxed);
            }
        }
        if let Some(sent) = self.sent.get(place.index())
            && let Some(delay) = self.delays.get(place.index())
        {
            // A steady rate counts as what it sends in one to two half-lives.
            let sent = sent.fetch_add(bytes, Relaxed) + bytes;
            let leaves = waiting * 2 * HALF_LIFE.0 / sent.max(1);
            delay.store(leaves.min(LONGEST_DELAY.0), Relaxed);
        }
    }

    /// Returns a hash of addresses and ports with a random key. `None`: the frame teaches where its
    /// sender is, or has no ports, so it leaves by the home member.
    #[inline]
    pub(super) fn flow(&self, header: &[u8], parsed: &Parsed) -> Option<u64> {
        const IP: Traits = Traits::IPV4.union(Traits::IPV6);
        let is_plain = matches!(parsed.kind, Kind::Tcp | Kind::Udp) && parsed.traits.intersects(IP);
        let (source, destination) = upper::ports(header, parsed.protocol, parsed.l4)?;
        if !is_plain || is_dhcp(parsed, source) || is_dhcp(parsed, destination) {
            return None;
        }
        let ports = u64::from(source) << 32 | u64::from(destination) << 16;
        let start = self.mix.hash(ports | u64::from(parsed.protocol));
        let words = parsed.addresses(header)?.as_chunks::<8>().0;
        let add = |hash, word: &[u8; 8]| self.mix.hash(hash ^ u64::from_ne_bytes(*word));
        Some(words.iter().fold(start, add))
    }
}

fn is_dhcp(parsed: &Parsed, port: u16) -> bool {
    parsed.kind == Kind::Udp && matches!(port, 67 | 68 | 546 | 547)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_flow_keeps_its_member_while_its_gaps_are_short(
            frames in vec((0usize..40, 0u64..2_000_000, 0u64..70_000), 1..300),
            members in 1u8..=255,
        ) {
            let (flowlets, alive) = (Flowlets::new(), Mask(members));
            let mut last: std::collections::HashMap<usize, (Nanos, Place)> = Default::default();
            let mut now = Nanos(1);
            for (flow, gap, bytes) in frames {
                now = now + Nanos(gap / 40);
                let hash = (flow as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let place = flowlets.member(hash, alive, now).unwrap();
                prop_assert!(alive.has(place));
                flowlets.count(place, bytes, 0, now);
                if let Some((at, before)) = last.insert(flow, (now, place))
                    && now.since(at) < Nanos(GAP.0 - 16)
                {
                    prop_assert_eq!(place, before);
                }
            }
        }

        #[test]
        fn a_flow_leaves_a_member_that_is_gone(flow: u64, before in 1u8..=255, after in 1u8..=255) {
            let flowlets = Flowlets::new();
            flowlets.member(flow, Mask(before), Nanos(5)).unwrap();
            prop_assert!(Mask(after).has(flowlets.member(flow, Mask(after), Nanos(6)).unwrap()));
            prop_assert_eq!(flowlets.member(flow, Mask(0), Nanos(6)), None);
        }
    }

    #[test]
    fn new_flowlets_go_where_less_was_sent() {
        let flowlets = Flowlets::new();
        flowlets.count(Place(0), 1 << 20, 0, Nanos(1));
        for flow in 0..100u64 {
            assert_eq!(flowlets.member(flow << 40, Mask(3), Nanos(2)), Some(Place(1)));
        }
    }

    /// A flow overtook its frames waiting at the member that it left, and every sixth segment of a
    /// connection was sent again.
    #[test]
    fn a_flow_keeps_a_member_where_more_waits_than_its_pause_lets_leave() {
        let (flowlets, ms) = (Flowlets::new(), |ms: u64| Nanos(ms * Nanos::MILLISECOND.0));
        let before = flowlets.member(7, Mask(3), ms(1)).unwrap();
        // At 200 Mbit a second 25 KB leave in a millisecond.
        flowlets.count(before, 250_000, 250_000, ms(1));
        assert_eq!(flowlets.member(7, Mask(3), ms(9)), Some(before));
        assert_ne!(flowlets.member(7, Mask(3), ms(20)), Some(before));
    }
}
