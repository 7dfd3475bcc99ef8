//! Which port a MAC address lives behind, per VLAN: one bounded table for all workers.
//!
//! Reading takes no lock: a slot is a key and a value, and a writer clears the key before it changes what the value
//! belongs to. Writing (a new address, a station that moved) takes a short lock; refreshing an entry that is right is a
//! plain store once a second. Silent entries are not swept: they are absent to readers and free to writers.

use crate::settings::PortId;
use crate::status::MacEntry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Mac;

/// Slots that an address may be in: two cache lines.
const WINDOW: usize = 8;

/// Address and VLAN in one number that is never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Station(u64);

impl Station {
    /// `mac`: see [`Mac::to_u64`].
    #[inline]
    pub(crate) fn new(mac: u64, vlan: u16) -> Station {
        Station(1 << 63 | mac << 12 | u64::from(vlan & 0xfff))
    }

    #[allow(clippy::cast_possible_truncation, reason = "taking the number apart again")]
    fn split(self) -> (Mac, u16) {
        (Mac::from_u64(self.0 >> 12), (self.0 & 0xfff) as u16)
    }
}

/// Port in the upper half, second of the last frame in the lower.
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    fn new(port: PortId, second: u64) -> Place {
        Place(u64::from(port.0) << 32 | second & 0xffff_ffff)
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
    /// A [`Station`], 0 while free or being changed.
    key: AtomicU64,
    /// A [`Place`].
    value: AtomicU64,
}

/// The table. Shared by all workers and the control plane.
pub(crate) struct MacTable {
    slots: Box<[Slot]>,
    /// Keyed at random: guests choose the addresses.
    seed: u64,
    ageing_s: u64,
    writer: Mutex<()>,
}

