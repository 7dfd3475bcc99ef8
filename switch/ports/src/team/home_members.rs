//! The home member of each address that sends through the team.
//!
//! The table has one word an address and a fixed size. Workers read it without a lock. It is
//! written under a lock, for a new address and when members come or go. An address leaves by its
//! *substitute* while its home is down, so it returns without a write when the home is up again. If
//! the table has no room for an address, its hash chooses among the members.

use super::age::has_passed;
use super::mask::{Mask, PLACES, Place};
use super::mix::Mix;
use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use wire::Mac;

/// Slots of addresses: some 4000 addresses find room before the first does not. Guests may send
/// from any number of addresses; the switch limits them for each port.
const SLOTS: usize = 8192;

/// Slots in which an address may be.
const WINDOW: usize = 16;

/// Milliseconds of silence after which an address may lose its slot to a new one: longer than
/// switches remember an address.
const STALE_MS: u32 = 600_000;

/// State of an address, in one word: its 48 bits, home, substitute, and [`HomeMember::PINNED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HomeMember(u64);

impl HomeMember {
    const PINNED: u64 = 1 << 8;
    const USED: u64 = 1 << 9;

    fn new(mac: u64, home: Place, substitute: Place, pinned: bool) -> HomeMember {
        let pinned = if pinned { Self::PINNED } else { 0 };
        HomeMember(
            mac << 16 | Self::USED | pinned | u64::from(substitute.0) << 4 | u64::from(home.0),
        )
    }

    fn read(word: u64) -> Option<HomeMember> {
        (word & Self::USED != 0).then_some(HomeMember(word))
    }

    fn mac(self) -> u64 {
        self.0 >> 16
    }

    pub(super) fn home(self) -> Place {
        Place((self.0 & 7) as u8)
    }

    fn substitute(self) -> Place {
        Place((self.0 >> 4 & 7) as u8)
    }

    /// Whether it may leave only by its home.
    pub(super) fn is_pinned(self) -> bool {
        self.0 & Self::PINNED != 0
    }

    /// Returns the member it leaves by while these are alive; `None` if none may send it.
    #[inline]
    pub(super) fn current(self, alive: Mask) -> Option<Place> {
        if alive.has(self.home()) {
            Some(self.home())
        } else if self.is_pinned() {
            None
        } else if alive.has(self.substitute()) {
            Some(self.substitute())
        } else {
            alive.nth(self.mac())
        }
    }
}

/// Number of addresses, by place.
type Counts = [usize; PLACES];

/// An address that has moved to another member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The address.
    pub mac: Mac,
    /// The place of its new member.
    pub to: Place,
}

/// The table: a word for each address, see [`HomeMember`].
pub(super) struct HomeMembers {
    words: Box<[AtomicU64]>,
    /// When each address last sent, in milliseconds of the workers' clock.
    seen: Box<[AtomicU32]>,
    /// For each member, how many addresses that may move have it as home. Locked to write the
    /// table.
    counts: Mutex<Counts>,
    mix: Mix,
}

impl HomeMembers {
    pub(super) fn new() -> HomeMembers {
        HomeMembers {
            words: (0..SLOTS + WINDOW).map(|_| AtomicU64::new(0)).collect(),
            seen: (0..SLOTS + WINDOW).map(|_| AtomicU32::new(0)).collect(),
            counts: Mutex::default(),
            mix: Mix::new(),
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "cut to the number of slots")]
    fn window(&self, mac: u64) -> std::ops::Range<usize> {
        let start = self.mix.hash(mac) as usize % SLOTS;
        start..start + WINDOW
    }

    /// Returns the slot and the state of an address.
    #[inline]
    fn find(&self, mac: u64) -> Option<(usize, HomeMember)> {
        self.window(mac).find_map(|slot| {
            let home = HomeMember::read(self.words.get(slot)?.load(Relaxed))?;
            (home.mac() == mac).then_some((slot, home))
        })
    }

    /// Returns the state of an address.
    #[inline]
    pub(super) fn get(&self, mac: u64) -> Option<HomeMember> {
        self.find(mac).map(|(_, home)| home)
    }

    /// Returns the state of an address, and the milliseconds since it last sent.
    #[inline]
    pub(super) fn get_with_age(&self, mac: u64, now_ms: u32) -> Option<(HomeMember, u32)> {
        let (slot, home) = self.find(mac)?;
        let seen = self.seen.get(slot)?.load(Relaxed);
        Some((home, now_ms.wrapping_sub(seen)))
    }

    /// Returns when an address last sent.
    pub(super) fn seen(&self, mac: u64) -> Option<u32> {
        let (slot, _) = self.find(mac)?;
        self.seen.get(slot).map(|seen| seen.load(Relaxed))
    }

