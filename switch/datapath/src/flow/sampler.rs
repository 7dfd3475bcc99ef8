//! Which of many frames a worker looks at: the first [`FIRST`] of each millisecond, and of the
//! others one in [`ONE_IN`].
//!
//! So a worker that has little to do looks at every frame, and flows are exact; one that has much
//! to do pays for few. The distance to the next frame is drawn at random, so that no flow whose
//! frames come in a rhythm is always met or always missed.

use crate::frame::hash::mix;
use ports::Nanos;
use std::hash::{BuildHasher, RandomState};

/// The frames of each millisecond that are all looked at.
pub const FIRST: u32 = 16;
/// The mean distance of the frames that are looked at behind them.
pub const ONE_IN: u32 = 256;

const WINDOW: Nanos = Nanos::MILLISECOND;

/// Counts frames down to the next one to look at.
pub(super) struct Sampler {
    /// When the window ends.
    end: Nanos,
    /// How many of the window's first frames have not come yet.
    first: u32,
    /// Frames to pass over before the next one.
    distance: u32,
    random: u64,
}

impl Sampler {
    pub(super) fn new() -> Sampler {
        let random = RandomState::new().hash_one(0);
        Sampler { end: Nanos(0), first: 0, distance: 0, random }
    }

    /// Passes over the next `count` frames if none of them is to be looked at. Returns whether it
    /// did.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a turn has a few thousand frames at most")]
    pub(super) fn passes_over(&mut self, count: usize, now: Nanos) -> bool {
        if now >= self.end {
            (self.end, self.first) = (now + WINDOW, FIRST);
        }
        let passes = self.first == 0 && count as u32 <= self.distance;
        if passes {
            self.distance -= count as u32;
        }
        passes
    }

    /// Returns how many of the next `left` frames to pass over before the one to look at, and how
    /// many frames that one stands for; `None` if all are passed over.
    #[allow(clippy::cast_possible_truncation, reason = "a turn has a few thousand frames at most")]
    pub(super) fn next(&mut self, left: usize) -> Option<(usize, u64)> {
        if left == 0 {
            return None;
        }
        if self.first > 0 {
            self.first -= 1;
            return Some((0, 1));
        }
        let distance = self.distance as usize;
        if distance >= left {
            self.distance -= left as u32;
            return None;
        }
        self.distance = self.draw();
        Some((distance, ONE_IN.into()))
    }

    /// Draws a distance whose mean, with the frame behind it, is [`ONE_IN`].
    #[allow(clippy::cast_possible_truncation, reason = "a remainder of 511")]
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let drawn = mix(self.random, self.random ^ 0xd1b5_4a32_d192_ed03);
        (drawn % u64::from(2 * ONE_IN - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sum that the frames looked at stand for, of lists of these lengths.
    fn told(sampler: &mut Sampler, lists: impl Iterator<Item = (usize, Nanos)>) -> u64 {
        let mut sum = 0;
        for (mut left, now) in lists {
            if sampler.passes_over(left, now) {
                continue;
            }
            while let Some((skipped, weight)) = sampler.next(left) {
                (left, sum) = (left - skipped - 1, sum + weight);
            }
        }
        sum
    }

    #[test]
    fn what_is_slow_is_exact() {
        let mut sampler = Sampler::new();
        let slow = (0..1000).map(|number| (1, Nanos(number * 100_000)));
        assert_eq!(told(&mut sampler, slow), 1000);
    }

    /// Two million frames are looked at 7,800 times: a deviation of 0.7 %, of which four times are
    /// allowed.
    #[test]
    fn what_is_fast_is_told_within_its_error() {
        let mut sampler = Sampler::new();
        let lists = [256, 1, 7, 0, 100, 3].into_iter().cycle().take(32_700);
        let frames: usize = lists.clone().sum();
        let sum = told(&mut sampler, lists.map(|count| (count, Nanos(1))));
        let error = sum.abs_diff(frames as u64);
        assert!(error * 100 < 3 * frames as u64, "{sum} of {frames}");
    }
}
