//! Token buckets: one for a port's rate limit, and two for its storm control.

use crate::settings::{RateLimit, StormLimit};
use ports::Nanos;

/// Tokens of any unit, counted in billionths so that a nanosecond of any rate is a whole number of
/// them.
///
/// A frame may cost more than the bucket holds, as a train of 64 KiB does in a bucket of 10 KiB. It
/// passes once the bucket is full, or the port could never send it, and leaves a debt that must be
/// paid before anything else passes.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: u64,
    size: i128,
    /// Below zero while there is a debt.
    tokens: i128,
    /// The latest time seen. Workers read the clock at different moments, so a refill may come with
    /// an earlier one.
    last: Nanos,
}

const SCALE: i128 = 1_000_000_000;

impl Bucket {
    /// Makes a full bucket.
    pub(crate) fn new(per_second: u64, size: u64) -> Bucket {
        let size = i128::from(size) * SCALE;
        Bucket { per_second, size, tokens: size, last: Nanos(0) }
    }

    /// Makes a bucket of bits for a rate limit.
    pub(crate) fn of_rate(limit: RateLimit) -> Bucket {
        Bucket::new(limit.bits_per_second, limit.burst_bytes.saturating_mul(8))
    }

    /// Adds the tokens earned since the last refill.
    pub(crate) fn refill(&mut self, now: Nanos) {
        let gained = i128::from(now.since(self.last).0) * i128::from(self.per_second);
        self.tokens = (self.tokens + gained).min(self.size);
        self.last = self.last.max(now);
    }

    #[inline]
    fn allows(&self, cost: u64) -> bool {
        self.tokens >= (i128::from(cost) * SCALE).min(self.size)
    }

    #[inline]
    fn pay(&mut self, cost: u64) {
        self.tokens -= i128::from(cost) * SCALE;
    }

    /// Takes the tokens of a frame. Returns `false`, and takes none, if there are too few.
    #[inline]
    pub(crate) fn take(&mut self, cost: u64) -> bool {
        let allowed = self.allows(cost);
        if allowed {
            self.pay(cost);
        }
        allowed
    }
}

/// The most bytes that may be flooded at once. It bounds the bytes of one burst that are copied to
/// every port.
const STORM_BURST: u64 = 64 * 1024;

/// Storm control of one port: limits the frames and the bytes that it floods.
#[derive(Clone, Debug)]
pub(crate) struct Storm {
    frames: Bucket,
    bytes: Bucket,
}

impl Storm {
    pub(crate) fn new(limit: StormLimit) -> Storm {
        // A tenth of a second's share may pass at once.
        let frames = (limit.frames_per_second / 10).max(1);
        let bytes = (limit.bytes_per_second / 10).clamp(1, STORM_BURST);
        Storm {
            frames: Bucket::new(limit.frames_per_second, frames),
            bytes: Bucket::new(limit.bytes_per_second, bytes),
        }
    }

    pub(crate) fn refill(&mut self, now: Nanos) {
        self.frames.refill(now);
        self.bytes.refill(now);
    }

    /// Takes the tokens of one frame. Returns `false`, and takes none, if there are too few.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let allowed = self.frames.allows(1) && self.bytes.allows(bytes);
        if allowed {
            self.frames.pay(1);
            self.bytes.pay(bytes);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Holds even if workers read different clocks and frames are larger than the bucket.
        #[test]
        fn never_more_than_rate_and_burst_and_one_frame(
            rate in 1_000..10_000_000_000u64,
            size in 1_000..1_000_000u64,
            steps in prop::collection::vec((0..10_000_000u64, 0..2_000_000u64, 400..600_000u64), 1..300),
        ) {
            let mut bucket = Bucket::new(rate, size);
            let (mut now, mut passed, mut largest) = (0u64, 0u64, 0);
            for (pause, behind, cost) in steps {
                now += pause;
                bucket.refill(Nanos(now.saturating_sub(behind)));
                if bucket.take(cost) {
                    passed += cost;
                    largest = largest.max(cost);
                }
            }
            let earned = u128::from(now) * u128::from(rate) / 1_000_000_000;
            let allowed = u128::from(size.max(largest)) + earned + 1;
            prop_assert!(u128::from(passed) <= allowed, "{passed} passed, {allowed} allowed");
        }
    }

    #[test]
    fn a_clock_behind_earns_nothing_twice() {
        let mut bucket = Bucket::new(1_000, 1_000);
        assert!(bucket.take(1_000));
        for _ in 0..100 {
            bucket.refill(Nanos(100_000_000));
            bucket.refill(Nanos(0));
        }
        assert!(bucket.take(100), "a tenth of a second was earned");
        assert!(!bucket.take(1), "and no more");
    }

    #[test]
    fn a_train_larger_than_the_burst_is_paid_in_full() {
        let mut bucket = Bucket::new(8_000, 1_000);
        assert!(bucket.take(64_000));
        bucket.refill(Nanos(7_875_000_000));
        assert!(!bucket.take(1), "a debt of 63,000 takes 7.875 s");
        bucket.refill(Nanos(7_876_000_000));
        assert!(bucket.take(8));
    }

    #[test]
    fn a_busy_port_gets_its_rate() {
        let mut bucket = Bucket::new(8_000_000, 24_000);
        let mut passed = 0u64;
        for step in 0..10_000u64 {
            bucket.refill(Nanos(step * 100_000));
            if bucket.take(8_000) {
                passed += 1_000;
            }
        }
        assert!((999_000..=1_003_000).contains(&passed), "{passed} bytes in one second at 1 MB/s");
    }
}
