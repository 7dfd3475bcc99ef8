//! This host's switch as the agent uses it through the API: the ports it has, its findings, and the
//! fleet's ports given to it.

use super::kept::Kept;
use api::body::{FindingBody, Origin, PlanBody, PortBody, Severity};
use api::client::{Client, ClientError};
use config::{PortConfig, PortName, Scale, Workers};
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A switch as an agent uses it.
pub trait Switch {
    /// Returns its present state.
    ///
    /// # Errors
    /// The switch does not answer, or refuses.
    fn look(&self) -> Result<Look, ClientError>;

    /// Returns how many frames it has dropped at all ports since it started, by reason.
    ///
    /// # Errors
    /// The switch does not answer, or refuses.
    fn drops(&self) -> Result<BTreeMap<String, u64>, ClientError>;

    /// Replaces the fleet's ports with those of this revision.
    ///
    /// # Errors
    /// The switch does not answer, or refuses.
    fn put(&self, revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError>;
}

/// The state of a switch.
pub struct Look {
    /// Its version.
    pub version: String,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Number of its workers.
    pub workers: usize,
    /// Its own findings.
    pub findings: Vec<FindingBody>,
    /// Its ports by name, each with its origin.
    pub ports: BTreeMap<PortName, (Origin, PortConfig)>,
}

/// This host's daemon, through its API.
pub struct LocalSwitch {
    /// The API's socket.
    pub socket: PathBuf,
}

impl Switch for LocalSwitch {
    fn look(&self) -> Result<Look, ClientError> {
        let client = Client::connect(&self.socket)?;
        let (switch, ports) = (client.switch()?, client.ports()?);
        let of = |port: PortBody| (port.config.name.clone(), (port.origin, port.config));
        Ok(Look {
            version: switch.version,
            uptime_s: switch.uptime_s,
            workers: switch.workers.len(),
            findings: client.health()?.findings,
            ports: ports.into_iter().map(of).collect(),
        })
    }

    fn drops(&self) -> Result<BTreeMap<String, u64>, ClientError> {
        let client = Client::connect(&self.socket)?;
        let mut all = BTreeMap::new();
        for port in client.ports()? {
            let drops = match client.counters(&port.name) {
                Ok(counters) => counters.drops,
                // A port may be removed meanwhile.
                Err(ClientError::Refused(_)) => continue,
                Err(error) => return Err(error),
            };
            for (reason, frames) in drops {
                *all.entry(reason).or_default() += frames;
            }
        }
        Ok(all)
    }

    fn put(&self, revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        Client::connect(&self.socket)?.put_fleet(revision, ports)
    }
}

/// A switch that is polled, so that its restarts are noticed.
pub(super) struct Daemon {
    switch: Box<dyn Switch>,
    /// Its uptime at the last look; `None` if it did not answer.
    uptime_s: Option<u64>,
}

/// The result of a look.
pub(super) struct Seen {
    /// Whether the switch has started since the last look, or did not answer then.
    pub(super) is_new: bool,
    look: Look,
}

impl Daemon {
    pub(super) fn of(switch: Box<dyn Switch>) -> Daemon {
        Daemon { switch, uptime_s: None }
    }

    /// Reads the state of the switch.
    pub(super) fn look(&mut self) -> Result<Seen, Problem> {
        let before = self.uptime_s.take();
        let look = self.switch.look().map_err(|error| error.problem().clone())?;
        self.uptime_s = Some(look.uptime_s);
        Ok(Seen { is_new: before.is_none_or(|before| look.uptime_s < before), look })
    }

    /// Returns the frames dropped so far, by reason; `None` while the switch does not answer, which
    /// has a finding of its own.
    pub(super) fn drops(&self) -> Option<BTreeMap<String, u64>> {
        self.switch.drops().ok()
    }

    /// Replaces the fleet's ports with those of this revision.
    pub(super) fn put(&self, revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        self.switch.put(revision, ports)
    }
}

impl Seen {
    /// Returns the daemon's version.
    pub(super) fn version(&self) -> &str {
        &self.look.version
    }

    /// Returns the fleet's ports on the switch.
    fn fleet(&self) -> impl Iterator<Item = &PortConfig> {
        let fleet = self.look.ports.values().filter(|(origin, _)| *origin == Origin::Fleet);
        fleet.map(|(_, port)| port)
    }

    /// Whether this is a port of the fleet on the switch.
    pub(super) fn has(&self, name: &PortName) -> bool {
        self.look.ports.get(name).is_some_and(|(origin, _)| *origin == Origin::Fleet)
    }

    /// Whether the switch has no port of the fleet.
    pub(super) fn has_none(&self) -> bool {
        self.fleet().next().is_none()
    }

    /// Returns how many ports of the fleet differ from those kept. Ports that gave way to the
    /// host's file are not counted: they have a finding of their own.
    pub(super) fn steps_away(&self, kept: &Kept) -> usize {
        let is_missing = |wanted: &&PortConfig| match self.look.ports.get(&wanted.name) {
            Some((Origin::File, _)) => false,
            Some((Origin::Fleet, port)) => port != *wanted,
            Some((Origin::Api, _)) | None => true,
        };
        let names: BTreeSet<&PortName> = kept.ports.iter().map(|port| &port.name).collect();
        let missing = kept.ports.iter().filter(is_missing);
        let surplus = self.fleet().filter(|port| !names.contains(&port.name));
        missing.count() + surplus.count()
    }

    /// Returns the switch's own findings, and those about its differences from the fleet's desired
    /// state.
    pub(super) fn findings(self, kept: &Kept) -> Vec<FindingBody> {
        let mut findings = Vec::new();
        findings.extend(kept.ports.iter().filter_map(|port| self.overruled(port)));
        findings.extend(kept.workers.as_ref().and_then(|workers| self.workers(workers)));
        findings.extend(self.look.findings);
        findings
    }

    /// Returns the finding of a port with a name or device that the host's file has too, if this is
    /// one.
    fn overruled(&self, wanted: &PortConfig) -> Option<FindingBody> {
        let name = wanted.name.as_str();
        let seen = match self.look.ports.get(&wanted.name).map(|(origin, _)| *origin) {
            Some(Origin::Fleet) => return None,
            Some(origin) => format!("it is a port of {}", origin.named()),
            None => "the switch does not have it".to_owned(),
        };
        let problem =
            Problem::new(format!("port {name} of the fleet is not in force on this host"))
                .seen(seen)
                .wanted("the fleet's port, over which the host's own file has precedence")
                .remedy(
                    "remove its name or device from the host's file; `millrace event` says why",
                );
        Some(finding(Severity::Error, "fleet_overruled", problem))
    }

    /// Returns the finding of a switch with other workers than wanted: they are fixed while it
    /// runs.
    fn workers(&self, wanted: &Workers) -> Option<FindingBody> {
        let wanted = usize::from(Scale::of(wanted).workers);
        let seen = self.look.workers;
        let problem =
            Problem::new("the switch has a different number of workers than its host class")
                .seen(seen)
                .wanted(wanted)
                .remedy(format!(
                    "set workers = {wanted} in the host's file, and restart the switch"
                ));
        (seen != wanted).then(|| finding(Severity::Warning, "fleet_workers", problem))
    }
}

/// Makes a finding of the agent.
pub(super) fn finding(severity: Severity, kind: &str, problem: Problem) -> FindingBody {
    FindingBody { severity, kind: kind.to_owned(), problem }
}
