//! Caches responses that any client may request. Each response is made at most twice a second, or
//! at the owner's interval: making one takes the lock for which all other clients wait, or asks
//! another program.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a response is reused.
const FRESH: Duration = Duration::from_millis(500);

/// The last response.
pub struct Recent<T> {
    fresh: Duration,
    last: Mutex<Option<(Instant, T)>>,
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent::lasting(FRESH)
    }
}

impl<T> Recent<T> {
    /// Returns a cache that reuses responses for this long.
    pub fn lasting(fresh: Duration) -> Recent<T> {
        Recent { fresh, last: Mutex::default() }
    }

    /// Reads the last response, or a new one if that is too old.
    pub fn read<R>(&self, now: Instant, make: impl FnOnce() -> T, read: impl FnOnce(&T) -> R) -> R {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.take().filter(|(at, _)| now.saturating_duration_since(*at) < self.fresh);
        read(&last.insert(fresh.unwrap_or_else(|| (now, make()))).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Each request for a port was answered anew, under the lock for which all other clients wait.
    #[test]
    fn the_switch_is_asked_twice_a_second_at_most() {
        let (recent, start, looks) = (Recent::default(), Instant::now(), Cell::new(0));
        let ask = |milliseconds| {
            let at = start + Duration::from_millis(milliseconds);
            recent.read(at, || looks.set(looks.get() + 1), |()| ());
            looks.get()
        };
        assert_eq!([0, 1, 499, 500, 700, 999, 1000].map(ask), [1, 1, 1, 2, 2, 2, 3]);
    }
}
