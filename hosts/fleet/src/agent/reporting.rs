//! Writes the host's status to etcd under a lease, so that etcd deletes it when the agent ends.

use super::backoff::Backoff;
use crate::Name;
use crate::configuration::Host;
use crate::etcd::Lease;
use crate::store::{Status, Store};
use problem::Problem;
use std::time::{Duration, Instant};

/// The lease's time: a host is away when its agent has not renewed the lease for this long.
const LEASE: Duration = Duration::from_secs(30);
/// How often the lease is kept alive.
const KEEP: Duration = Duration::from_secs(10);
/// Number of statuses a second that all hosts of a step together write for its gate.
const WRITES: u64 = 200;

/// Returns the interval at which each host of a step writes its status.
pub(super) fn fresh(hosts: usize) -> Duration {
    Duration::from_millis((hosts as u64).saturating_mul(1000) / WRITES)
        .clamp(Duration::from_secs(1), LEASE / 2)
}

/// What etcd has of this host: its registration, its lease, and its status under that lease.
#[derive(Default)]
pub(super) struct Reporter {
    /// The lease, and when it was granted or kept alive last.
    lease: Option<(Lease, Instant)>,
    /// The status in etcd, and when it was written.
    reported: Option<(Status, Instant)>,
    registered: bool,
    /// A backoff for reporting alone: a document that cannot be read must not silence the host.
    backoff: Backoff,
}

impl Reporter {
    /// Whether an attempt to write is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.backoff.is_due(now)
    }

    /// Records that the status is in etcd.
    pub(super) fn succeed(&mut self) {
        self.backoff.succeeded();
    }

    /// Records that the status was not written, and logs it while etcd can be read: otherwise a
    /// refused status would just look like a host that is away. If etcd cannot be read either,
    /// reading logs that.
    pub(super) fn fail(&mut self, problem: &Problem, is_readable: bool, at: Instant) {
        let delay = self.backoff.failed(at);
        if self.backoff.is_first() && is_readable {
            tracing::warn!("the status was not written: {problem}");
        }
        tracing::debug!("the status was not written: {problem}; next attempt in {delay:?}");
    }

    /// Records that an answer to a check or an experiment was not written.
    pub(super) fn put_off(&mut self, at: Instant) {
        self.backoff.failed(at);
    }

    /// Returns how often a write was tried again.
    pub(super) fn retries(&self) -> u64 {
        self.backoff.retries()
    }

    /// Returns the lease under which this host writes, if it has one.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.lease.map(|(lease, _)| lease)
    }

    /// Forgets the lease, because it is another etcd's.
    pub(super) fn forget_lease(&mut self) {
        self.lease = None;
    }

    /// Keeps the lease alive. Returns whether it was renewed.
    pub(super) fn keep_lease(&mut self, store: &Store, at: Instant) -> Result<bool, Problem> {
        let Some((lease, kept)) = self.lease else { return Ok(false) };
        if at.duration_since(kept) < KEEP {
            return Ok(false);
        }
        self.lease = store.etcd.keep_alive(lease)?.then_some((lease, at));
        Ok(self.lease.is_some())
    }

    /// Returns the lease, granted anew if there is none.
    pub(super) fn lease_or_grant(&mut self, store: &Store, at: Instant) -> Result<Lease, Problem> {
        if let Some(lease) = self.lease() {
            return Ok(lease);
        }
        let lease = store.etcd.grant(LEASE)?;
        // An etcd that lost the lease may have lost the registration as well.
        (self.lease, self.reported, self.registered) = (Some((lease, at)), None, false);
        Ok(lease)
    }

    /// Registers this host, unless another agent has its name.
    pub(super) fn register(
        &mut self,
        store: &Store,
        host: &Host,
        agent: u64,
    ) -> Result<(), Problem> {
        if !self.registered {
            store.register(host, agent)?;
            self.registered = true;
        }
        Ok(())
    }

    /// Writes the status under the lease if it has changed. `fresh` is the interval at which the
    /// gate of a step needs it.
    pub(super) fn write(
        &mut self,
        store: &Store,
        host: &Name,
        (status, lease): (Status, Lease),
        fresh: Option<Duration>,
        at: Instant,
    ) -> Result<(), Problem> {
        if self.reported.as_ref().is_some_and(|old| !is_due(&status, old, fresh, at)) {
            return Ok(());
        }
        if store.report(host, &status, lease)? {
            self.reported = Some((status, at));
        } else {
            // The next round gets another.
            self.lease = None;
        }
        Ok(())
    }
}

/// Whether a status has to be written. A change of counters in findings alone waits for a while:
/// they change constantly, and etcd keeps each version.
fn is_due(
    new: &Status,
    (old, then): &(Status, Instant),
    fresh: Option<Duration>,
    now: Instant,
) -> bool {
    let age = now.duration_since(*then);
    !new.is_like(old)
        || new.findings != old.findings && age >= LEASE
        || fresh.is_some_and(|fresh| age >= fresh)
}
