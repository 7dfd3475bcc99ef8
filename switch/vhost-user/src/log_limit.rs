//! A limit for log messages that a front end can cause as often as it likes, so that it cannot fill
//! the log: the first few are logged at once, later ones at an interval, with a count.

use std::mem;
use std::time::{Duration, Instant};

/// Messages that may be logged at once.
const BURST: u32 = 10;
/// The interval between messages after that.
const INTERVAL: Duration = Duration::from_secs(60);

/// Limits how often a repeatable message is logged. A quiet period resets the burst allowance.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLimit {
    /// When the allowance is whole again: each logged message moves this on by one [`INTERVAL`].
    until: Option<Instant>,
    /// Messages suppressed since the last logged one.
    suppressed: u64,
}

impl LogLimit {
    /// Asks whether to log a message at `now`. Returns the number of messages suppressed since the
    /// last logged one; `None` if this one is to be suppressed as well.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        let until = self.until.map_or(now, |until| until.max(now)) + INTERVAL;
        if until > now + INTERVAL * BURST {
            self.suppressed += 1;
            return None;
        }
        self.until = Some(until);
        Some(mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_told_then_one_a_minute_with_a_count() {
        let start = Instant::now();
        let mut limit = LogLimit::default();
        let told: Vec<_> = (0..3000)
            .filter_map(|tenth| {
                let now = start + Duration::from_millis(100 * tenth);
                Some((tenth / 600, limit.next(now)?))
            })
            .collect();
        assert_eq!(told[..10], [(0, 0); 10]);
        assert_eq!(told[10..], [(1, 590), (2, 599), (3, 599), (4, 599)]);
        assert_eq!(limit.next(start + Duration::from_secs(3600)), Some(599));
    }
}
