//! Limits how much a responder sends, by token buckets for datagrams and for bytes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A limit on what is sent, shared by all sessions of a responder.
pub(crate) struct Rate {
    per_second: f64,
    burst: f64,
    left: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(crate) fn new(per_second: u32, burst: u32) -> Rate {
        let burst = f64::from(burst);
        Rate { per_second: per_second.into(), burst, left: Mutex::new((burst, Instant::now())) }
    }

    /// Takes this many tokens, at most a full bucket. If there are too few, fails with the time
    /// until there are enough.
    pub(crate) fn take(&self, tokens: u32, now: Instant) -> Result<(), Duration> {
        let tokens = f64::from(tokens).min(self.burst);
        let mut left = ports::lock(&self.left);
        let came = now.saturating_duration_since(left.1).as_secs_f64() * self.per_second;
        *left = ((left.0 + came).min(self.burst), now.max(left.1));
        if left.0 < tokens {
            return Err(Duration::from_secs_f64((tokens - left.0) / self.per_second));
        }
        left.0 -= tokens;
        Ok(())
    }

    /// Waits until there are this many tokens, and takes them.
    pub(crate) fn wait(&self, tokens: u32) {
        while let Err(wait) = self.take(tokens, Instant::now()) {
            std::thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In no time more than the burst and what came back.
        #[test]
        fn no_more_passes_than_the_rate(asked in prop::collection::vec((1..50u32, 0..30u64), 1..200)) {
            let rate = Rate::new(1000, 100);
            let start = Instant::now();
            let (mut at, mut passed) = (start, 0);
            for (tokens, ms) in asked {
                at += Duration::from_millis(ms);
                passed += rate.take(tokens, at).map_or(0, |()| tokens);
                let most = 100.0 + (at - start).as_secs_f64() * 1000.0 + 1.0;
                prop_assert!(f64::from(passed) <= most);
            }
        }
    }
}
