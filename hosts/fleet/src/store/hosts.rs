//! Registrations and statuses of hosts, written by their agents.

use super::{Store, text, told};
use crate::Name;
use crate::configuration::Host;
use crate::etcd::{Compare, Lease, Operation, Transaction};
use api::body::{FindingBody, Severity};
use config::PortName;
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The registration of a host that has, or had, an agent. It stays until the host is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The host's labels, by which classes select it.
    pub labels: BTreeMap<String, String>,
    /// A number that the agent chose at its first start and keeps. Another agent with the same name
    /// has a different one.
    #[serde(default)]
    pub agent: u64,
}

/// A host's status, written by its agent; it is deleted with the agent's lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The revision that is in force on the host; 0 if there is none.
    pub revision: u64,
    /// The revision that the agent wants in force. If it differs from `revision`, it is not in
    /// force yet or was refused.
    pub wanted: u64,
    /// Findings of the daemon and of the agent.
    pub findings: Vec<FindingBody>,
    /// Ports that its switch has for guests that are about to come.
    #[serde(default)]
    pub prepared: Vec<PortName>,
    /// Frames that its switch has dropped since it started, by reason. Reported while the host is
    /// in a step of a roll-out.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// The address of its responder for `fleet mtu`; `None` if it runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_responder: Option<SocketAddr>,
    /// The address at which it takes part in experiments; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<SocketAddr>,
    /// Version of the daemon; empty while it does not answer.
    pub version: String,
    /// Version of the agent.
    pub agent: String,
    /// When it was written, in seconds since 1970.
    pub at: u64,
}

impl Status {
    /// Kinds of findings that do not come from a revision: a vNIC without a running guest, and a
    /// certificate that expires.
    const OF_NO_REVISION: [&str; 2] = ["port_down", "certificate_ends"];

    /// Whether two statuses are equal except for their times, their counters and the values in
    /// their findings.
    pub fn is_like(&self, other: &Status) -> bool {
        let findings = |status: &Status| {
            let of = |it: &FindingBody| (it.severity, it.kind.clone(), it.problem.error.clone());
            status.findings.iter().map(of).collect::<Vec<_>>()
        };
        let bare = |status: &Status| {
            let (findings, drops) = Default::default();
            Status { findings, drops, at: 0, ..status.clone() }
        };
        bare(self) == bare(other) && findings(self) == findings(other)
    }

    /// Returns the findings of at least this severity that may come from a revision, each by its
    /// kind and error.
    pub fn findings_from(&self, least: Severity) -> BTreeSet<(String, String)> {
        let bad = self.findings.iter().filter(|finding| {
            finding.severity >= least && !Status::OF_NO_REVISION.contains(&finding.kind.as_str())
        });
        bad.map(|finding| (finding.kind.clone(), finding.problem.error.clone())).collect()
    }
}

/// A host and its status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRecord {
    /// The host.
    #[serde(flatten)]
    pub host: Host,
    /// The status; `None` if its agent is away.
    pub status: Option<Status>,
    /// etcd's revision at which the status was written; 0 if it never was.
    #[serde(skip)]
    pub written: i64,
}

pub(super) const PREFIX: &str = "/millrace/v1/hosts/";

/// Returns the prefix of the keys that this host's agent writes.
pub(super) fn prefix(host: &Name) -> String {
    format!("{PREFIX}{host}/")
}

/// Returns the key `what` below a host's prefix.
pub(super) fn key(host: &Name, what: &str) -> String {
    prefix(host) + what
}

impl Store {
    /// Reads all hosts, by name.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn hosts(&self) -> Result<Vec<HostRecord>, Problem> {
        let found = self.etcd.list(PREFIX)?;
        let mut registrations: BTreeMap<Name, Registration> = BTreeMap::new();
        let mut statuses: BTreeMap<Name, (Status, i64)> = BTreeMap::new();
        for pair in &found.keys {
            let rest = pair.key.strip_prefix(PREFIX).unwrap_or_default();
            let Some((name, what)) = rest.split_once('/') else { continue };
            // A document that cannot be read affects only its host. Unknown keys are skipped, as a
            // later version may store more here.
            let Ok(name) = name.parse::<Name>() else { continue };
            match what {
                "registration" => drop(told(pair).map(|it| registrations.insert(name, it))),
                // A status without a lease is ignored: it does not show whether the agent is away.
                "status" if pair.lease != 0 => {
                    drop(told(pair).map(|it| statuses.insert(name, (it, pair.mod_revision))));
                }
                _ => {}
            }
        }
        let record = |(name, registration): (Name, Registration)| {
            let (status, written) = statuses.remove(&name).unzip();
            let host = Host { name, labels: registration.labels };
            HostRecord { host, status, written: written.unwrap_or_default() }
        };
        Ok(registrations.into_iter().map(record).collect())
    }

    /// Writes a host's registration.
    ///
    /// # Errors
    /// Fails if another agent with its name reports or registers, or etcd does not answer.
    pub fn register(&self, host: &Host, agent: u64) -> Result<(), Problem> {
        let path = key(&host.name, "registration");
        let found = self.etcd.list(&prefix(&host.name))?.keys;
        let old = found.iter().find(|pair| pair.key == path);
        let is_there = found.iter().any(|pair| pair.key == key(&host.name, "status"));
        let other = old.and_then(|pair| told::<Registration>(pair).ok()).map(|it| it.agent);
        if is_there && other.is_some_and(|other| other != 0 && other != agent) {
            return Err(twice(&host.name));
        }
        let registration = text(&Registration { labels: host.labels.clone(), agent })?;
        let compare = vec![Compare::unchanged(&path, old.map_or(0, |pair| pair.mod_revision))];
        let put = Operation::put(&path, registration, None);
        self.transact(compare, vec![put])?.map(drop).ok_or_else(|| twice(&host.name))
    }

    /// Writes a host's status, which is deleted with the lease. Returns false if the lease has
    /// expired.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn report(&self, host: &Name, status: &Status, lease: Lease) -> Result<bool, Problem> {
        let put = Operation::put(&key(host, "status"), text(status)?, Some(lease));
        let write = Transaction { compare: Vec::new(), success: vec![put] };
        match self.etcd.transact(&write) {
            Err(error) if error.is_not_found() => Ok(false),
            written => Ok(written.map(|_| true)?),
        }
    }

    /// Deletes the registration of a host. Returns false, and deletes nothing, if its agent is not
    /// away.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn forget(&self, host: &Name) -> Result<bool, Problem> {
        let compare = vec![Compare::absent(&key(host, "status"))];
        let gone = self.transact(compare, vec![Operation::delete(&key(host, "registration"))])?;
        Ok(gone.is_some())
    }
}

fn twice(host: &Name) -> Problem {
    Problem::new(format!("another agent is host {host}: this one follows nothing and reports nothing"))
        .seen("a status of that host that this agent did not write")
        .wanted("one agent for each name")
        .remedy("give this one another name with --host, or stop the other; an agent whose state was erased may go on 30 s later")
}
