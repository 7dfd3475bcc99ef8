//! State that the workers of a team share: which members are alive, the homes of addresses, and
//! counters.
//!
//! Workers read it without a lock. The thread that watches the links ([`super::watch`]) writes it,
//! and so does a worker that finds a member down.

use super::age::has_passed;
use super::claims::Claims;
use super::flooded::Flooded;
use super::flowlets::Flowlets;
use super::home_members::HomeMembers;
use super::mask::{Mask, PLACES, Place};
use super::neighbour_cache::NeighbourCache;
use super::probes::Probes;
use super::sent::Sent;
use crate::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use wire::Mac;

/// Algorithm that spreads frames toward the network over the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// All frames of an address leave by its home member.
    #[default]
    HyperVPort,
    /// TCP and UDP frames leave by the flow's member. If that is not the home member, they carry
    /// the member's address.
    Dynamic,
}

pub(super) struct State {
    alive: AtomicU8,
    /// Members with a queue on a device that has gone.
    gone: AtomicU8,
    dynamic: AtomicBool,
    /// Number of changes of the members that are alive or present.
    changes: AtomicU32,
    /// The workers' clock in milliseconds, as last read.
    clock_ms: AtomicU32,
    /// When a worker last found [`State::changes`] changed, by its own clock: `clock_ms` stands
    /// still while workers sleep.
    changed_ms: AtomicU32,
    /// The members' own addresses; 0 if there is none.
    macs: [AtomicU64; PLACES],
    pub(super) home_members: HomeMembers,
    pub(super) sent: Sent,
    pub(super) claims: Claims,
    pub(super) flooded: Flooded,
    pub(super) flowlets: Flowlets,
    pub(super) neighbour_cache: Mutex<NeighbourCache>,
    pub(super) counters: [Counters; PLACES],
    pub(super) heard: [Heard; PLACES],
    pub(super) probes: Probes,
    /// Readable when the thread that watches the links must check them.
    pub(super) kick: OwnedFd,
}

/// Counters of a member. Added to once a burst.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) ingress_frames: AtomicU64,
    pub(super) egress_frames: AtomicU64,
    pub(super) egress_bytes: AtomicU64,
    pub(super) replaced_sources: AtomicU64,
    pub(super) reflected: AtomicU64,
    pub(super) copies: AtomicU64,
    pub(super) to_member: AtomicU64,
    pub(super) announcements: AtomicU64,
    pub(super) probes: AtomicU64,
    /// Frames for groups, probes apart.
    pub(super) groups: AtomicU64,
    /// Of these, broadcasts of stations outside.
    pub(super) broadcasts: AtomicU64,
}

/// The VLANs of group frames that arrived at a member, as bitmaps: since it was last aged, and in
/// the period before.
pub(super) struct Heard([[AtomicU64; 64]; 2]);

