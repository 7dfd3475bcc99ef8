//! How often a front end may change the map of its guest's memory.
//!
//! A change maps all regions anew, under a lock of the process that page faults of workers take
//! too. Every session has a second for it ([`FREE`]), more than a guest takes that comes with as
//! many regions as it may have. Time makes good a 256th of itself. A change for which nothing of
//! that second is left is a debt of all sessions together, which time pays off at a quarter, and
//! the front end's next message waits until it is paid off, [`LONGEST`] at most. So those that
//! change maps for ever have the lock for a quarter of the time, however many they are, while a
//! change takes a quarter of `LONGEST` or less, and beside it what they have for free.
//!
//! The second is the session's, not the connection's, so that connecting again brings no other.

use crate::lock::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a session may take before it waits.
const FREE: Duration = Duration::from_secs(1);
/// Time makes good a second of that in as many.
const REFILL: u32 = 256;
/// Time pays off a second of what all owe in as many.
const SHARE: u32 = 4;
/// No front end waits for longer.
const LONGEST: Duration = Duration::from_secs(1);

/// What all owe.
static OWED: Mutex<Debt> = Mutex::new(Debt(None));

/// When it will be paid off; `None`: there never was one.
#[derive(Debug, Default)]
struct Debt(Option<Instant>);

impl Debt {
    /// Adds what is paid off in so long, but no more than fits in `most`; in what time all is paid
    /// off, and whether it fitted.
    fn add(&mut self, now: Instant, more: Duration, most: Duration) -> (Duration, bool) {
        let left = self.0.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        let wanted = left.saturating_add(more);
        self.0 = Some(now + wanted.min(most));
        (wanted.min(most), wanted <= most)
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct MemoryPace(Debt);

impl MemoryPace {
    /// How long the front end waits after a change that ends now and took so long.
    pub(crate) fn pause(&mut self, now: Instant, took: Duration) -> Duration {
        self.pause_beside(&mut lock(&OWED), now, took)
    }

    fn pause_beside(&mut self, owed: &mut Debt, now: Instant, took: Duration) -> Duration {
        let took = took.min(10 * FREE);
        let (_, is_free) = self.0.add(now, took * REFILL, FREE * REFILL);
        if is_free { Duration::ZERO } else { owed.add(now, took * SHARE, LONGEST).0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
