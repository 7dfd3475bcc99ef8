//! The fleet at one moment, as `fleet status` and the page show it: the roll-out, hosts with their
//! lag, and moves that are going on.
//!
//! Everything comes from etcd, by reads that follow each other. So a look while something changes
//! may show a host that is already a step further than the rest.

use crate::Name;
use crate::now;
use crate::store::{Claims, Desired, Driver, HostRecord, Phase, Store};
use config::{MacAddress, PortName};
use problem::Problem;
use serde::Serialize;
use std::collections::BTreeMap;

/// The fleet at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetStatus {
    /// When it was read, in seconds since 1970.
    pub at: u64,
    /// The desired state; `None` if nothing was applied yet.
    pub desired: Option<Desired>,
    /// Who drives the roll-out that is in progress.
    pub driver: Option<Driver>,
    /// All hosts, by name.
    pub hosts: Vec<HostStatus>,
    /// Moves that are going on, by port.
    pub moves: Vec<Move>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostStatus {
    /// What it reports.
    #[serde(flatten)]
    pub record: HostRecord,
    /// The revision that it is to have.
    pub wanted: u64,
    /// Seconds since that revision was written, while the host does not have it; `None` if it has
    /// it, or is away.
    pub lag_s: Option<u64>,
}

/// A port that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The port.
    pub port: PortName,
    /// The host that has claimed its address; `None` if no host has.
    pub from: Option<Name>,
    /// The host that it comes to.
    pub to: Name,
    /// How far it is.
    pub stage: Stage,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The destination has yet to prepare the port for its guest.
    Prepare,
    /// The destination has prepared the port, and the guest migrates.
    Migrating,
    /// The destination has yet to claim the port's address.
    WaitingForClaim,
}

impl Stage {
    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Prepare => "prepare",
            Stage::Migrating => "migrating",
            Stage::WaitingForClaim => "waiting for claim",
        }
    }
}

/// Reads a fleet's status. It keeps what it needs of revisions, which never change.
#[derive(Default)]
pub struct Observer {
    revisions: BTreeMap<u64, Known>,
}

/// Facts of a revision.
struct Known {
    /// When it was written.
    at: u64,
    /// Its ports without `host`.
    ports: Vec<(PortName, MacAddress)>,
}

impl Observer {
    /// Reads the fleet's status.
    ///
    /// # Errors
    /// Fails if etcd does not answer, or the documents of the roll-out cannot be read.
    pub fn look(&mut self, store: &Store) -> Result<FleetStatus, Problem> {
        let wanted = store.wanted()?;
        let (driver, records) = (store.driver()?.document, store.hosts()?);
        let desired = wanted.desired.document;
        self.learn(store, desired.as_ref());
        let moves = self.moves(&wanted.claims, &records);
        let at = now();
        let host = |record: HostRecord| {
            let wanted = desired.as_ref().map_or(0, |desired| desired.of(&record.host.name));
            let written = desired.as_ref().map(|desired| self.written(desired, wanted));
            let lags = record.status.as_ref().is_some_and(|status| status.revision != wanted);
            let lag_s = written.filter(|_| lags).map(|written| at.saturating_sub(written));
            HostStatus { record, wanted, lag_s }
        };
        let hosts = records.into_iter().map(host).collect();
        Ok(FleetStatus { at, desired, driver, hosts, moves })
    }

    /// Reads the revisions that hosts are to have and that are not known yet. One that cannot be
    /// read is left out: hosts report it.
    fn learn(&mut self, store: &Store, desired: Option<&Desired>) {
        let numbers = desired.map_or([0, 0], |desired| [desired.revision, desired.before]);
        self.revisions.retain(|number, _| numbers.contains(number));
        for number in numbers {
            if number == 0 || self.revisions.contains_key(&number) {
                continue;
            }
            if let Ok(revision) = store.revision(number) {
                let movable = revision.model.ports.iter().filter(|port| port.host.is_none());
                let ports = movable.map(|port| (port.name.clone(), port.mac)).collect();
                self.revisions.insert(number, Known { at: revision.at, ports });
            }
        }
    }

    /// Returns when the revision that a host is to have was written. If the host goes back to an
    /// earlier revision, that is when the roll-back was written.
    fn written(&self, desired: &Desired, revision: u64) -> u64 {
        let known = self.revisions.get(&revision).filter(|_| desired.phase != Phase::RolledBack);
        known.map_or(desired.at, |known| known.at)
    }

    fn moves(&self, claims: &Claims, hosts: &[HostRecord]) -> Vec<Move> {
        let ports = self.revisions.values().flat_map(|known| &known.ports);
        let ports: BTreeMap<&PortName, MacAddress> =
            ports.map(|(port, mac)| (port, *mac)).collect();
        ports.into_iter().filter_map(|(port, mac)| of_port(port, mac, claims, hosts)).collect()
    }
}

