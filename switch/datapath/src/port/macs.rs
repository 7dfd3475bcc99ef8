//! Learned addresses: the port that each MAC address is behind, by VLAN, in one bounded table for
//! all workers.
//!
//! Reading takes no lock: a slot has a key and an entry, and a writer clears the key before it
//! changes the entry. Writing (a new address, or one that moved) takes a short lock; refreshing a
//! correct entry is a plain store once a second. Old entries are not swept: readers treat them as
//! absent, writers as free.

use crate::settings::PortId;
use crate::status::MacEntry;
use ports::kernel_path::KernelPath;
use ports::lock;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use wire::Mac;

/// Slots that an address may be in: two cache lines. Each address has its own first choice among
/// them, so few share one and a search mostly ends at its first step.
const WINDOW: usize = 8;

/// Address and VLAN in one number that is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MacKey(u64);

impl MacKey {
    /// Makes the key of an address, as [`Mac::to_u64`] gives it, in a VLAN.
    #[inline]
    pub(crate) fn new(mac: u64, vlan: u16) -> MacKey {
        MacKey(1 << 63 | mac << 12 | u64::from(vlan & 0xfff))
    }

    pub(crate) fn mac(self) -> Mac {
        Mac::from_u64(self.0 >> 12)
    }

    #[allow(clippy::cast_possible_truncation, reason = "12 bits")]
    pub(crate) fn vlan(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

/// Where an address was seen: the port, and how often that had gone down by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) port: PortId,
    pub(crate) downs: u16,
}

impl Seen {
    /// Returns the place of an address behind a port that has never been down.
    pub(crate) fn at(port: PortId) -> Seen {
        Seen { port, downs: 0 }
    }
}

/// How often the port had gone down (16 bits), port (16 bits), second of the last frame (32 bits).
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn new(Seen { port, downs }: Seen, second: u64) -> Entry {
        Entry(u64::from(downs) << 48 | u64::from(port.0) << 32 | second & 0xffff_ffff)
    }

    #[allow(clippy::cast_possible_truncation, reason = "taking the number apart again")]
    fn seen(self) -> Seen {
        Seen { port: self.port(), downs: (self.0 >> 48) as u16 }
    }

    #[allow(clippy::cast_possible_truncation, reason = "taking the number apart again")]
    fn port(self) -> PortId {
        PortId((self.0 >> 32) as u16)
    }

    fn age_s(self, second: u64) -> u64 {
        second.saturating_sub(self.0 & 0xffff_ffff)
    }
}

#[derive(Default)]
struct Slot {
    /// A [`MacKey`], 0 while free or being changed.
    key: AtomicU64,
    /// An [`Entry`].
    entry: AtomicU64,
}

impl Slot {
    /// Reads the slot. Only for writers, under their lock.
    fn read(&self) -> (MacKey, Entry) {
        (MacKey(self.key.load(Ordering::Relaxed)), Entry(self.entry.load(Ordering::Relaxed)))
    }
}

/// What each port with a limit has learned, by the port's number.
type Learned = Vec<Places>;

/// The addresses that a port has learned and that no other port has, each once.
#[derive(Default)]
struct Places {
    /// With the number of the time when each was learned last.
    known: HashMap<MacKey, u64>,
    /// The first learned in front. Those with another number than `known` has are there no longer.
    order: VecDeque<(MacKey, u64)>,
    /// The next number.
    next: u64,
}

impl Places {
    /// Makes room for a port's addresses, so that learning one does not allocate.
    fn reserve(&mut self, limit: usize) {
        self.known.reserve(limit.saturating_sub(self.known.len()));
        self.order.reserve((2 * limit).saturating_sub(self.order.len()));
    }

    /// Notes an address as learned last. `limit` is the most that are known at a time.
    fn push(&mut self, key: MacKey, limit: usize) {
        let Places { known, order, next } = self;
        if order.len() >= 2 * limit {
            order.retain(|(key, number)| known.get(key) == Some(number));
        }
        known.insert(key, *next);
        order.push_back((key, *next));
        *next += 1;
    }

