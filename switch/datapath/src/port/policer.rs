//! The policer of what a port may receive (`rate-to`): passes frames up to the rate, and drops the
//! others.
//!
//! What a port receives has many senders, which cannot all wait for one receiver. So it is dropped
//! here, in segments, not in trains: a sender that loses one segment slows down, one that loses its
//! whole window waits for a timeout. For the same reason a few segments are dropped early, while
//! tokens become short: as random early detection does, but of a queue that exists only as the
//! missing tokens.

use crate::port::bucket::Bucket;
use ports::Nanos;

/// The bucket in time at the rate. The rate and this are never more than 102 % of a second's.
const DEPTH: Nanos = Nanos(16_000_000);
/// The least that it holds, in bytes: two frames.
const LEAST: u64 = 3_036;

/// Parts of the bucket in the curve of early drops: none above [`QUIET`], then by the cube of what
/// is missing, up to one segment in [`MOST`].
const PARTS: u32 = 1024;
const QUIET: u64 = 768;
const MOST: u64 = 16;
/// One early drop, in the unit of [`Policer::due`].
const DROP: u64 = MOST * QUIET.pow(3);

/// Limits what a port receives.
#[derive(Clone, Debug)]
pub(crate) struct Policer {
    bucket: Bucket,
    /// The part of the next early drop that is due.
    due: u64,
}

impl Policer {
    pub(crate) fn new(bits_per_second: u64) -> Policer {
        let depth = u128::from(bits_per_second) * u128::from(DEPTH.0) / u128::from(Nanos::SECOND.0);
        let size = u64::try_from(depth).unwrap_or(u64::MAX).max(8 * LEAST);
        Policer { bucket: Bucket::new(bits_per_second, size), due: 0 }
    }

    /// Adds the tokens earned since the last refill.
    pub(crate) fn refill(&mut self, now: Nanos) {
        self.bucket.refill(now);
    }

    /// Takes the tokens of a frame of so many segments, as far as there are enough. Returns how many
    /// of the segments pass, the first ones.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u64, segments: u64) -> u64 {
        let (bits, segments) = (bytes.saturating_mul(8), segments.max(1));
        let early = u64::from(self.is_early_drop(segments));
        let each = bits.div_ceil(segments).max(1);
        // A frame larger than the bucket passes once that is full.
        let possible =
            if self.bucket.allows(each) { (self.bucket.left() / each).max(1) } else { 0 };
        let passing = possible.min(segments - early);
        self.bucket.pay(bits.saturating_mul(passing) / segments);
        passing
    }

    /// Returns whether one of so many segments is dropped although there are tokens.
    fn is_early_drop(&mut self, segments: u64) -> bool {
        let level = u64::try_from(self.bucket.level(PARTS)).unwrap_or_default();
        let missing = QUIET.saturating_sub(level);
        self.due = self.due.saturating_add(missing.pow(3).saturating_mul(segments));
        let is_due = self.due >= DROP;
        if is_due {
            self.due = (self.due - DROP).min(DROP);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Offered more, a port gets its rate, and in no second more than 102 % of it.
        #[test]
        fn a_port_offered_more_gets_its_rate_and_no_more(
            mbit in prop_oneof![50..200u64, 200..10_000u64],
            (segments, length) in prop_oneof![(Just(1u64), 60..9000u64), (1..45u64, Just(1514u64))],
            factor in 2..10u64,
        ) {
            let (bits, bytes) = (mbit * 1_000_000, segments * length);
            let mut policer = Policer::new(bits);
            let step = (bytes * 8_000_000_000 / (bits * factor)).max(1);
            let (mut now, mut seconds) = (0, [0u64; 3]);
            while now < 3 * Nanos::SECOND.0 {
                policer.refill(Nanos(now));
                let passed = policer.take(bytes, segments) * length;
                seconds[usize::try_from(now / Nanos::SECOND.0).unwrap()] += passed;
                now += step;
            }
            for passed in seconds {
                let share = passed * 1000 / (bits / 8);
                prop_assert!((985..=1020).contains(&share), "{share} thousandths in one second");
            }
        }

        /// A port below three quarters of its rate loses nothing, trains included.
        #[test]
        fn a_port_below_its_rate_loses_nothing(mbit in 200..10_000u64, segments in 1..45u64) {
            let mut policer = Policer::new(mbit * 1_000_000);
            let bytes = segments * 1514;
            let step = bytes * 8_000 * 4 / 3 / mbit;
            for turn in 0..10_000 {
                policer.refill(Nanos(turn * step));
                prop_assert_eq!(policer.take(bytes, segments), segments);
            }
        }
    }

    /// Early drops come one at a time: a window of a sender is not lost as a whole.
    #[test]
    fn segments_are_dropped_one_at_a_time_before_tokens_are_short() {
        let mut policer = Policer::new(1_000_000_000);
        policer.refill(Nanos::SECOND);
        let passed: Vec<_> = (0..30).map(|_| policer.take(45 * 1448, 45)).collect();
        assert!(passed.iter().all(|passed| *passed >= 44), "{passed:?}");
        assert!(passed.contains(&44), "{passed:?}");
    }

    #[test]
    fn a_frame_larger_than_the_bucket_passes_once_it_is_full() {
        let mut policer = Policer::new(1_000);
        assert_eq!(policer.take(9_014, 1), 1);
        policer.refill(Nanos::SECOND);
        assert_eq!(policer.take(60, 1), 0);
    }
}
