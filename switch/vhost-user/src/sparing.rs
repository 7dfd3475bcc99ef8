//! What a front end can repeat as often as it likes is told the first few times, and then once
//! every so often with a count, so that it fills no log.

use std::mem;
use std::time::{Duration, Instant};

/// What is told at once.
const FIRST: u32 = 10;
/// How often it is told after that.
const EVERY: Duration = Duration::from_secs(60);

/// Limits how often a repeatable message is logged. A quiet period resets the burst allowance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sparing {
    /// What was told takes [`EVERY`] each, and lasts until then.
    until: Option<Instant>,
    untold: u64,
}

impl Sparing {
    /// Whether to tell of something that has happened now: how many times were left out before.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        let until = self.until.map_or(now, |until| until.max(now)) + EVERY;
        if until > now + EVERY * FIRST {
            self.untold += 1;
            return None;
        }
        self.until = Some(until);
        Some(mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_told_then_one_a_minute_with_a_count() {
        let start = Instant::now();
        let mut sparing = Sparing::default();
        let told: Vec<_> = (0..3000)
            .filter_map(|tenth| {
                let now = start + Duration::from_millis(100 * tenth);
                Some((tenth / 600, sparing.next(now)?))
            })
            .collect();
        assert_eq!(told[..10], [(0, 0); 10]);
        assert_eq!(told[10..], [(1, 590), (2, 599), (3, 599), (4, 599)]);
        assert_eq!(sparing.next(start + Duration::from_secs(3600)), Some(599));
    }
}