    /// Notes that the address sends now. A new one gets the member that is home of the fewest;
    /// `None` if there is no room for it.
    #[inline]
    pub(super) fn note(&self, mac: u64, alive: Mask, now_ms: u32) -> Option<HomeMember> {
        let (slot, home) = match self.find(mac) {
            Some(found) => found,
            None => self.insert(mac, alive, now_ms)?,
        };
        let seen = self.seen.get(slot)?;
        if seen.load(Relaxed) != now_ms {
            seen.store(now_ms, Relaxed);
        }
        Some(home)
    }

    #[cold]
    fn insert(&self, mac: u64, alive: Mask, now_ms: u32) -> Option<(usize, HomeMember)> {
        // Checked without the lock: if there is no room, each frame of the address gets here.
        self.free_slot(mac, now_ms)?;
        let mut counts = lock(&self.counts);
        if let Some(found) = self.find(mac) {
            return Some(found);
        }
        let slot = self.free_slot(mac, now_ms)?;
        let home = least(&counts, alive)?;
        let home = HomeMember::new(mac, home, home, false);
        self.seen.get(slot)?.store(now_ms, Relaxed);
        // A pinned address is never stale.
        let old = HomeMember::read(self.words.get(slot)?.swap(home.0, Relaxed));
        old.into_iter().for_each(|old| take(&mut counts, old.home()));
        add(&mut counts, home.home(), 1);
        Some((slot, home))
    }

    /// Forgets an address that is no longer here.
    pub(super) fn forget(&self, mac: u64) {
        let mut counts = lock(&self.counts);
        if let Some((slot, home)) = self.find(mac)
            && let Some(word) = self.words.get(slot)
        {
            word.store(0, Relaxed);
            if !home.is_pinned() {
                take(&mut counts, home.home());
            }
        }
    }

    /// Returns a free or stale slot.
    fn free_slot(&self, mac: u64, now_ms: u32) -> Option<usize> {
        let word = |slot: usize| self.words.get(slot).map_or(0, |word| word.load(Relaxed));
        let is_stale = |slot: &usize| {
            let seen = self.seen.get(*slot).map_or(now_ms, |seen| seen.load(Relaxed));
            let pinned = HomeMember::read(word(*slot)).is_some_and(HomeMember::is_pinned);
            !pinned && has_passed(now_ms.wrapping_sub(seen), STALE_MS + 1)
        };
        let is_free = |slot: &usize| HomeMember::read(word(*slot)).is_none();
        self.window(mac).find(is_free).or_else(|| self.window(mac).find(is_stale))
    }

    fn all(&self) -> impl Iterator<Item = (&AtomicU64, HomeMember)> {
        self.words.iter().filter_map(|word| Some((word, HomeMember::read(word.load(Relaxed))?)))
    }

    /// Returns what `counts` must be according to the table.
    fn counted(&self) -> Counts {
        let mut counts = [0; PLACES];
        for (_, home) in self.all().filter(|(_, home)| !home.is_pinned()) {
            add(&mut counts, home.home(), 1);
        }
        counts
    }

    /// Returns every address with its home, in no order.
    pub(super) fn list(&self) -> Vec<(Mac, HomeMember)> {
        self.all().map(|(_, home)| (Mac::from_u64(home.mac()), home)).collect()
    }

    /// Pins addresses to the given members and frees all others. Returns the addresses that have
    /// moved. A pin without room takes the slot of an address that is not pinned. If all of them
    /// are pinned, the pin is in the second list.
    pub(super) fn pin(
        &self,
        pins: &[(Mac, Place)],
        alive: Mask,
        now_ms: u32,
    ) -> (Vec<Moved>, Vec<Mac>) {
        let mut counts = lock(&self.counts);
        let (mut moved, mut without_room) = (Vec::new(), Vec::new());
        let pin_of =
            |mac| pins.iter().find(|(pinned, _)| pinned.to_u64() == mac).map(|(_, to)| *to);
        for (word, old) in self.all() {
            let new = match pin_of(old.mac()) {
                Some(to) => HomeMember::new(old.mac(), to, to, true),
                None if old.is_pinned() => {
                    HomeMember::new(old.mac(), old.home(), old.substitute(), false)
                }
                None => continue,
            };
            word.store(new.0, Relaxed);
            moved.extend(change((old, alive), (new, alive)));
        }
        for (mac, to) in pins {
            if self.find(mac.to_u64()).is_some() {
                continue;
            }
            match self.slot_to_pin(mac.to_u64(), now_ms).and_then(|slot| self.words.get(slot)) {
                Some(word) => word.store(HomeMember::new(mac.to_u64(), *to, *to, true).0, Relaxed),
                None => without_room.push(*mac),
            }
        }
        *counts = self.counted();
        (moved, without_room)
    }