    /// Removes and returns the address learned first.
    fn pop(&mut self) -> Option<MacKey> {
        while let Some((key, number)) = self.order.pop_front() {
            if self.known.get(&key) == Some(&number) {
                self.known.remove(&key);
                return Some(key);
            }
        }
        None
    }
}

/// The outcome of learning an address that is new, or new at its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insertion {
    Done,
    /// Another address of the same port made room.
    Evicted,
    /// No room among its slots.
    Full,
}

/// The table of learned addresses, shared by all workers and the control plane.
pub(crate) struct MacTable {
    slots: Box<[Slot]>,
    /// Keyed at random: guests choose the addresses.
    seed: u64,
    ageing_s: u64,
    writer: Mutex<Learned>,
    /// Counts the changes of the ports' held addresses, so that workers know when to read them
    /// anew.
    owners_version: AtomicU64,
    /// Carries flows to and from the addresses as long as they stay where they are.
    kernel_path: OnceLock<KernelPath>,
}

impl MacTable {
    /// Makes room for about `entries` addresses, which are forgotten after `ageing_s` seconds of
    /// silence.
    pub(crate) fn new(entries: usize, ageing_s: u32) -> MacTable {
        let count = (entries.clamp(WINDOW, 1 << 20) * 2).next_power_of_two();
        MacTable {
            slots: (0..count).map(|_| Slot::default()).collect(),
            seed: RandomState::new().hash_one(0) | 1,
            ageing_s: u64::from(ageing_s),
            writer: Mutex::new(Vec::new()),
            owners_version: AtomicU64::new(0),
            kernel_path: OnceLock::new(),
        }
    }

    /// Ends the flows of an address in the kernel path whenever the address moves, from now on.
    pub(crate) fn use_kernel_path(&self, path: KernelPath) {
        let _ = self.kernel_path.set(path);
    }

    /// Returns the kernel path, if there is one.
    pub(crate) fn kernel_path(&self) -> Option<&KernelPath> {
        self.kernel_path.get()
    }

    /// Ends the flows of an address in the kernel path.
    pub(crate) fn has_moved(&self, mac: Mac) {
        self.kernel_path.get().iter().for_each(|path| path.forget_station(mac.0));
    }

    /// Calls `change`, in which a port comes to hold an address or releases it: one port at a time.
    /// Workers read the ports' own addresses anew afterwards.
    pub(crate) fn change_owners<Answer>(&self, change: impl FnOnce() -> Answer) -> Answer {
        let _one_at_a_time = lock(&self.writer);
        let answer = change();
        self.owners_version.fetch_add(1, Ordering::Release);
        answer
    }

    /// Returns how often [`MacTable::change_owners`] was called.
    pub(crate) fn owners_version(&self) -> u64 {
        self.owners_version.load(Ordering::Acquire)
    }