/// Returns the move of a port, if one is going on.
fn of_port(
    port: &PortName,
    mac: MacAddress,
    claims: &Claims,
    hosts: &[HostRecord],
) -> Option<Move> {
    let owner = claims.owner(mac).filter(|owner| owner.port == *port).map(|owner| &owner.host);
    let carrier = claims.carriers.get(port.as_str());
    let (to, stage) = match claims.coming.get(port.as_str()) {
        Some(to) if carrier != Some(to) => {
            let ready =
                if is_prepared(port, to, hosts) { Stage::Migrating } else { Stage::Prepare };
            (to, ready)
        }
        _ => (carrier?, Stage::WaitingForClaim),
    };
    let (from, to, port) = (owner.cloned(), to.clone(), port.clone());
    (from.as_ref() != Some(&to)).then_some(Move { port, from, to, stage })
}

fn is_prepared(port: &PortName, host: &Name, hosts: &[HostRecord]) -> bool {
    let record = hosts.iter().find(|record| record.host.name == *host);
    let status = record.and_then(|record| record.status.as_ref());
    status.is_some_and(|status| status.prepared.contains(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Host;
    use crate::etcd::KeyValue;
    use crate::store::Status;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn port(text: &str) -> PortName {
        text.parse().unwrap()
    }

    const MAC: &str = "52:54:00:00:00:01";

    /// Claims as they are in etcd: the owner of the address, the carrier, and the host that
    /// prepares the port.
    fn claims(owner: &str, carrier: &str, coming: &str) -> Claims {
        let pair = |key: String, value: String| KeyValue {
            key: format!("/millrace/v1/{key}"),
            value,
            create_revision: 0,
            mod_revision: 5,
            lease: 0,
        };
        let host = |host: &str| format!("{{\"host\": \"{host}\"}}");
        let keys = [
            (owner, pair(format!("claims/{owner}/{MAC}"), "{\"port\": \"vm\"}".to_owned())),
            (carrier, pair("carriers/vm".to_owned(), host(carrier))),
            (coming, pair("coming/vm".to_owned(), host(coming))),
        ];
        let keys = keys.into_iter().filter(|(host, _)| !host.is_empty());
        Claims::of(&keys.map(|(_, key)| key).collect::<Vec<_>>())
    }

    fn host(host: &str, prepared: &[&str]) -> HostRecord {
        let prepared = prepared.iter().map(|it| port(it)).collect();
        let status = Some(Status { prepared, ..Status::default() });
        let host = Host { name: name(host), labels: BTreeMap::new() };
        HostRecord { host, status, written: 0 }
    }

    /// The move with the stages that `fleet move` and `move --migrate-with` go through.
    #[test]
    fn a_move_is_shown_from_its_request_to_its_claim() {
        let found = |claims: &Claims, prepared: &[&str]| {
            let hosts = [host("a", &[]), host("b", prepared)];
            let found = of_port(&port("vm"), MAC.parse().unwrap(), claims, &hosts)?;
            let from = found.from.map_or(String::new(), |from| from.to_string());
            Some((from, found.to.to_string(), found.stage))
        };
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        assert_eq!(found(&claims("a", "a", ""), &[]), None);
        assert_eq!(found(&claims("a", "", "b"), &[]), Some((a(), b(), Stage::Prepare)));
        assert_eq!(found(&claims("a", "a", "b"), &[]), Some((a(), b(), Stage::Prepare)));
        assert_eq!(found(&claims("a", "a", "b"), &["vm"]), Some((a(), b(), Stage::Migrating)));
        let waits = Some((a(), b(), Stage::WaitingForClaim));
        assert_eq!(found(&claims("a", "b", "b"), &["vm"]), waits);
        assert_eq!(found(&claims("a", "b", ""), &[]), waits);
        let unclaimed = Some((String::new(), b(), Stage::WaitingForClaim));
        assert_eq!(found(&claims("", "b", ""), &[]), unclaimed);
        assert_eq!(found(&claims("b", "b", "b"), &["vm"]), None, "only the preparation is left");
        assert_eq!(found(&claims("", "", ""), &[]), None);
    }

    #[test]
    fn a_lag_counts_from_the_revision_or_from_the_way_back() {
        let known = |at| Known { at, ports: Vec::new() };
        let observer = Observer { revisions: [(6, known(100)), (7, known(200))].into() };
        let desired = |phase| Desired {
            revision: 7,
            before: 6,
            phase,
            hosts: vec![name("a")],
            reason: String::new(),
            author: String::new(),
            at: 300,
        };
        let written = |phase, revision| observer.written(&desired(phase), revision);
        assert_eq!((written(Phase::Running, 7), written(Phase::Stopped, 6)), (200, 100));
        assert_eq!(written(Phase::RolledBack, 6), 300);
        assert_eq!(written(Phase::Done, 8), 300, "a revision that cannot be read");
    }
}
