//! Decides when to read the desired state from etcd, and remembers what was read last.

use super::backoff::Backoff;
use super::daemon::finding;
use super::watcher::News;
use crate::store::{Revision, Store};
use api::body::{FindingBody, Severity};
use problem::Problem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the desired state is read even if no change was signalled.
const REREAD: Duration = Duration::from_secs(30);

/// What the agent has read of the desired state, and when.
pub(super) struct Reader {
    /// The revision that was read last, so that it is not fetched again.
    revision: Option<Arc<Revision>>,
    /// The revision that etcd wants on this host.
    pub(super) wanted: u64,
    /// While this host is in a step of a running roll-out: how often it writes its status for the
    /// gate.
    pub(super) in_step: Option<Duration>,
    /// Whether there may be something to read.
    unread: bool,
    /// When etcd was read last.
    read_at: Option<Instant>,
    /// Why the desired state could not be read.
    unreadable: Option<Problem>,
    backoff: Backoff,
}

impl Reader {
    /// Returns a reader that has read nothing yet; this revision was wanted last.
    pub(super) fn new(wanted: u64) -> Reader {
        Reader {
            revision: None,
            wanted,
            in_step: None,
            unread: true,
            read_at: None,
            unreadable: None,
            backoff: Backoff::default(),
        }
    }

    /// Notes a signal of the watcher.
    pub(super) fn hear(&mut self, news: News) {
        self.unread |= news != News::Answer;
        if let News::Compacted(revision) = news {
            tracing::info!(
                "etcd compacted its history before revision {revision}: reading all keys again"
            );
        }
    }

    /// Makes the next round read etcd.
    pub(super) fn read_again(&mut self) {
        self.unread = true;
    }

    /// Returns whether to read now: there may be something new, and no retry is put off. If so, the
    /// read counts as begun, and changes signalled from then on are read in the next round.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let stale = self.read_at.is_none_or(|at| now.duration_since(at) >= REREAD);
        if !self.unread && !stale || !self.backoff.is_due(now) {
            return false;
        }
        self.unread = false;
        true
    }

    /// Records that the desired state was read.
    pub(super) fn succeed(&mut self, now: Instant) {
        // Spreads the next reads of hosts that read at the same moment.
        self.read_at = Some(now - REREAD.mul_f64(0.3 * fastrand::f64()));
        self.unreadable = None;
        if self.backoff.succeeded() {
            tracing::info!("etcd answers again");
        }
    }

    /// Records that etcd did not answer, or refused. The switch stays at the revision `kept`.
    pub(super) fn fail(&mut self, problem: Problem, kept: u64, now: Instant) {
        self.unread = true;
        let delay = self.backoff.failed(now);
        if self.backoff.is_first() {
            tracing::warn!("{problem}\nThe switch carries on with fleet revision {kept}.");
        } else {
            tracing::debug!("{problem}; next attempt in {delay:?}");
        }
        self.unreadable = Some(problem);
    }

    /// Whether etcd was read since the agent started.
    pub(super) fn has_read(&self) -> bool {
        self.read_at.is_some()
    }

    /// Whether the last attempt to read succeeded, or there was none yet.
    pub(super) fn is_readable(&self) -> bool {
        self.unreadable.is_none()
    }

    /// Returns how often a read was tried again.
    pub(super) fn retries(&self) -> u64 {
        self.backoff.retries()
    }

    /// Returns a revision, fetching it only once.
    pub(super) fn revision(
        &mut self,
        store: &Store,
        number: u64,
    ) -> Result<Arc<Revision>, Problem> {
        if let Some(known) = self.revision.as_ref().filter(|known| known.number == number) {
            return Ok(Arc::clone(known));
        }
        let revision = Arc::new(store.revision(number)?);
        self.revision = Some(Arc::clone(&revision));
        Ok(revision)
    }

    /// Forgets the revision that was read: another model may have its number now.
    pub(super) fn forget_revision(&mut self) {
        self.revision = None;
    }

    /// Returns the finding of an etcd that cannot be read for some time.
    pub(super) fn finding(&self) -> Option<FindingBody> {
        let problem = self.unreadable.as_ref().filter(|_| self.backoff.is_lasting())?;
        Some(finding(Severity::Error, "fleet_unread", problem.clone()))
    }
}