    /// Returns the places of the key's window, its first choice in front.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    fn places(&self, key: MacKey) -> impl Iterator<Item = usize> + use<> {
        // Multiplied twice: after one multiplication neighbouring addresses keep a fixed distance,
        // which with some seeds is within one window.
        let once = (key.0 ^ key.0 >> 29).wrapping_mul(self.seed);
        let hash = (once ^ once >> 32).wrapping_mul(self.seed) >> 32;
        let first = hash as usize & (self.slots.len() - 1);
        (0..WINDOW).map(move |step| first ^ step)
    }

    #[inline]
    fn window(&self, key: MacKey) -> impl Iterator<Item = (usize, &Slot)> {
        self.places(key).filter_map(|place| Some((place, self.slots.get(place)?)))
    }

    /// Returns the port the address was last seen at.
    #[inline]
    pub(crate) fn lookup(&self, key: MacKey, second: u64) -> Option<PortId> {
        self.find(key, second).map(|(_, entry)| entry.port())
    }

    fn find(&self, key: MacKey, second: u64) -> Option<(&Slot, Entry)> {
        for (_, slot) in self.window(key) {
            // Pairs with the stores in `fill`: a key that reads the same before and after the entry
            // owns that entry.
            if slot.key.load(Ordering::Acquire) == key.0 {
                let entry = Entry(slot.entry.load(Ordering::Acquire));
                let same = slot.key.load(Ordering::Relaxed) == key.0;
                return (same && entry.age_s(second) <= self.ageing_s).then_some((slot, entry));
            }
        }
        None
    }

    /// Whether the address was seen behind `port` in this second.
    #[inline]
    pub(crate) fn is_recent(&self, key: MacKey, port: PortId, second: u64) -> bool {
        self.find(key, second)
            .is_some_and(|(_, entry)| entry.port() == port && entry.age_s(second) == 0)
    }

    /// Whether the address is known to be behind the port; if so it is young again.
    #[inline]
    pub(crate) fn refresh(&self, key: MacKey, seen: Seen, second: u64) -> bool {
        let found = self.find(key, second).filter(|(_, entry)| entry.port() == seen.port);
        if let Some((slot, entry)) = found
            && (entry.age_s(second) > 0 || entry.seen() != seen)
        {
            slot.entry.store(Entry::new(seen, second).0, Ordering::Release);
        }
        found.is_some()
    }

    /// Notes that the address is behind the port, which may have `limit` of them (0: any number).
    #[cold]
    pub(crate) fn insert(&self, key: MacKey, seen: Seen, limit: u16, second: u64) -> Insertion {
        let port = seen.port;
        let mut learned = lock(&self.writer);
        let own = self.window(key).find(|(_, slot)| slot.read().0 == key);
        let was_at = own.map(|(_, slot)| slot.read().1.port());
        let is_free = |(_, slot): &(usize, &Slot)| {
            let (key, entry) = slot.read();
            key.0 == 0 || self.is_old(entry, second)
        };
        let Some((_, slot)) = own.or_else(|| self.window(key).find(is_free)) else {
            return Insertion::Full;
        };
        if was_at != Some(port) {
            empty(slot, &mut learned);
            self.has_moved(key.mac());
        }
        let mut evicted = false;
        if limit != 0
            && was_at != Some(port)
            && let Some(own) = list_of(&mut learned, port, limit)
        {
            evicted = self.make_room(own, port, limit, second);
            own.push(key, usize::from(limit));
        }
        fill(slot, key, Entry::new(seen, second));
        if evicted { Insertion::Evicted } else { Insertion::Done }
    }

    fn is_old(&self, entry: Entry, second: u64) -> bool {
        entry.age_s(second) > self.ageing_s
    }

    /// Forgets the addresses that a port learned first, until it may learn another. Returns whether
    /// one of them was still in use.
    fn make_room(&self, own: &mut Places, port: PortId, limit: u16, second: u64) -> bool {
        let mut evicted = false;
        while own.known.len() >= usize::from(limit)
            && let Some(first) = own.pop()
        {
            let found = self.window(first).map(|(_, slot)| (slot, slot.read()));
            let mut of_port = found.filter(|(_, (key, it))| *key == first && it.port() == port);
            if let Some((slot, (_, entry))) = of_port.next() {
                slot.key.store(0, Ordering::Release);
                self.has_moved(first.mac());
                evicted |= !self.is_old(entry, second);
            }
        }
        evicted
    }

    /// Forgets one address.
    #[inline]
    pub(crate) fn remove(&self, key: MacKey, second: u64) {
        if let Some((slot, _)) = self.find(key, second) {
            let mut learned = lock(&self.writer);
            // The slot may have got another key before the lock was taken.
            if slot.read().0 == key {
                empty(slot, &mut learned);
                self.has_moved(key.mac());
            }
        }
    }

    /// Forgets the addresses for which `is_meant` says so.
    pub(crate) fn forget(&self, is_meant: impl Fn(MacKey, Seen) -> bool) {
        let mut learned = lock(&self.writer);
        for slot in &self.slots {
            let (key, entry) = slot.read();
            if key.0 != 0 && is_meant(key, entry.seen()) {
                empty(slot, &mut learned);
                self.has_moved(key.mac());
            }
        }
    }

    /// Returns the addresses that a port with a limit has learned, the first in front.
    pub(crate) fn learned_at(&self, port: PortId) -> Vec<MacKey> {
        let learned = lock(&self.writer);
        let Some(Places { known, order, .. }) = learned.get(usize::from(port.0)) else {
            return Vec::new();
        };
        let is_known = |(key, number): &&(MacKey, u64)| known.get(key) == Some(number);
        order.iter().filter(is_known).map(|(key, _)| *key).collect()
    }

    /// Returns all addresses that are not too old.
    pub(crate) fn entries(&self, second: u64) -> Vec<MacEntry> {
        let shown = |slot: &Slot| {
            let key = MacKey(slot.key.load(Ordering::Acquire));
            let entry = Entry(slot.entry.load(Ordering::Acquire));
            (key.0 != 0 && !self.is_old(entry, second)).then(|| MacEntry {
                mac: key.mac(),
                vlan: key.vlan(),
                port: entry.port(),
                age_s: entry.age_s(second),
            })
        };
        self.slots.iter().filter_map(shown).collect()
    }
}

