//! Whether something that a flow's decision rests on has changed since it was decided: one of its
//! ports, or where one of its stations is. Changes elsewhere do not concern it: a flood of new
//! addresses at one port keeps no other flow from being carried.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the sequence of changes: what was decided since is decided under all that came
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

/// When a thing changed last.
#[derive(Default)]
pub(super) struct Changed(AtomicU64);

/// The sequence, and when each station moved last.
pub(super) struct Changes {
    last: AtomicU64,
    /// Keyed at random: stations choose their addresses, and those of one place wait for each
    /// other.
    hasher: RandomState,
    stations: Box<[Changed]>,
}

impl Changes {
    /// Places for stations. Only what moves within a turn counts, so few share one.
    const STATIONS: usize = 1 << 12;

    pub(super) fn new() -> Changes {
        let stations = (0..Changes::STATIONS).map(|_| Changed::default()).collect();
        Changes { last: AtomicU64::new(0), hasher: RandomState::new(), stations }
    }

    /// Returns the present moment.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        // Pairs with the increment in `note`: who reads it sees what was changed before.
        Moment(self.last.load(Ordering::Acquire))
    }

    /// Notes that a thing has changed: what was decided about it until now is void.
    pub(super) fn note(&self, thing: &Changed) {
        let number = self.last.fetch_add(1, Ordering::Release) + 1;
        thing.0.fetch_max(number, Ordering::Release);
    }

    /// Notes that a station has moved, is new, or is gone.
    pub(super) fn note_station(&self, mac: [u8; 6]) {
        self.station(mac).iter().for_each(|station| self.note(station));
    }

    /// Whether one of these stations has moved since.
    pub(super) fn has_moved(&self, stations: [[u8; 6]; 2], since: Moment) -> bool {
        stations.iter().filter_map(|mac| self.station(*mac)).any(|station| station.is_after(since))
    }

    fn station(&self, mac: [u8; 6]) -> Option<&Changed> {
        let hash = self.hasher.hash_one(mac);
        self.stations.get(usize::try_from(hash % Changes::STATIONS as u64).ok()?)
    }
}

impl Changed {
    /// Whether it has changed since.
    pub(super) fn is_after(&self, moment: Moment) -> bool {
        self.0.load(Ordering::Acquire) > moment.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any new address made all offers under way wait for a later frame.
    #[test]
    fn a_flood_of_addresses_voids_few_decisions_about_others() {
        let changes = Changes::new();
        let (ours, port) = ([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], Changed::default());
        let mut void = 0;
        for flow in 0..1000_u32 {
            let decided = changes.now();
            for new in 0..8 {
                let [_, a, b, c] = (flow * 8 + new).to_be_bytes();
                changes.note_station([6, 0, 0, a, b, c]);
            }
            void += u32::from(changes.has_moved(ours, decided) || port.is_after(decided));
        }
        assert!(void < 50, "{void} of 1000, expected 4");
    }

    #[test]
    fn a_decision_ends_with_its_port_and_either_station() {
        let (changes, port) = (Changes::new(), Changed::default());
        let [from, to] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        for station in [from, to] {
            let decided = changes.now();
            changes.note_station(station);
            assert!(changes.has_moved([to, from], decided));
            assert!(!changes.has_moved([to, from], changes.now()));
        }
        let decided = changes.now();
        changes.note(&port);
        assert!(port.is_after(decided) && !port.is_after(changes.now()));
    }
}
