//! The token bucket of a port's rate limit.

use crate::settings::RateLimit;
use ports::Nanos;

/// Tokens of a bucket, in bits scaled so that a nanosecond of any rate is a whole number of them.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: RateLimit,
    /// Bits that may pass, times 10^9.
    tokens: u128,
    last: Nanos,
}

const SCALE: u128 = 1_000_000_000;

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(limit: RateLimit) -> Bucket {
        Bucket { limit, tokens: Self::size(limit), last: Nanos(0) }
    }

    fn size(limit: RateLimit) -> u128 {
        u128::from(limit.burst_bytes) * 8 * SCALE
    }

    /// Adds what time has brought.
    pub(crate) fn refill(&mut self, now: Nanos) {
        let gained = u128::from(now.since(self.last).0) * u128::from(self.limit.bits_per_second);
        self.tokens = (self.tokens + gained).min(Self::size(self.limit));
        self.last = now;
    }

    /// Takes the tokens of a frame, or refuses it. A frame larger than the whole bucket passes when the bucket is full,
    /// or a port with a small burst could never send it.
    pub(crate) fn admit(&mut self, bytes: u32) -> bool {
        let needed = u128::from(bytes) * 8 * SCALE;
        let enough = self.tokens >= needed.min(Self::size(self.limit));
        if enough {
            self.tokens = self.tokens.saturating_sub(needed);
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_more_than_rate_and_burst(
            rate in 1_000..10_000_000_000u64,
            burst in 1_500..100_000u64,
            steps in prop::collection::vec((0..10_000_000u64, 60..1_500u32), 1..300),
        ) {
            let mut bucket = Bucket::new(RateLimit { bits_per_second: rate, burst_bytes: burst });
            let (mut now, mut passed) = (0u64, 0u64);
            for (pause, bytes) in steps {
                now += pause;
                bucket.refill(Nanos(now));
                if bucket.admit(bytes) {
                    passed += u64::from(bytes);
                }
            }
            let allowed = u128::from(burst) + u128::from(now) * u128::from(rate) / 8 / SCALE + 1;
            prop_assert!(u128::from(passed) <= allowed, "{passed} passed, {allowed} allowed");
        }
    }

    #[test]
    fn a_busy_port_gets_its_rate() {
        let mut bucket = Bucket::new(RateLimit { bits_per_second: 8_000_000, burst_bytes: 3_000 });
        let mut passed = 0u64;
        for step in 0..10_000u64 {
            bucket.refill(Nanos(step * 100_000));
            if bucket.admit(1_000) {
                passed += 1_000;
            }
        }
        assert!((999_000..=1_003_000).contains(&passed), "{passed} bytes in one second at 1 MB/s");
    }
}