fn list_of(learned: &mut Learned, port: PortId, limit: u16) -> Option<&mut Places> {
    let place = usize::from(port.0);
    if learned.len() <= place {
        learned.resize_with(place + 1, Places::default);
    }
    let list = learned.get_mut(place)?;
    list.reserve(usize::from(limit));
    Some(list)
}

/// Forgets the address of a slot. Only under the writers' lock.
fn empty(slot: &Slot, learned: &mut Learned) {
    let (key, entry) = slot.read();
    slot.key.store(0, Ordering::Release);
    if let Some(places) = learned.get_mut(usize::from(entry.port().0)) {
        places.known.remove(&key);
    }
}

/// Changes what a slot holds. Only under the writers' lock.
fn fill(slot: &Slot, key: MacKey, entry: Entry) {
    // A reader that still sees the old key after this store sees the old entry; see `find`.
    slot.key.store(0, Ordering::Release);
    std::sync::atomic::fence(Ordering::SeqCst);
    slot.entry.store(entry.0, Ordering::Release);
    slot.key.store(key.0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: u64, vlan: u16) -> MacKey {
        let [.., a, b, c, d] = number.to_be_bytes();
        MacKey::new(Mac([2, 0, a, b, c, d]).to_u64(), vlan)
    }

    /// Learns an address. Returns `false` if the table has no room.
    fn learn(table: &MacTable, key: MacKey, port: PortId, second: u64) -> bool {
        table.refresh(key, Seen::at(port), second)
            || table.insert(key, Seen::at(port), 0, second) != Insertion::Full
    }

    proptest! {
        #[test]
        fn a_learned_address_is_found_until_it_is_too_old(number in 0..1u64 << 32, vlan in 0..4095u16, port: u16, age in 0..600u64) {
            let table = MacTable::new(64, 300);
            prop_assert!(learn(&table, key(number, vlan), PortId(port), 1000));
            let found = table.lookup(key(number, vlan), 1000 + age);
            prop_assert_eq!(found, (age <= 300).then_some(PortId(port)));
            prop_assert_eq!(table.lookup(key(number, vlan ^ 1), 1000), None);
        }

        /// Whatever the seed, as hosts number their guests one by one.
        #[test]
        fn neighbouring_addresses_find_room(first in 0..1u64 << 31, step in 1..4u64) {
            let table = MacTable::new(1024, 300);
            for number in 0..64 {
                prop_assert!(learn(&table, key(first + number * step, 0), PortId(1), 0));
            }
        }

        #[test]
        fn what_is_found_is_what_was_learned_last(steps in prop::collection::vec((0..200u64, 0..8u16), 1..400)) {
            let table = MacTable::new(128, 300);
            let mut model = HashMap::new();
            for (number, port) in steps {
                if learn(&table, key(number, 1), PortId(port), 5) {
                    model.insert(number, PortId(port));
                }
            }
            for (number, port) in &model {
                prop_assert_eq!(table.lookup(key(*number, 1), 5), Some(*port));
            }
            prop_assert_eq!(table.entries(5).len(), model.len());
        }
    }

    #[test]
    fn a_full_window_refuses_the_new_and_keeps_the_old() {
        let table = MacTable::new(WINDOW, 300);
        let learned: Vec<u64> =
            (0..1000).filter(|n| learn(&table, key(*n, 0), PortId(1), 0)).collect();
        assert_eq!(learned.len(), table.slots.len());
        assert!(learned.iter().all(|n| table.lookup(key(*n, 0), 0) == Some(PortId(1))));
        assert!(learn(&table, key(5000, 0), PortId(2), 301), "old entries make room");
    }

    #[test]
    fn forgetting_a_port_leaves_the_others() {
        let table = MacTable::new(64, 300);
        for number in 0..20 {
            learn(&table, key(number, 0), PortId(u16::from(number % 2 == 0)), 0);
        }
        table.forget(|_, seen| seen.port == PortId(0));
        assert_eq!(table.entries(0).len(), 10);
        assert!(table.entries(0).iter().all(|entry| entry.port == PortId(1)));
    }

    #[test]
    fn an_entry_reads_back_as_learned() {
        let table = MacTable::new(64, 300);
        let mac = Mac([0x52, 0x54, 0, 0xab, 0xcd, 0xef]);
        learn(&table, MacKey::new(mac.to_u64(), 4094), PortId(9), 7);
        assert_eq!(table.entries(10), [MacEntry { mac, vlan: 4094, port: PortId(9), age_s: 3 }]);
    }

    proptest! {
        /// However many addresses a port sends from, it has its limit of them, and every other port
        /// keeps its own.
        #[test]
        fn a_port_at_its_limit_evicts_its_own_only(limit in 1..40u16, flood in prop::collection::vec(0..10_000u64, 1..500)) {
            let table = MacTable::new(1024, 300);
            for number in 20_000..20_030 {
                learn(&table, key(number, 0), PortId(7), 0);
            }
            for number in &flood {
                if !table.refresh(key(*number, 0), Seen::at(PortId(3)), 1) {
                    table.insert(key(*number, 0), Seen::at(PortId(3)), limit, 1);
                }
                let at = |port| table.entries(1).iter().filter(|entry| entry.port == PortId(port)).count();
                prop_assert!(at(3) <= usize::from(limit));
                prop_assert_eq!(at(7), 30);
            }
        }
    }

    #[test]
    fn the_first_learned_makes_room() {
        let table = MacTable::new(64, 300);
        let insert = |number| table.insert(key(number, 0), Seen::at(PortId(1)), 2, 0);
        assert_eq!([insert(1), insert(2)], [Insertion::Done; 2]);
        assert_eq!(insert(3), Insertion::Evicted);
        let known = |number| table.lookup(key(number, 0), 0).is_some();
        assert_eq!([known(1), known(2), known(3)], [false, true, true]);
    }

    /// Each time that an address came back it took one more place of the port's limit, until the
    /// port's other addresses were forgotten.
    #[test]
    fn an_address_that_flaps_evicts_no_other_within_the_limit() {
        let table = MacTable::new(64, 300);
        let insert = |number, port| table.insert(key(number, 0), Seen::at(PortId(port)), 4, 0);
        let others = [1, 2, 3];
        for number in others {
            assert_eq!(insert(number, 1), Insertion::Done);
        }
        for _ in 0..100 {
            assert_eq!([insert(9, 1), insert(9, 2)], [Insertion::Done; 2]);
            assert_eq!(insert(9, 1), Insertion::Done);
            table.remove(key(9, 0), 0);
        }
        assert!(others.iter().all(|n| table.lookup(key(*n, 0), 0) == Some(PortId(1))));
        assert_eq!(table.learned_at(PortId(1)), others.map(|n| key(n, 0)));
        assert_eq!(insert(9, 1), Insertion::Done);
        assert_eq!(insert(10, 1), Insertion::Evicted);
        assert_eq!(table.lookup(key(1, 0), 0), None, "the first learned made room");
        assert!(lock(&table.writer)[1].order.len() <= 8, "what is gone is not kept");
    }

    #[test]
    fn a_removed_address_is_absent_and_its_window_mates_are_not() {
        let table = MacTable::new(WINDOW, 300);
        (0..4).for_each(|n| assert!(learn(&table, key(n, 0), PortId(1), 0)));
        table.remove(key(2, 0), 0);
        table.remove(key(9, 0), 0);
        assert!((0..4).all(|n| table.lookup(key(n, 0), 0).is_some() == (n != 2)));
    }
}