impl Heard {
    fn new() -> Heard {
        Heard(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }

    pub(super) fn note(&self, vlan: u16) {
        let bit = 1 << (vlan % 64);
        if let Some(word) = self.0[0].get(usize::from(vlan & 0xfff) / 64)
            && word.load(Relaxed) & bit == 0
        {
            word.fetch_or(bit, Relaxed);
        }
    }

    pub(super) fn list(&self) -> Vec<u16> {
        let has = |id: &u16| {
            let words = self.0.iter().filter_map(|map| map.get(usize::from(id / 64)));
            words.fold(0, |both, word| both | word.load(Relaxed)) >> (id % 64) & 1 != 0
        };
        (0..4096).filter(has).collect()
    }

    /// Forgets the period before, and starts a new one.
    pub(super) fn age(&self) {
        let [now, before] = &self.0;
        for (now, before) in now.iter().zip(before) {
            before.store(now.swap(0, Relaxed), Relaxed);
        }
    }

    pub(super) fn forget(&self) {
        self.age();
        self.age();
    }
}

impl State {
    pub(super) fn new(algorithm: Algorithm) -> io::Result<State> {
        Ok(State {
            alive: AtomicU8::new(0),
            gone: AtomicU8::new(0),
            dynamic: AtomicBool::new(algorithm == Algorithm::Dynamic),
            changes: AtomicU32::new(0),
            clock_ms: AtomicU32::new(0),
            changed_ms: AtomicU32::new(0),
            macs: Default::default(),
            home_members: HomeMembers::new(),
            sent: Sent::new(),
            claims: Claims::new(),
            flooded: Flooded::new(),
            flowlets: Flowlets::new(),
            neighbour_cache: Mutex::default(),
            counters: Default::default(),
            heard: std::array::from_fn(|_| Heard::new()),
            probes: Probes::new(),
            kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Returns the members that carry frames.
    #[inline]
    pub(super) fn alive(&self) -> Mask {
        Mask(self.alive.load(Relaxed))
    }

    pub(super) fn set_alive(&self, alive: Mask) {
        self.alive.store(alive.0, Relaxed);
        self.changes.fetch_add(1, Relaxed);
    }

    /// Marks a member that a worker found down. Makes the thread check the links at once.
    #[cold]
    pub(super) fn fell(&self, place: Place) {
        let was = self.alive.fetch_and(Mask(u8::MAX).without(place).0, Relaxed);
        if Mask(was).has(place) {
            self.changed();
            self.look();
        }
    }

    /// Marks a member for reopening: a worker found that its device has gone.
    #[cold]
    pub(super) fn has_gone(&self, place: Place) {
        self.gone.fetch_or(Mask::default().with(place).0, Relaxed);
        self.fell(place);
    }

    /// Returns the members with a device that has gone since the last call.
    pub(super) fn take_gone(&self) -> Mask {
        Mask(self.gone.swap(0, Relaxed))
    }

    /// Notes a change of members or of their announcements, which starts a new grace.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Makes the thread check the links.
    pub(super) fn look(&self) {
        // The write fails only at a full counter, which is readable anyway.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// Sets the workers' clock to `now`. Returns it in milliseconds.
    #[allow(clippy::cast_possible_truncation, reason = "only differences are looked at")]
    #[inline]
    pub(super) fn tick(&self, now: Nanos) -> u32 {
        let now_ms = (now.0 / Nanos::MILLISECOND.0) as u32;
        if self.clock_ms.load(Relaxed) != now_ms {
            self.clock_ms.store(now_ms, Relaxed);
        }
        now_ms
    }

    /// Notes when a worker found the members changed, or an announcement.
    pub(super) fn note_change(&self, now: Nanos) {
        self.changed_ms.store(self.tick(now), Relaxed);
    }

    /// Whether nothing has changed for this many milliseconds.
    pub(super) fn is_settled(&self, now_ms: u32, for_ms: u32) -> bool {
        has_passed(now_ms.wrapping_sub(self.changed_ms.load(Relaxed)), for_ms)
    }

    /// Returns the workers' clock, in milliseconds.
    pub(super) fn now_ms(&self) -> u32 {
        self.clock_ms.load(Relaxed)
    }

    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Relaxed)
    }

    #[inline]
    pub(super) fn is_dynamic(&self) -> bool {
        self.dynamic.load(Relaxed)
    }

    pub(super) fn set_algorithm(&self, algorithm: Algorithm) {
        self.dynamic.store(algorithm == Algorithm::Dynamic, Relaxed);
    }

    pub(super) fn mac(&self, place: Place) -> Mac {
        Mac::from_u64(self.macs.get(place.index()).map_or(0, |mac| mac.load(Relaxed)))
    }

    pub(super) fn set_mac(&self, place: Place, mac: Mac) {
        self.macs.get(place.index()).into_iter().for_each(|own| own.store(mac.to_u64(), Relaxed));
        self.changes.fetch_add(1, Relaxed);
    }

    pub(super) fn macs(&self) -> [u64; PLACES] {
        self.macs.each_ref().map(|mac| mac.load(Relaxed))
    }

    pub(super) fn counters(&self, place: Place) -> Option<&Counters> {
        self.counters.get(place.index())
    }
}

/// Adds to a counter if there is something to add.
pub(super) fn count(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A team that had not changed for 25 days counted as just changed until day 50, and addresses
    /// that had left were announced from here.
    #[test]
    fn what_has_passed_has_passed_for_fifty_days() {
        const DAY_MS: u32 = 24 * 60 * 60 * 1000;
        let state = State::new(Algorithm::HyperVPort).unwrap();
        state.note_change(Nanos::SECOND);
        assert!(!state.is_settled(5_999, 5_000));
        assert!((1..=49).all(|day| state.is_settled(1_000 + day * DAY_MS, 5_000)));
        // Changed by a clock that is ahead.
        assert!(!state.is_settled(999, 5_000) && !state.is_settled(1, 5_000));
    }

    /// One frame of a VLAN made the check complain about it for ever.
    #[test]
    fn a_vlan_of_which_nothing_is_heard_any_more_is_forgotten() {
        let heard = Heard::new();
        [0, 7, 4095].iter().for_each(|vlan| heard.note(*vlan));
        assert_eq!(heard.list(), [0, 7, 4095]);
        heard.age();
        heard.note(7);
        assert_eq!(heard.list(), [0, 7, 4095]);
        heard.age();
        assert_eq!(heard.list(), [7]);
        heard.forget();
        assert!(heard.list().is_empty());
    }
}
