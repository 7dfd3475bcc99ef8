//! Gives the host's ports to its switch: when they change, and after the switch was restarted.

use super::daemon::{Daemon, Seen, Switch, finding};
use super::following::Following;
use super::kept::{Held, Kept};
use super::metrics::Counts;
use super::reading::Reader;
use crate::etcd::Access;
use crate::now;
use api::body::{FindingBody, PlanBody, Severity, StepOutcome};
use api::client::ClientError;
use config::PortName;
use problem::Problem;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// The finding of a host that does not follow an etcd that went back to an older state.
pub(crate) const GONE_BACK: &str = "etcd_gone_back";
/// How often ports that the switch refused are offered again: the obstacle may be gone.
const RETRY: Duration = Duration::from_secs(10);
/// A certificate that expires within this time is a finding.
const SOON: Duration = Duration::from_hours(30 * 24);

/// The switch, what it has of the fleet, and what the last look at it found.
pub(super) struct Enforcer {
    daemon: Daemon,
    following: Following,
    /// Why the wanted revision is refused on this host: it gives the host no valid configuration,
    /// or the switch refuses that.
    refused: Option<Problem>,
    /// Prepared ports that the switch has.
    pub(super) prepared: Vec<PortName>,
    /// The daemon's version; empty if it did not answer.
    pub(super) version: String,
    /// Frames that the daemon had dropped, by reason. Read only while this host is in a step of a
    /// roll-out.
    pub(super) drops: BTreeMap<String, u64>,
}

impl Enforcer {
    pub(super) fn new(switch: Box<dyn Switch>) -> Enforcer {
        Enforcer {
            daemon: Daemon::of(switch),
            following: Following::default(),
            refused: None,
            prepared: Vec::new(),
            version: String::new(),
            drops: BTreeMap::new(),
        }
    }

    /// Looks at the switch, and gives it the ports if that is pending. Returns the state of the
    /// switch after that.
    pub(super) fn enforce(
        &mut self,
        kept: &Kept,
        reader: &Reader,
        counts: &mut Counts,
        now: Instant,
    ) -> Result<Seen, Problem> {
        let seen = self.look()?;
        if seen.is_new {
            self.meet(&seen, kept, reader.has_read());
        }
        if !self.following.is_due(now) {
            return Ok(seen);
        }
        self.put(kept, reader.wanted, counts, now);
        self.look()
    }

    fn look(&mut self) -> Result<Seen, Problem> {
        self.daemon.look().inspect_err(|_| self.version.clear())
    }

    /// Handles a switch that has started, or that this agent sees for the first time. The switch
    /// restores the ports from its own state, unless that was lost or this agent ended in between.
    /// The agent's copy on disk may be older than what the switch has, so before etcd was read the
    /// agent gives that copy only to a switch without ports of the fleet.
    fn meet(&mut self, seen: &Seen, kept: &Kept, has_read: bool) {
        let follows = kept.cluster != 0;
        if !follows || self.following.is_pending() {
            return;
        }
        if seen.steps_away(kept) == 0 {
            self.following.succeed(kept.revision);
        } else if has_read || seen.has_none() {
            self.following.change();
        }
    }

    fn put(&mut self, kept: &Kept, wanted: u64, counts: &mut Counts, now: Instant) {
        counts.apply_retries += u64::from(self.following.is_retry());
        match self.daemon.put(kept.revision, &kept.ports) {
            Ok(plan) if plan.applied => {
                counts.applied += 1;
                tell(&plan, kept.revision);
                self.following.succeed(kept.revision);
                // The refusal may be left from an earlier attempt.
                if wanted == kept.revision {
                    self.refused = None;
                }
            }
            Ok(plan) => {
                counts.failed += 1;
                self.following.fail(tell(&plan, kept.revision), now + RETRY);
            }
            Err(ClientError::Refused(problem)) => {
                tracing::error!("the switch refuses revision {}: {problem}", kept.revision);
                counts.refused += 1;
                self.following.refuse(now + RETRY);
                self.refused = Some(*problem);
            }
            // The next look reports it.
            Err(ClientError::Unreachable(_)) => {}
        }
    }

    /// Notes that the desired state gave this host a configuration, or why it gave none.
    pub(super) fn judge(&mut self, refused: Option<Problem>) {
        self.refused = refused;
    }

    /// Notes that the ports changed, so that they are offered to the switch.
    pub(super) fn change(&mut self) {
        self.following.change();
    }

    /// Returns the revision that the switch has in force; 0: none, or not known yet.
    pub(super) fn applied(&self) -> u64 {
        self.following.applied()
    }

    /// Whether the switch has all the ports that the agent keeps, and the fleet wants no others.
    pub(super) fn is_settled(&self) -> bool {
        !self.following.is_pending() && self.refused.is_none()
    }

