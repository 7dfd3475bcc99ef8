//! When to retry: the delay about doubles with each consecutive failure, and differs from agent to
//! agent, so that not all hosts ask an etcd that returns at the same moment.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// Consecutive failures, when the next attempt is due, and how often one was retried.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
    /// Attempts since the start that followed a failed one.
    retries: u64,
}

impl Backoff {
    /// Returns the delay after this many failures: a quarter of the whole delay, and `share` (0 to
    /// 1) of the other three quarters.
    fn delay(failures: u32, share: f64) -> Duration {
        let whole = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST);
        whole / 4 + whole.mul_f64(0.75 * share)
    }

    /// Records a failure. Returns how long to wait.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        self.retries += u64::from(self.failures > 0);
        self.failures = self.failures.saturating_add(1);
        let delay = Backoff::delay(self.failures, fastrand::f64());
        self.until = Some(now + delay);
        delay
    }

    /// Whether there was exactly one failure since the last success.
    pub(super) fn is_first(&self) -> bool {
        self.failures == 1
    }

    /// Whether there were several consecutive failures, so that this is more than a brief
    /// interruption.
    pub(super) fn is_lasting(&self) -> bool {
        self.failures >= 4
    }

    /// Records a success. Returns whether there were failures before it.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_failing = self.failures > 0;
        let retries = self.retries + u64::from(was_failing);
        *self = Backoff { retries, ..Backoff::default() };
        was_failing
    }

    /// Attempts since the start that followed a failed one.
    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// Whether an attempt is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_are_spread() {
        let bounds = |failures| [0.0, 1.0].map(|share| Backoff::delay(failures, share).as_millis());
        assert_eq!((bounds(1), bounds(2)), ([125, 500], [250, 1000]));
        assert_eq!((bounds(6), bounds(u32::MAX)), ([2500, 10_000], [2500, 10_000]));
    }

    #[test]
    fn an_attempt_is_due_after_the_delay_or_after_a_success() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        assert!(backoff.is_due(start) && !backoff.succeeded());
        let delay = backoff.failed(start);
        assert!(backoff.is_first() && !backoff.is_due(start) && backoff.is_due(start + delay));
        backoff.failed(start);
        assert!(!backoff.is_first() && backoff.succeeded() && backoff.is_due(start));
        assert!(!backoff.succeeded());
        assert_eq!(backoff.retries(), 2, "the second attempt, and the third, which succeeded");
    }
}
