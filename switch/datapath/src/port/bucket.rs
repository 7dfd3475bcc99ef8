//! Token buckets: of a port's [rate](super::rate), of its [pacer](super::pacer), and two of its
//! storm control.

use crate::settings::StormLimit;
use ports::Nanos;

/// Tokens of any unit, counted in billionths so that a nanosecond of any rate is a whole number of
/// them.
///
/// A frame may cost more than the bucket holds, as a train of 64 KiB does in a bucket of 10 KiB. It
/// leaves a debt, which must be paid before anything else passes.
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

    /// Adds the tokens earned since the last refill.
    pub(crate) fn refill(&mut self, now: Nanos) {
        let gained = i128::from(now.since(self.last).0) * i128::from(self.per_second);
        self.tokens = (self.tokens + gained).min(self.size);
        self.last = self.last.max(now);
    }

    /// Returns whether a frame of this cost may pass.
    #[inline]
    pub(crate) fn allows(&self, cost: u64) -> bool {
        self.tokens >= (i128::from(cost) * SCALE).min(self.size)
    }

    /// Takes tokens, whether there are as many or not.
    #[inline]
    pub(crate) fn pay(&mut self, cost: u64) {
        self.tokens -= i128::from(cost) * SCALE;
    }

    /// Takes the tokens of a frame of this cost if it may pass, and returns whether it may.
    pub(crate) fn take(&mut self, cost: u64) -> bool {
        let allowed = self.allows(cost);
        if allowed {
            self.pay(cost);
        }
        allowed
    }

    /// Returns how long it takes until a frame of this cost may pass.
    pub(crate) fn time_until(&self, cost: u64) -> Nanos {
        self.time_to_have((i128::from(cost) * SCALE).min(self.size))
    }

    fn time_to_have(&self, tokens: i128) -> Nanos {
        let by = i128::from(self.per_second.max(1));
        let nanos = ((tokens - self.tokens).max(0) + by - 1) / by;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the whole tokens that are left; none if there is a debt.
    pub(crate) fn left(&self) -> u64 {
        u64::try_from(self.tokens / SCALE).unwrap_or_default()
    }

    /// Returns how full the bucket is, in this many parts; below zero while there is a debt.
    pub(crate) fn level(&self, parts: u32) -> i128 {
        self.tokens * i128::from(parts) / self.size.max(1)
    }

    /// Returns how long it takes until so many of this many parts of the bucket are full.
    pub(crate) fn time_to(&self, part: u32, parts: u32) -> Nanos {
        let parts = i128::from(parts);
        self.time_to_have((self.size * i128::from(part) + parts - 1) / parts)
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

    #[test]
    fn a_clock_behind_earns_nothing_twice() {
        let mut bucket = Bucket::new(1_000, 1_000);
        bucket.pay(1_000);
        for _ in 0..100 {
            bucket.refill(Nanos(100_000_000));
            bucket.refill(Nanos(0));
        }
        assert_eq!(bucket.left(), 100, "a tenth of a second was earned, and no more");
    }

    #[test]
    fn a_train_larger_than_the_burst_is_paid_in_full() {
        let mut bucket = Bucket::new(8_000, 1_000);
        assert!(bucket.allows(64_000));
        bucket.pay(64_000);
        bucket.refill(Nanos(7_875_000_000));
        assert!(!bucket.allows(1), "a debt of 63,000 takes 7.875 s");
        assert_eq!(bucket.time_to(1, 125), Nanos(1_000_000));
        bucket.refill(Nanos(7_876_000_000));
        assert!(bucket.allows(8));
    }
}