    /// Returns a free slot, or that of the unpinned address that has been silent for longest.
    fn slot_to_pin(&self, mac: u64, now_ms: u32) -> Option<usize> {
        let is_pinned = |slot: &usize| {
            let word = self.words.get(*slot).map_or(0, |word| word.load(Relaxed));
            HomeMember::read(word).is_some_and(HomeMember::is_pinned)
        };
        let age = |slot: &usize| {
            let seen = self.seen.get(*slot).map_or(now_ms, |seen| seen.load(Relaxed));
            let age = now_ms.wrapping_sub(seen);
            if has_passed(age, 0) { age } else { 0 }
        };
        let unpinned = || self.window(mac).filter(|slot| !is_pinned(slot));
        self.free_slot(mac, now_ms).or_else(|| unpinned().max_by_key(age))
    }

    /// Applies a change of members: each address with a home that is down gets a substitute,
    /// evenly. Homes stay, with two exceptions: a new member takes over as many as make the members
    /// even, and no home stays at a place without a member. `tell` is called after the words are
    /// written and before the lock is released. Returns the addresses that moved.
    pub(super) fn change(
        &self,
        old: Mask,
        new: Mask,
        present: Mask,
        tell: impl FnOnce(),
    ) -> Vec<Moved> {
        let mut counts = lock(&self.counts);
        let before: Vec<(&AtomicU64, HomeMember)> = self.all().collect();
        self.leave(&mut counts, present, new);
        self.even_out(&mut counts, new);
        self.substitute(*counts, new);
        tell();
        let after = |(word, was): (&AtomicU64, HomeMember)| {
            let is = HomeMember::read(word.load(Relaxed))?;
            change((was, old), (is, new))
        };
        before.into_iter().filter_map(after).collect()
    }

    /// Gives each address at a place without a member another home.
    fn leave(&self, counts: &mut Counts, present: Mask, alive: Mask) {
        let to_share = if alive.is_empty() { present } else { alive };
        for (word, home) in self.all() {
            if !present.has(home.home())
                && !home.is_pinned()
                && let Some(to) = least(counts, to_share)
            {
                word.store(HomeMember::new(home.mac(), to, to, false).0, Relaxed);
                add(counts, to, 1);
                take(counts, home.home());
            }
        }
    }

    /// Moves as few homes as possible until members that are alive differ by at most one.
    fn even_out(&self, counts: &mut Counts, alive: Mask) {
        let targets = targets(counts, alive);
        let is_above = |counts: &Counts, place| count(counts, place) > count(&targets, place);
        let is_below = |counts: &Counts, place| count(counts, place) < count(&targets, place);
        for (word, home) in self.all().filter(|(_, home)| !home.is_pinned()) {
            let from = home.home();
            if alive.has(from)
                && is_above(counts, from)
                && let Some(to) = alive.places().find(|place| is_below(counts, *place))
            {
                word.store(HomeMember::new(home.mac(), to, to, false).0, Relaxed);
                add(counts, to, 1);
                take(counts, from);
            }
        }
    }

    /// Spreads the addresses of members that are down over those that are alive. A substitute that
    /// is alive stays.
    fn substitute(&self, mut counts: Counts, alive: Mask) {
        let is_away = |home: HomeMember| !home.is_pinned() && !alive.has(home.home());
        for (_, home) in self.all().filter(|(_, home)| is_away(*home)) {
            if alive.has(home.substitute()) {
                add(&mut counts, home.substitute(), 1);
            }
        }
        for (word, home) in self.all().filter(|(_, home)| is_away(*home)) {
            if !alive.has(home.substitute())
                && let Some(to) = least(&counts, alive)
            {
                word.store(HomeMember::new(home.mac(), home.home(), to, false).0, Relaxed);
                add(&mut counts, to, 1);
            }
        }
    }
}

fn change(old: (HomeMember, Mask), new: (HomeMember, Mask)) -> Option<Moved> {
    let to = new.0.current(new.1)?;
    let moved = old.0.current(old.1) != Some(to);
    moved.then(|| Moved { mac: Mac::from_u64(new.0.mac()), to })
}

fn count(counts: &Counts, place: Place) -> usize {
    counts.get(place.index()).copied().unwrap_or_default()
}

fn add(counts: &mut Counts, place: Place, amount: usize) {
    counts.get_mut(place.index()).into_iter().for_each(|count| *count += amount);
}

fn take(counts: &mut Counts, place: Place) {
    counts.get_mut(place.index()).into_iter().for_each(|count| *count = count.saturating_sub(1));
}

/// Returns how many homes each member should have: members that have the most now may have one more
/// than the others.
fn targets(counts: &Counts, alive: Mask) -> Counts {
    let mut places: Vec<Place> = alive.places().collect();
    places.sort_by_key(|place| std::cmp::Reverse(count(counts, *place)));
    let total: usize = places.iter().map(|place| count(counts, *place)).sum();
    let members = places.len().max(1);
    let mut targets = [0; PLACES];
    for (rank, place) in places.into_iter().enumerate() {
        add(&mut targets, place, total / members + usize::from(rank < total % members));
    }
    targets
}

fn least(counts: &Counts, among: Mask) -> Option<Place> {
    among.places().min_by_key(|place| count(counts, *place))
}

#[cfg(test)]
mod tests;
