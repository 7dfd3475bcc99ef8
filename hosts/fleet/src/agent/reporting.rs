//! The host's status, written to etcd under a lease: when the agent ends, the status goes.

use super::Agent;
use crate::now;
use crate::store::Status;
use problem::Problem;
use std::time::{Duration, Instant};

/// A host is away when its agent was not heard for this long.
const LEASE: Duration = Duration::from_secs(30);
/// How often the lease is kept alive.
const KEEP: Duration = Duration::from_secs(10);
/// How many statuses a second all hosts of a step together write for its gate.
const WRITES: u64 = 200;

/// How often each of the hosts of a step writes its status.
pub(super) fn fresh(hosts: usize) -> Duration {
    Duration::from_millis((hosts as u64).saturating_mul(1000) / WRITES)
        .clamp(Duration::from_secs(1), LEASE / 2)
}

impl Agent {
    /// Writes the status if it has changed, and keeps the lease alive.
    pub(super) fn report(&mut self, at: Instant) {
        if !self.reporting.is_due(at) {
            return;
        }
        match self.write(at) {
            Ok(()) => drop(self.reporting.succeeded()),
            Err(problem) => {
                let delay = self.reporting.failed(at);
                // Reading tells that etcd is away; a status that etcd refuses would otherwise only
                // look like a host that is away.
                if self.reporting.is_first() && self.unreadable.is_none() {
                    tracing::warn!("the status was not written: {problem}");
                }
                tracing::debug!("the status was not written: {problem}; next attempt in {delay:?}");
            }
        }
    }

    fn write(&mut self, at: Instant) -> Result<(), Problem> {
        self.keep_lease(at)?;
        let lease = match self.lease {
            Some((lease, _)) => lease,
            None => {
                let lease = self.store.etcd.grant(LEASE)?;
                // An etcd that lost the lease may have lost the registration as well.
                (self.lease, self.reported, self.registered) = (Some((lease, at)), None, false);
                lease
            }
        };
        self.register()?;
        let status = self.status();
        if self.reported.as_ref().is_some_and(|old| !self.is_due(&status, old, at)) {
            return Ok(());
        }
        if self.store.report(&self.options.host.name, &status, lease)? {
            self.reported = Some((status, at));
        } else {
            // The next round gets another.
            self.lease = None;
        }
        Ok(())
    }

    /// Registers this host, unless another agent has its name.
    pub(super) fn register(&mut self) -> Result<(), Problem> {
        if !self.registered {
            self.store.register(&self.options.host, self.kept.agent)?;
            self.registered = true;
        }
        Ok(())
    }

    /// Whether a status is to be written. Findings that contain counters change constantly, and
    /// etcd keeps each version.
    fn is_due(&self, new: &Status, (old, then): &(Status, Instant), now: Instant) -> bool {
        let age = now.duration_since(*then);
        !new.is_like(old)
            || new.findings != old.findings && age >= LEASE
            || self.in_step.is_some_and(|fresh| age >= fresh)
    }

    fn keep_lease(&mut self, at: Instant) -> Result<(), Problem> {
        let Some((lease, kept)) = self.lease else { return Ok(()) };
        if at.duration_since(kept) < KEEP {
            return Ok(());
        }
        self.lease = self.store.etcd.keep_alive(lease)?.then_some((lease, at));
        self.counts.renewals += u64::from(self.lease.is_some());
        Ok(())
    }

    fn status(&self) -> Status {
        Status {
            revision: self.applied,
            wanted: self.wanted,
            findings: self.findings.clone(),
            prepared: self.prepared.clone(),
            drops: self.drops.clone(),
            mtu_responder: self.paths.responder(),
            lab: self.options.lab.as_ref().map(|lab| lab.address),
            version: self.version.clone(),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            at: now(),
        }
    }
}
