//! The vNICs that have tables at an uplink, kept in step with those that are wanted.

use config::PortName;
use ports::steering::{Steering, SteeringError, Vnic};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::Mac;

/// An address, and the VLAN ID of its frames at an uplink; 0 for untagged.
pub(super) type Station = (Mac, u16);

/// How long a vNIC waits for moves of entries before a warning. A batch of moves takes about 10 ms.
const LONG: Duration = Duration::from_secs(1);

const MOVING: &str = "entries have been moving for more than a second";

/// The vNICs that have tables at an uplink.
#[derive(Default)]
pub(super) struct Stations {
    /// The port of each, and its number.
    known: BTreeMap<Station, (PortName, Vnic)>,
    refused: Refused,
}

/// vNICs that could not get a table, or keep one that should be removed.
#[derive(Default)]
struct Refused {
    told: BTreeSet<Station>,
    /// vNICs that wait until moves of entries are done.
    waiting: BTreeMap<Station, Waiting>,
}

struct Waiting {
    since: Instant,
    told: bool,
}

impl Refused {
    /// The reason, if it has not been reported yet.
    fn reason(&mut self, station: Station, error: &SteeringError, now: Instant) -> Option<String> {
        if !matches!(error, SteeringError::Busy) {
            self.waiting.remove(&station);
            return self.told.insert(station).then(|| error.to_string());
        }
        let waiting = self.waiting.entry(station).or_insert(Waiting { since: now, told: false });
        let is_long = now.saturating_duration_since(waiting.since) > LONG;
        (is_long && !std::mem::replace(&mut waiting.told, true)).then(|| MOVING.to_owned())
    }

    fn forget(&mut self, station: &Station) {
        self.told.remove(station);
        self.waiting.remove(station);
    }
}

impl Stations {
    /// Adds and removes vNICs as wanted. Returns each failure once.
    pub(super) fn follow(
        &mut self,
        steering: &dyn Steering,
        wanted: &BTreeMap<Station, PortName>,
        now: Instant,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        let Stations { known, refused } = self;
        let is_settled =
            |station: &Station| wanted.contains_key(station) == known.contains_key(station);
        refused.told.retain(|station| !is_settled(station));
        refused.waiting.retain(|station, _| !is_settled(station));
        // Removals first, to make room for others.
        known.retain(|station, (port, vnic)| {
            if wanted.contains_key(station) {
                return true;
            }
            match steering.remove_vnic(*vnic) {
                Ok(()) | Err(SteeringError::NoSuchVnic(_)) => {
                    refused.forget(station);
                    false
                }
                Err(error) => {
                    let reason = refused.reason(*station, &error, now);
                    failed.extend(reason.map(|why| format!("{port} keeps its table: {why}")));
                    true
                }
            }
        });
        for (station, port) in wanted {
            if let Some((of, _)) = known.get_mut(station) {
                of.clone_from(port);
                continue;
            }
            match steering.add_vnic(station.0, station.1) {
                Ok(vnic) => {
                    known.insert(*station, (port.clone(), vnic));
                    refused.forget(station);
                }
                Err(error) => {
                    let reason = refused.reason(*station, &error, now);
                    let text = |why| format!("the default table steers flows to {port}: {why}");
                    failed.extend(reason.map(text));
                }
            }
        }
        failed
    }

    /// Whether any vNIC waits for moves of entries.
    pub(super) fn wait(&self) -> bool {
        !self.refused.waiting.is_empty()
    }

    /// The number of each vNIC, with its port; first the default one, without a port.
    pub(super) fn vnics(&self) -> impl Iterator<Item = (Vnic, Option<(&PortName, Station)>)> {
        let known =
            self.known.iter().map(|(station, (port, vnic))| (*vnic, Some((port, *station))));
        std::iter::once((Vnic::DEFAULT, None)).chain(known)
    }
}
