//! The desired state: read from etcd, turned into the host's configuration, and written to disk
//! before it is given to the switch.

use super::Agent;
use super::claiming::{Decision, decide};
use super::follow::{Course, course};
use super::kept::{self, Kept};
use super::reporting;
use crate::configuration::configuration;
use crate::store::{Claims, Desired, Phase, Revision};
use problem::Problem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the desired state is read even if no change was signalled.
const REREAD: Duration = Duration::from_secs(30);

impl Agent {
    /// Reads the desired state, if there may be something new.
    pub(super) fn read(&mut self, now: Instant) {
        let stale = self.read_at.is_none_or(|at| now.duration_since(at) >= REREAD);
        if !self.unread && !stale || !self.backoff.is_due(now) {
            return;
        }
        // Changes signalled from here on are read in the next round.
        self.unread = false;
        match self.follow() {
            Ok(()) => {
                // Spreads the next reads of hosts that read at the same moment.
                self.read_at = Some(now - REREAD.mul_f64(0.3 * fastrand::f64()));
                self.reached();
            }
            Err(problem) => {
                self.unread = true;
                self.lost(&problem, now);
                self.unreadable = Some(problem);
            }
        }
    }

    fn follow(&mut self) -> Result<(), Problem> {
        // Whoever may not be this host does not act for it.
        self.register()?;
        let wanted = self.store.wanted()?;
        self.paths.hear(wanted.mtu.as_ref());
        self.bench.hear(&self.store, wanted.experiment.as_ref())?;
        let read = &wanted.desired;
        let mut next = self.kept.clone();
        let host = &self.options.host.name;
        let runs = |it: &&Desired| it.phase == Phase::Running && it.reaches(host);
        let running = read.document.as_ref().filter(runs);
        self.in_step = running.map(|desired| reporting::fresh(desired.hosts.len()));
        (next.cluster, next.etcd_revision) = (read.cluster, read.etcd_revision);
        match course(&self.kept, read, host) {
            Course::Hold(held) => {
                if self.kept.held.is_none() {
                    tracing::warn!("{}", held.why);
                    // The lease is not this etcd's.
                    self.lease = None;
                }
                next.held = Some(held);
            }
            Course::Follow(number) => {
                if self.kept.held.is_some() {
                    // Another model may have this number now.
                    self.revision = None;
                    tracing::info!("follows etcd again, at revision {number} of the fleet");
                }
                (next.held, next.desired_at) = (None, read.mod_revision);
                self.wanted = number;
                let revision = self.revision(number)?;
                let decision = self.claim(&revision, &wanted.claims, &next)?;
                self.configure(&revision, &decision, &mut next);
            }
        }
        self.keep(next);
        Ok(())
    }

    /// Returns a revision, fetching it only once.
    fn revision(&mut self, number: u64) -> Result<Arc<Revision>, Problem> {
        if let Some(known) = self.revision.as_ref().filter(|known| known.number == number) {
            return Ok(Arc::clone(known));
        }
        let revision = Arc::new(self.store.revision(number)?);
        self.revision = Some(Arc::clone(&revision));
        Ok(revision)
    }

    /// Claims the ports that this host is to carry and no host has claimed. Another host may have
    /// claimed one at the same moment, so what was claimed counts only once the claims were read
    /// again.
    fn claim(
        &mut self,
        revision: &Revision,
        claims: &Claims,
        next: &Kept,
    ) -> Result<Decision, Problem> {
        let host = &self.options.host.name;
        let mut decision = decide(&revision.model, claims, &next.claims, host);
        if !decision.take.is_empty() {
            for (port, mac) in &decision.take {
                if self.store.claim(*mac, host, port)? {
                    tracing::info!("claimed {} for port {port}", mac.0);
                }
            }
            decision = decide(&revision.model, &self.store.claims()?, &next.claims, host);
        }
        self.claims.clone_from(&decision.findings);
        self.leaving.clone_from(&decision.leave);
        self.preparing.clone_from(&decision.prepare);
        Ok(decision)
    }

    /// Makes the host's configuration. If that is refused the host stays as it is, and reports why.
    fn configure(&mut self, revision: &Revision, decision: &Decision, next: &mut Kept) {
        let host = &self.options.host;
        match configuration(&revision.model, host, &decision.claimed(&host.name)) {
            Ok(config) => {
                let class = crate::configuration::class_of(&revision.model, host).ok().flatten();
                next.workers = class.and_then(|class| class.workers.clone());
                next.ports = config.ports;
                next.revision = revision.number;
                next.claims.clone_from(&decision.carry);
                self.refused = None;
            }
            Err(problem) => self.refused = Some(problem),
        }
    }

    /// Writes to disk first, so that a power cut never leaves the switch ahead of what is kept.
    fn keep(&mut self, next: Kept) {
        let same = Kept { etcd_revision: next.etcd_revision, ..self.kept.clone() };
        if same == next && !self.unkept {
            self.kept = next;
            return;
        }
        let changed = self.kept.ports != next.ports || self.kept.revision != next.revision;
        self.pending |= changed;
        if changed {
            self.retry = None;
        }
        let written = kept::write(&self.directory, &next);
        if let Err(problem) = &written {
            tracing::error!("{problem}");
        }
        self.unkept = written.is_err();
        self.kept = next;
    }
}
