//! Tracks whether the switch has the revision that this host has: a state machine without input or
//! output, so that each change of state is in one place.

use problem::Problem;
use std::time::Instant;

/// The state of the switch, compared with the revision that the agent keeps.
#[derive(Debug, Default)]
pub(super) enum Following {
    /// The agent has given the switch nothing yet, and has not found the kept ports there.
    #[default]
    Idle,
    /// The switch has this revision of the fleet in force.
    InForce(u64),
    /// The switch has yet to take the kept ports.
    Pending(Pending),
}

/// Ports that the switch has yet to take.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The revision that is in force meanwhile; 0 if there is none, or it is not known.
    applied: u64,
    /// When to offer the ports again, if the switch did not take them all.
    retry: Option<Instant>,
    /// The steps that failed at the last attempt in which the switch carried out steps.
    failed: Option<Problem>,
}

impl Following {
    /// Returns the revision that the switch has in force; 0 if there is none, or it is not known
    /// yet.
    pub(super) fn applied(&self) -> u64 {
        match self {
            Following::Idle => 0,
            Following::InForce(revision) => *revision,
            Following::Pending(pending) => pending.applied,
        }
    }

    /// Whether the switch has yet to take the ports.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Following::Pending(_))
    }

    /// Whether to offer the ports to the switch now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        match self {
            Following::Pending(pending) => pending.retry.is_none_or(|retry| now >= retry),
            Following::Idle | Following::InForce(_) => false,
        }
    }

    /// Whether the next offer repeats one that the switch did not take.
    pub(super) fn is_retry(&self) -> bool {
        matches!(self, Following::Pending(Pending { retry: Some(_), .. }))
    }

    /// Returns the steps that failed, until the switch does all steps.
    pub(super) fn failure(&self) -> Option<&Problem> {
        match self {
            Following::Pending(pending) => pending.failed.as_ref(),
            Following::Idle | Following::InForce(_) => None,
        }
    }

    /// Notes that the ports changed or that the switch lacks some, so that they are offered in this
    /// round.
    pub(super) fn change(&mut self) {
        *self = Following::Pending(Pending { retry: None, ..self.pending() });
    }

    /// Records that the switch has all ports of this revision.
    pub(super) fn succeed(&mut self, revision: u64) {
        *self = Following::InForce(revision);
    }

    /// Records that steps failed, so that the revision is not in force.
    pub(super) fn fail(&mut self, problem: Problem, retry: Instant) {
        let (retry, failed) = (Some(retry), Some(problem));
        *self = Following::Pending(Pending { retry, failed, ..self.pending() });
    }

    /// Records that the switch refused the ports.
    pub(super) fn refuse(&mut self, retry: Instant) {
        *self = Following::Pending(Pending { retry: Some(retry), ..self.pending() });
    }

    /// Returns the pending state, or makes one with the revision that is in force meanwhile.
    fn pending(&mut self) -> Pending {
        match std::mem::take(self) {
            Following::Pending(pending) => pending,
            settled => Pending { applied: settled.applied(), ..Pending::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_failure_lasts_until_success_and_a_change_is_offered_at_once() {
        let (mut following, now) = (Following::default(), Instant::now());
        assert!(!following.is_due(now) && following.applied() == 0);
        following.succeed(7);
        assert!(!following.is_due(now) && following.applied() == 7);
        following.change();
        assert!(following.is_due(now) && !following.is_retry() && following.applied() == 7);
        let retry = now + Duration::from_secs(10);
        following.fail(Problem::new("a step failed"), retry);
        assert!(!following.is_due(now) && following.is_due(retry) && following.is_retry());
        following.refuse(retry);
        assert!(following.failure().is_some() && following.applied() == 7);
        following.change();
        assert!(following.is_due(now) && following.failure().is_some());
        following.succeed(8);
        assert!(following.failure().is_none() && !following.is_pending());
    }
}
