//! Gives the host's ports to its switch: when they change, and after the switch was restarted.

use super::daemon::{Seen, finding};
use super::{Agent, GONE_BACK};
use crate::now;
use api::body::{FindingBody, PlanBody, Severity, StepOutcome};
use api::client::ClientError;
use problem::Problem;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// How often ports that the switch refused are offered again: what was in their way may go.
const RETRY: Duration = Duration::from_secs(10);
/// A certificate that ends sooner is a finding.
const SOON: Duration = Duration::from_hours(30 * 24);

impl Agent {
    /// Looks at the switch, and gives it the ports if that is pending.
    pub(super) fn enforce(&mut self, now: Instant) {
        let seen = match self.daemon.look() {
            Ok(seen) => seen,
            Err(problem) => return self.unreachable(problem),
        };
        if seen.is_new {
            self.meet(&seen);
        }
        let seen = if self.pending && self.retry.is_none_or(|retry| now >= retry) {
            self.put(now);
            match self.daemon.look() {
                Ok(seen) => seen,
                Err(problem) => return self.unreachable(problem),
            }
        } else {
            seen
        };
        self.give_up_claims();
        self.prepared = self.preparing.iter().filter(|port| seen.has(port)).cloned().collect();
        seen.version().clone_into(&mut self.version);
        // Only a roll-out's gate judges them, and a switch has as many counters as ports.
        match self.in_step {
            None => self.drops.clear(),
            // What could not be read stays: from nothing, all that was ever dropped would look new.
            Some(_) => {
                self.drops = self.daemon.drops().unwrap_or_else(|| std::mem::take(&mut self.drops))
            }
        }
        self.findings = self.judge(seen);
    }

    /// Meets a switch that has started, or that this agent sees for the first time. The switch
    /// restores the ports from its own state, unless that was lost or this agent ended in between.
    /// The agent's copy on disk may be older than what the switch has, so until etcd was read it is
    /// given to the switch only if the switch has no port of the fleet.
    fn meet(&mut self, seen: &Seen) {
        let follows = self.kept.cluster != 0;
        if !follows || self.pending {
            return;
        }
        if seen.steps_away(&self.kept) == 0 {
            self.applied = self.kept.revision;
        } else {
            self.pending = self.read_at.is_some() || seen.has_none();
        }
    }

    fn unreachable(&mut self, problem: Problem) {
        self.version.clear();
        self.findings = vec![finding(Severity::Error, "daemon_unreachable", problem)];
    }

    fn put(&mut self, now: Instant) {
        self.counts.apply_retries += u64::from(self.retry.is_some());
        match self.daemon.put(self.kept.revision, &self.kept.ports) {
            Ok(plan) if plan.applied => {
                self.counts.applied += 1;
                tell(&plan, self.kept.revision);
                self.applied = self.kept.revision;
                (self.pending, self.retry, self.failed) = (false, None, None);
            }
            // Some steps failed: part of a revision is not the revision.
            Ok(plan) => {
                self.counts.failed += 1;
                let problem = tell(&plan, self.kept.revision);
                (self.retry, self.failed) = (Some(now + RETRY), Some(problem));
                return;
            }
            Err(ClientError::Refused(problem)) => {
                tracing::error!("the switch refuses revision {}: {problem}", self.kept.revision);
                self.counts.refused += 1;
                self.retry = Some(now + RETRY);
                self.refused = Some(*problem);
                return;
            }
            // The next look reports it.
            Err(ClientError::Unreachable(_)) => return,
        }
        // The refusal may be of an earlier attempt.
        if self.wanted == self.applied {
            self.refused = None;
        }
    }

    /// Gives up claims on ports that the switch no longer has.
    fn give_up_claims(&mut self) {
        if self.pending || self.refused.is_some() || self.unkept {
            return;
        }
        for (mac, fence) in std::mem::take(&mut self.leaving) {
            match self.store.give_up(mac, &self.options.host.name, fence) {
                Ok(true) => tracing::info!("gave up {}, with fencing token {fence}", mac.0),
                Ok(false) => tracing::warn!("{} was taken over before it was given up", mac.0),
                // The next read shows what etcd still has.
                Err(problem) => {
                    tracing::debug!("{problem}");
                    self.unread = true;
                }
            }
        }
    }

    fn judge(&self, seen: Seen) -> Vec<FindingBody> {
        let mut findings: Vec<FindingBody> = Vec::new();
        if let Some(problem) = &self.refused {
            findings.push(finding(Severity::Error, "fleet_refused", problem.clone()));
        }
        if let Some(problem) = self.unreadable.as_ref().filter(|_| self.backoff.is_lasting()) {
            findings.push(finding(Severity::Error, "fleet_unread", problem.clone()));
        }
        if let Some(problem) = &self.failed {
            findings.push(finding(Severity::Error, "fleet_step_failed", problem.clone()));
        }
        if let Some(held) = &self.kept.held {
            let problem =
                Problem::new("this host does not follow etcd, which was restored or lost its data")
                    .seen(&held.why)
                    .wanted("a desired state that was written since then")
                    .remedy(
                        "check `millrace fleet diff`, then apply the model that is to be in force",
                    );
            findings.push(finding(Severity::Warning, GONE_BACK, problem));
        }
        let ends = self.options.etcd.certificates_end();
        findings.extend(ends.iter().filter_map(|(whose, end)| ending(whose, *end, now())));
        findings.extend(self.claims.iter().cloned());
        findings.extend(self.changed_on_host(&seen));
        findings.extend(seen.findings(&self.kept));
        findings
    }

    /// Changes made to the fleet's ports through the switch's API, which last until the fleet next
    /// changes the host.
    fn changed_on_host(&self, seen: &Seen) -> Option<FindingBody> {
        if self.pending || self.kept.revision == 0 {
            return None;
        }
        let count = seen.steps_away(&self.kept);
        let problem = Problem::new("the fleet's ports were changed on this host")
            .seen(format!("{count} ports differ from revision {}", self.kept.revision))
            .wanted("the ports as the fleet defines them")
            .remedy("make the change in the model; the fleet's next change of this host undoes it");
        (count > 0).then(|| finding(Severity::Info, "changed_on_host", problem))
    }
}

/// Logs which steps the switch did; the problem names those it did not.
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

/// The finding of a certificate that ends soon: after that, the host reads nothing from etcd.
fn ending(whose: &str, end: u64, now: u64) -> Option<FindingBody> {
    if end > now.saturating_add(SOON.as_secs()) {
        return None;
    }
    let (owner, option) = match whose {
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
