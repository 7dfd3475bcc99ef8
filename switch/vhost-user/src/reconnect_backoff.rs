//! Delays front ends that connect in a loop.
//!
//! QEMU reconnects at once if it refuses what the back end answers, for ever and hundreds of times
//! a second. So after a few connections in a row that moved no frame, the session waits before it
//! serves the next one, longer each time, and logs a warning.

use rustix::event::Timespec;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Futile connections in a row after which the next one is delayed.
const FUTILE_LIMIT: u32 = 5;
/// A connection that lasts at least this long is not part of a loop.
const LONG: Duration = Duration::from_secs(1);
/// The first pause and the longest, in milliseconds. Each pause is twice the one before.
const FIRST_MS: u64 = 100;
const LONGEST_MS: u64 = 2000;

/// How the connections so far ended. Written by the session's thread, read by
/// [`Session::status`](crate::Session::status).
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    /// Futile connections in a row: short ones that moved no frame.
    futile: AtomicU32,
    /// Whether a ring has moved on in the current connection.
    moved: AtomicBool,
}

impl ReconnectBackoff {
    /// Notes that a front end has connected.
    pub(crate) fn begin(&self) {
        self.moved.store(false, Relaxed);
    }

    /// Notes that buffers of one of the front end's rings were used.
    pub(crate) fn note_moved(&self) {
        self.moved.store(true, Relaxed);
    }

    /// Notes that the front end has disconnected. Returns whether this connection is the one after
    /// which front ends have to wait.
    pub(crate) fn end(&self, lasted: Duration) -> bool {
        if self.moved.load(Relaxed) || lasted >= LONG {
            self.futile.store(0, Relaxed);
            return false;
        }
        self.futile.fetch_add(1, Relaxed) + 1 == FUTILE_LIMIT
    }

    /// Returns how long the next front end has to wait; `None` if it is served at once.
    pub(crate) fn pause(&self) -> Option<Timespec> {
        let beyond = self.futile.load(Relaxed).checked_sub(FUTILE_LIMIT)?;
        let ms = LONGEST_MS.min(FIRST_MS << beyond.min(8));
        Timespec::try_from(Duration::from_millis(ms)).ok()
    }

    /// Returns the warning about a loop, for a port that has `pairs` queue pairs; `None` if front
    /// ends are not delayed.
    pub(crate) fn complaint(&self, pairs: u16) -> Option<String> {
        let futile = self.futile.load(Relaxed);
        (futile >= FUTILE_LIMIT).then(|| {
            format!(
                "a front end connected and disconnected {futile} times in a row without moving a frame, so its next attempts \
                 are delayed: see its own log; this port has {pairs} queue pairs, and a guest may not have more \
                 (QEMU's `queues=`)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_and_goes_waits_longer_each_time_until_frames_move() {
        let backoff = ReconnectBackoff::default();
        let futile = || {
            backoff.begin();
            backoff.end(Duration::from_millis(1))
        };
        assert_eq!([(); 6].map(|()| futile()), [false, false, false, false, true, false]);
        let ms = |pause: Option<Timespec>| {
            pause.map(|pause| pause.tv_sec * 1000 + pause.tv_nsec / 1_000_000)
        };
        let pauses = [(); 6].map(|()| {
            futile();
            ms(backoff.pause())
        });
        assert_eq!(pauses, [400, 800, 1600, 2000, 2000, 2000].map(Some));
        assert!(backoff.complaint(2).unwrap().contains("12 times"));
        backoff.begin();
        backoff.note_moved();
        assert!(!backoff.end(Duration::ZERO));
        assert_eq!((backoff.pause(), backoff.complaint(2)), (None, None));
    }

    #[test]
    fn a_long_connection_is_no_loop() {
        let backoff = ReconnectBackoff::default();
        for _ in 0..20 {
            backoff.begin();
            assert!(!backoff.end(LONG));
        }
        assert_eq!(backoff.pause(), None);
    }
}
