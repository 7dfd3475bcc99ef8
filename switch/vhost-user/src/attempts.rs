//! Front ends that connect in a loop.
//!
//! QEMU connects again at once when it does not like what it is told, for ever and hundreds of
//! times a second. So a front end that has come and gone a few times without moving a frame has to
//! wait before it is served again, longer each time, and people are told.

use rustix::event::Timespec;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Futile connections that are served at once.
const PATIENCE: u32 = 5;
/// A connection that lasts this long is no part of a loop.
const LONG: Duration = Duration::from_secs(1);
/// The first pause, which doubles, and the longest.
const FIRST_MS: u64 = 100;
const LONGEST_MS: u64 = 2000;

/// What became of the connections so far. Written by the session's thread, read by
/// [`Session::status`](crate::Session::status).
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Short connections without a frame, since the last one that was of use.
    futile: AtomicU32,
    /// A ring has moved on in this connection.
    moved: AtomicBool,
}

impl Attempts {
    /// A front end has connected.
    pub(crate) fn begin(&self) {
        self.moved.store(false, Relaxed);
    }

    /// Buffers of a ring of it were used.
    pub(crate) fn note_moved(&self) {
        self.moved.store(true, Relaxed);
    }

    /// It has gone. `true`: with this, front ends have to wait from now on.
    pub(crate) fn end(&self, lasted: Duration) -> bool {
        if self.moved.load(Relaxed) || lasted >= LONG {
            self.futile.store(0, Relaxed);
            return false;
        }
        self.futile.fetch_add(1, Relaxed) + 1 == PATIENCE
    }

    /// How long the next front end has to wait.
    pub(crate) fn pause(&self) -> Option<Timespec> {
        let beyond = self.futile.load(Relaxed).checked_sub(PATIENCE)?;
        let ms = LONGEST_MS.min(FIRST_MS << beyond.min(8));
        Timespec::try_from(Duration::from_millis(ms)).ok()
    }

    /// What people should know about a port that has `pairs` queue pairs.
    pub(crate) fn complaint(&self, pairs: u16) -> Option<String> {
        let futile = self.futile.load(Relaxed);
        (futile >= PATIENCE).then(|| {
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
        let attempts = Attempts::default();
        let futile = || {
            attempts.begin();
            attempts.end(Duration::from_millis(1))
        };
        assert_eq!([(); 6].map(|()| futile()), [false, false, false, false, true, false]);
        let ms = |pause: Option<Timespec>| {
            pause.map(|pause| pause.tv_sec * 1000 + pause.tv_nsec / 1_000_000)
        };
        let pauses = [(); 6].map(|()| {
            futile();
            ms(attempts.pause())
        });
        assert_eq!(pauses, [400, 800, 1600, 2000, 2000, 2000].map(Some));
        assert!(attempts.complaint(2).unwrap().contains("12 times"));
        attempts.begin();
        attempts.note_moved();
        assert!(!attempts.end(Duration::ZERO));
        assert_eq!((attempts.pause(), attempts.complaint(2)), (None, None));
    }

    #[test]
    fn a_long_connection_is_no_loop() {
        let attempts = Attempts::default();
        for _ in 0..20 {
            attempts.begin();
            assert!(!attempts.end(LONG));
        }
        assert_eq!(attempts.pause(), None);
    }
}