impl MacTable {
    /// Room for about `entries` addresses, forgotten after `ageing_s` seconds of silence.
    pub(crate) fn new(entries: usize, ageing_s: u32) -> MacTable {
        let count = (entries.clamp(WINDOW, 1 << 20) * 2).next_power_of_two();
        MacTable {
            slots: (0..count).map(|_| Slot::default()).collect(),
            seed: RandomState::new().hash_one(0) | 1,
            ageing_s: u64::from(ageing_s),
            writer: Mutex::new(()),
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    fn window(&self, station: Station) -> &[Slot] {
        let hash = (station.0 ^ station.0 >> 29).wrapping_mul(self.seed) >> 32;
        let start = hash as usize & (self.slots.len() - 1) & !(WINDOW - 1);
        self.slots.get(start..start + WINDOW).unwrap_or_default()
    }

    /// The port the station was last seen at.
    #[inline]
    pub(crate) fn lookup(&self, station: Station, second: u64) -> Option<PortId> {
        self.find(station, second).map(|(_, place)| place.port())
    }

    fn find(&self, station: Station, second: u64) -> Option<(&Slot, Place)> {
        for slot in self.window(station) {
            // Pairs with the stores in `fill`: a key that reads the same before and after the value owns that value.
            if slot.key.load(Ordering::Acquire) == station.0 {
                let place = Place(slot.value.load(Ordering::Acquire));
                let same = slot.key.load(Ordering::Relaxed) == station.0;
                return (same && place.age_s(second) <= self.ageing_s).then_some((slot, place));
            }
        }
        None
    }

    /// Notes that the station is behind `port`. `false`: no room among its slots.
    #[inline]
    pub(crate) fn learn(&self, station: Station, port: PortId, second: u64) -> bool {
        if let Some((slot, place)) = self.find(station, second)
            && place.port() == port
        {
            if place.age_s(second) > 0 {
                slot.value.store(Place::new(port, second).0, Ordering::Release);
            }
            return true;
        }
        self.insert(station, port, second)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn insert(&self, station: Station, port: PortId, second: u64) -> bool {
        let _writing = self.lock();
        let window = self.window(station);
        let own = window.iter().find(|slot| slot.key.load(Ordering::Relaxed) == station.0);
        let free = || {
            window.iter().find(|slot| {
                let age_s = Place(slot.value.load(Ordering::Relaxed)).age_s(second);
                slot.key.load(Ordering::Relaxed) == 0 || age_s > self.ageing_s
            })
        };
        let Some(slot) = own.or_else(free) else { return false };
        fill(slot, station, Place::new(port, second));
        true
    }

    /// Forgets every station behind a port, or (`None`) all.
    pub(crate) fn forget(&self, port: Option<PortId>) {
        let _writing = self.lock();
        for slot in &self.slots {
            let at = Place(slot.value.load(Ordering::Relaxed)).port();
            if port.is_none_or(|port| port == at) {
                slot.key.store(0, Ordering::Release);
            }
        }
    }

    /// All stations that are not too old.
    pub(crate) fn entries(&self, second: u64) -> Vec<MacEntry> {
        let entry = |slot: &Slot| {
            let key = slot.key.load(Ordering::Acquire);
            let place = Place(slot.value.load(Ordering::Acquire));
            let (mac, vlan) = Station(key).split();
            let age_s = place.age_s(second);
            (key != 0 && age_s <= self.ageing_s).then(|| MacEntry {
                mac,
                vlan,
                port: place.port(),
                age_s,
            })
        };
        self.slots.iter().filter_map(entry).collect()
    }
}

/// Changes what a slot holds. Only under the writer's lock.
fn fill(slot: &Slot, station: Station, place: Place) {
    // A reader that still sees the old key after this store sees the old value; see `find`.
    slot.key.store(0, Ordering::Release);
    std::sync::atomic::fence(Ordering::SeqCst);
    slot.value.store(place.0, Ordering::Release);
    slot.key.store(station.0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn station(number: u64, vlan: u16) -> Station {
        let [.., a, b, c, d] = number.to_be_bytes();
        Station::new(Mac([2, 0, a, b, c, d]).to_u64(), vlan)
    }

    proptest! {
        #[test]
        fn a_learned_station_is_found_until_it_is_too_old(number in 0..1u64 << 32, vlan in 0..4095u16, port: u16, age in 0..600u64) {
            let table = MacTable::new(64, 300);
            prop_assert!(table.learn(station(number, vlan), PortId(port), 1000));
            let found = table.lookup(station(number, vlan), 1000 + age);
            prop_assert_eq!(found, (age <= 300).then_some(PortId(port)));
            prop_assert_eq!(table.lookup(station(number, vlan ^ 1), 1000), None);
        }

        #[test]
        fn what_is_found_is_what_was_learned_last(steps in prop::collection::vec((0..200u64, 0..8u16), 1..400)) {
            let table = MacTable::new(128, 300);
            let mut model = HashMap::new();
            for (number, port) in steps {
                if table.learn(station(number, 1), PortId(port), 5) {
                    model.insert(number, PortId(port));
                }
            }
            for (number, port) in &model {
                prop_assert_eq!(table.lookup(station(*number, 1), 5), Some(*port));
            }
            prop_assert_eq!(table.entries(5).len(), model.len());
        }
    }

    #[test]
    fn a_full_window_refuses_the_new_and_keeps_the_old() {
        let table = MacTable::new(WINDOW, 300);
        let learned: Vec<u64> =
            (0..1000).filter(|n| table.learn(station(*n, 0), PortId(1), 0)).collect();
        assert_eq!(learned.len(), table.slots.len());
        assert!(learned.iter().all(|n| table.lookup(station(*n, 0), 0) == Some(PortId(1))));
        assert!(table.learn(station(5000, 0), PortId(2), 301), "old entries make room");
    }

    #[test]
    fn forgetting_a_port_leaves_the_others() {
        let table = MacTable::new(64, 300);
        for number in 0..20 {
            table.learn(station(number, 0), PortId(u16::from(number % 2 == 0)), 0);
        }
        table.forget(Some(PortId(0)));
        assert_eq!(table.entries(0).len(), 10);
        assert!(table.entries(0).iter().all(|entry| entry.port == PortId(1)));
    }

    #[test]
    fn an_entry_reads_back_as_learned() {
        let table = MacTable::new(64, 300);
        let mac = Mac([0x52, 0x54, 0, 0xab, 0xcd, 0xef]);
        table.learn(Station::new(mac.to_u64(), 4094), PortId(9), 7);
        assert_eq!(table.entries(10), [MacEntry { mac, vlan: 4094, port: PortId(9), age_s: 3 }]);
    }
}