    /// Notes the parts of the switch's state that the status reports.
    pub(super) fn note(&mut self, seen: &Seen, preparing: &[PortName], in_step: bool) {
        self.prepared = preparing.iter().filter(|port| seen.has(port)).cloned().collect();
        seen.version().clone_into(&mut self.version);
        // Only a roll-out's gate judges drops, and reading them takes as long as there are ports.
        if in_step {
            // Counters that could not be read stay as they are: compared with none, all past drops
            // would look new.
            self.drops = self.daemon.drops().unwrap_or_else(|| std::mem::take(&mut self.drops));
        } else {
            self.drops.clear();
        }
    }

    /// Returns the finding of a wanted revision that is refused.
    pub(super) fn refusal(&self) -> Option<FindingBody> {
        let problem = self.refused.clone()?;
        Some(finding(Severity::Error, "fleet_refused", problem))
    }

    /// Returns the finding of steps that failed.
    pub(super) fn failure(&self) -> Option<FindingBody> {
        let problem = self.following.failure().cloned()?;
        Some(finding(Severity::Error, "fleet_step_failed", problem))
    }

    /// Returns the finding of changes made to the fleet's ports through the switch's API, which
    /// last until the fleet next changes the host.
    pub(super) fn changed_on_host(&self, seen: &Seen, kept: &Kept) -> Option<FindingBody> {
        if self.following.is_pending() || kept.revision == 0 {
            return None;
        }
        let count = seen.steps_away(kept);
        let problem = Problem::new("the fleet's ports were changed on this host")
            .seen(format!("{count} ports differ from revision {}", kept.revision))
            .wanted("the ports as the fleet defines them")
            .remedy("make the change in the model; the fleet's next change of this host undoes it");
        (count > 0).then(|| finding(Severity::Info, "changed_on_host", problem))
    }
}

/// Returns the finding of a host that does not follow an etcd that went back.
pub(super) fn gone_back(held: &Held) -> FindingBody {
    let problem =
        Problem::new("this host does not follow etcd, which was restored or lost its data")
            .seen(&held.why)
            .wanted("a desired state that was written since then")
            .remedy("check `millrace fleet diff`, then apply the model that is to be in force");
    finding(Severity::Warning, GONE_BACK, problem)
}

/// Returns the findings of certificates that end soon.
pub(super) fn certificates(etcd: &Access) -> Vec<FindingBody> {
    let ends = etcd.certificates_end();
    ends.iter().filter_map(|(owner, end)| ending(owner, *end, now())).collect()
}

/// Logs which steps the switch carried out. Returns the problem, which names those that failed.
fn tell(plan: &PlanBody, revision: u64) -> Problem {
    let failed = plan.steps.iter().filter(|step| step.outcome == StepOutcome::Failed);
    let reasons: Vec<&str> = failed.map(|step| step.reason.as_str()).collect();
    let count = plan.steps.len();
    let problem = Problem::new(format!("revision {revision} is only partly in force on this host"))
        .seen(format!("{} of {count} steps failed: {}", reasons.len(), reasons.join("; ")))
        .wanted("no failed step")
        .remedy("fix what the reason names; the agent retries by itself");
    if reasons.is_empty() {
        tracing::info!("revision {revision} is in force: {count} steps");
    } else {
        tracing::warn!("{problem}");
    }
    problem
}

/// Returns the finding of a certificate that expires soon, if it does: after that, the host cannot
/// read etcd.
fn ending(owner: &str, end: u64, now: u64) -> Option<FindingBody> {
    if end > now.saturating_add(SOON.as_secs()) {
        return None;
    }
    let (owner, option) = match owner {
        "etcd" => ("etcd", "--member"),
        _ => ("this host", "--host"),
    };
    let date = OffsetDateTime::from_unix_timestamp(end.try_into().ok()?).ok()?.date();
    let problem = Problem::new(format!("the certificate of {owner} ends soon"))
        .seen(format!("in force until {date}"))
        .wanted("a certificate in force for 30 days and more")
        .remedy(format!(
            "renew it: `millrace fleet certificates DIRECTORY {option} NAME --renew`, copy it, and restart what reads it"
        ));
    Some(finding(Severity::Warning, "certificate_ends", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_a_finding_for_its_last_thirty_days_and_after() {
        const DAY: u64 = 86_400;
        let end = 1_800_000_000;
        assert_eq!(ending("host", end, end - 31 * DAY), None);
        for now in [end - 30 * DAY, end, end + DAY] {
            let found = ending("host", end, now).unwrap();
            assert_eq!(
                (found.kind.as_str(), found.severity),
                ("certificate_ends", Severity::Warning)
            );
            assert_eq!(found.problem.seen, "in force until 2027-01-15");
        }
        assert!(ending("etcd", end, end).unwrap().problem.remedy.contains("--member"));
    }
}
