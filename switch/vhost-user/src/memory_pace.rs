//! Limits how often a front end may change its guest's memory map.
//!
//! A change maps all regions anew, under a lock of the process that page faults of workers take
//! too. Every session has an allowance of one second of mapping time ([`FREE`]), more than a guest
//! with the most regions needs to start. The allowance refills at 1/256 of real time. A change
//! beyond the allowance is added to a debt that all sessions share. The debt is paid off at a
//! quarter of real time, and the front end's next message waits until it is paid off, at most
//! [`LONGEST`]. So sessions that change maps for ever together hold the lock for a quarter of the
//! time, however many they are, beside their allowances, as long as one change takes no more than a
//! quarter of `LONGEST`.
//!
//! The dirty log and the inflight region are part of what is mapped: a front end may replace them as
//! well.
//!
//! The allowance belongs to the session, not to the connection, so reconnecting does not renew it.
//!
//! Messages themselves are paced too ([`MessagePace`]): each takes processor time and, mostly, the
//! lock of a ring.

use crate::lock::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A session's allowance of mapping time before it has to wait.
const FREE: Duration = Duration::from_secs(1);
/// Seconds in which one second of the allowance is refilled.
const REFILL: u32 = 256;
/// Seconds in which one second of the shared debt is paid off.
const SHARE: u32 = 4;
/// The longest wait of a front end.
const LONGEST: Duration = Duration::from_secs(1);

/// The debt that all sessions share.
static OWED: Mutex<Debt> = Mutex::new(Debt(None));

/// The time at which a debt will be paid off; `None` if there never was one.
#[derive(Debug, Default)]
struct Debt(Option<Instant>);

impl Debt {
    /// Adds a debt that takes `more` time to pay off; the total is capped at `most`. Returns the
    /// time until the total is paid off, and whether it was below the cap.
    fn add(&mut self, now: Instant, more: Duration, most: Duration) -> (Duration, bool) {
        let left = self.0.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        let wanted = left.saturating_add(more);
        self.0 = Some(now + wanted.min(most));
        (wanted.min(most), wanted <= most)
    }
}

/// A session's allowance, as the head of this file explains.
#[derive(Debug, Default)]
pub(crate) struct MemoryPace(Debt);

impl MemoryPace {
    /// Returns how long the front end has to wait after a change that ends at `now` and took
    /// `took`.
    pub(crate) fn pause(&mut self, now: Instant, took: Duration) -> Duration {
        self.pause_beside(&mut lock(&OWED), now, took)
    }

    fn pause_beside(&mut self, owed: &mut Debt, now: Instant, took: Duration) -> Duration {
        let took = took.min(10 * FREE);
        let (_, is_free) = self.0.add(now, took * REFILL, FREE * REFILL);
        if is_free { Duration::ZERO } else { owed.add(now, took * SHARE, LONGEST).0 }
    }
}

/// A session's allowance of time in which its thread serves messages: a second, enough for the
/// thousands with which a guest of many rings starts. Beyond it, the front end has one in
/// [`MESSAGES`] parts of the time.
#[derive(Debug, Default)]
pub(crate) struct MessagePace(Debt);

/// One part of the time goes to messages, the others to waiting.
const MESSAGES: u32 = 16;

impl MessagePace {
    /// Returns how long the front end has to wait after a message that ended at `now` and took
    /// `took`.
    pub(crate) fn pause(&mut self, now: Instant, took: Duration) -> Duration {
        let (took, allowed) = (took.min(10 * FREE), FREE * MESSAGES);
        let (owed, _) = self.0.add(now, took * MESSAGES, allowed + LONGEST);
        owed.saturating_sub(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60,000 messages a second cost the guests beside a quarter of their traffic.
    #[test]
    fn messages_without_end_have_a_second_and_a_sixteenth_of_the_time() {
        const MESSAGE: Duration = Duration::from_micros(16);
        let (start, mut pace) = (Instant::now(), MessagePace::default());
        let (mut now, mut taken) = (start, Duration::ZERO);
        while now < start + Duration::from_secs(100) {
            (now, taken) = (now + MESSAGE, taken + MESSAGE);
            now += pace.pause(now, MESSAGE);
        }
        assert!((6.0..8.5).contains(&taken.as_secs_f64()), "{taken:?}");
        assert_eq!(pace.pause(now + FREE * MESSAGES, FREE / 2), Duration::ZERO, "a quiet time");
        assert_eq!(pace.pause(now + FREE * MESSAGES, Duration::MAX), LONGEST);
    }

    const CHANGE: Duration = Duration::from_millis(2);

    /// Sessions that change as often as they may for so long: seconds that each has taken.
    fn taken(sessions: usize, seconds: u64) -> Vec<f64> {
        let (start, mut owed) = (Instant::now(), Debt::default());
        let mut each: Vec<_> = (0..sessions).map(|_| (MemoryPace::default(), start, 0.0)).collect();
        let end = start + Duration::from_secs(seconds);
        // The lock is one: changes come one after the other.
        let mut now = start;
        while let Some((pace, next, taken)) = each.iter_mut().min_by_key(|(_, next, _)| *next)
            && now.max(*next) < end
        {
            now = now.max(*next) + CHANGE;
            *taken += CHANGE.as_secs_f64();
            *next = now + pace.pause_beside(&mut owed, now, CHANGE);
        }
        each.into_iter().map(|(_, _, taken)| taken).collect()
    }

    #[test]
    fn one_has_a_second_and_a_fifth_of_the_time() {
        let taken = taken(1, 100)[0];
        assert!((19.0..22.0).contains(&taken), "{taken} s");
    }

    /// Eight that changed maps had the lock all the time.
    #[test]
    fn many_have_a_second_each_and_a_quarter_of_the_time_together() {
        for sessions in [8, 64] {
            let taken = taken(sessions, 256);
            let (sum, free) = (taken.iter().sum::<f64>(), 2.0 * taken.len() as f64);
            assert!((48.0..64.0 + free).contains(&sum), "{taken:?}");
            let equal = sum / taken.len() as f64;
            assert!(taken.iter().all(|one| (0.8..1.2).contains(&(one / equal))), "{taken:?}");
        }
    }

    /// A guest that came with a few hundred regions waited for two seconds more.
    #[test]
    fn one_that_comes_waits_for_none_of_the_others() {
        let (now, mut owed) = (Instant::now(), Debt::default());
        owed.add(now, LONGEST, LONGEST);
        let mut pace = MemoryPace::default();
        for _ in 0..FREE.as_millis() / CHANGE.as_millis() {
            assert_eq!(pace.pause_beside(&mut owed, now, CHANGE), Duration::ZERO);
        }
        assert_eq!(pace.pause_beside(&mut owed, now, CHANGE), LONGEST);
    }

    #[test]
    fn no_pause_is_longer_than_a_second_and_time_makes_all_good() {
        let (now, mut owed, mut pace) = (Instant::now(), Debt::default(), MemoryPace::default());
        assert_eq!(pace.pause_beside(&mut owed, now, Duration::MAX), LONGEST);
        let later = now + FREE * REFILL;
        assert_eq!(pace.pause_beside(&mut owed, later, FREE), Duration::ZERO);
    }
}
