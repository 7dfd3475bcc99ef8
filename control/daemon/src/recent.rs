//! Caches responses that any client may request. Each response is made at most twice a second, or
//! at the owner's interval: making one takes time of the switch's thread, for which all other
//! clients wait, or asks another program.

use std::time::{Duration, Instant};
use tokio::sync::Mutex;

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

    /// Reads the last response, or a new one if that is too old. Blocks while another caller makes
    /// one, so a task must call [`answer`](Recent::answer) instead.
    pub fn read<R>(&self, now: Instant, make: impl FnOnce() -> T, read: impl FnOnce(&T) -> R) -> R {
        let mut last = self.last.blocking_lock();
        let fresh = last.take().filter(|(at, _)| self.is_fresh(*at, now));
        read(&last.insert(fresh.unwrap_or_else(|| (now, make()))).1)
    }

    /// Like [`read`](Recent::read), for tasks.
    pub async fn answer<R>(
        &self,
        now: Instant,
        make: impl AsyncFnOnce() -> T,
        read: impl FnOnce(&T) -> R,
    ) -> R {
        let mut last = self.last.lock().await;
        let fresh = match last.take().filter(|(at, _)| self.is_fresh(*at, now)) {
            Some(fresh) => fresh,
            None => (now, make().await),
        };
        read(&last.insert(fresh).1)
    }

    fn is_fresh(&self, at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(at) < self.fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Each request for a port was answered anew, by the thread for which all other clients wait.
    #[test]
    fn the_switch_is_asked_twice_a_second_at_most() {
        let (recent, start, looks) = (Recent::default(), Instant::now(), Cell::new(0));
        let ask = |milliseconds| {
            let at = start + Duration::from_millis(milliseconds);
            recent.read(at, || looks.set(looks.get() + 1), |()| ());
            looks.get()
        };
        assert_eq!([0, 1, 499, 500, 700, 999, 1000].map(ask), [1, 1, 1, 2, 2, 2, 3]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = |milliseconds| {
            let at = start + Duration::from_millis(milliseconds);
            runtime.block_on(recent.answer(at, async || looks.set(looks.get() + 1), |()| ()));
            looks.get()
        };
        assert_eq!([1499, 1500, 1999, 2000].map(answer), [3, 4, 4, 5]);
    }
}
