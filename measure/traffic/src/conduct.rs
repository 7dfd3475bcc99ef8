//! The conductor: warm-up, measured interval, cool-down, and the events that cut them short.

use crate::event_fd::wait_readable;
use crate::plan::{Length, Plan, Role};
use crate::progress::Progress;
use crate::report::Ending;
use crate::shared::Shared;
use crate::snapshot::{Interval, Probes};
use crate::sync::SyncServer;
use rustix::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Why a wait ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The plan's stop flag was set.
    User,
    /// The peer ended the test.
    Peer,
    /// All threads are done.
    Threads,
    /// No connection has accepted data for [`SILENCE_TIMEOUT`].
    Silence,
}

/// Time by which a run may end early and still be complete: the two ends' clocks start a moment
/// apart.
const END_TOLERANCE: Duration = Duration::from_millis(500);
/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between two progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Time without progress on any connection after which a sender gives its receiver up. A single
/// connection proves nothing: among thousands that lose frames, some wait longer than this for
/// their turn.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Measures how long no byte has moved.
struct Silence {
    bytes: u64,
    seen: Instant,
    lasted: Duration,
}

impl Silence {
    fn new(bytes: u64, now: Instant) -> Silence {
        Silence { bytes, seen: now, lasted: Duration::ZERO }
    }

    /// Whether the silence has lasted for [`SILENCE_TIMEOUT`]. One call adds at most two intervals,
    /// so that a process that was itself stopped does not take that time for the receiver's
    /// silence.
    fn exceeds_timeout(&mut self, bytes: u64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.seen).min(2 * POLL_INTERVAL);
        self.lasted = if bytes == self.bytes { self.lasted + since } else { Duration::ZERO };
        (self.bytes, self.seen) = (bytes, now);
        self.lasted >= SILENCE_TIMEOUT
    }
}

/// Takes a run from its first byte to its last.
pub(crate) struct Conductor<'c> {
    pub(crate) plan: &'c Plan,
    pub(crate) shared: &'c Shared,
    /// A receiver's synchronisation server; a sender has none during a run.
    pub(crate) server: Option<&'c mut SyncServer>,
    pub(crate) progress: &'c mut dyn FnMut(Progress),
}

impl Conductor<'_> {
    /// Measures. `total_s` is the time both ends agreed on; 0 means until stopped. Without warm-up
    /// the first counters are read before the begin, so that no byte is missed.
    pub(crate) fn measure(&mut self, probes: &Probes<'_>, total_s: u32) -> (Interval, Ending) {
        let warm_up = Duration::from_secs(self.plan.warm_up_s.into());
        let at_once = warm_up.is_zero().then(|| probes.begin(self.shared));
        if let Some(server) = &mut self.server {
            server.begin();
        }
        self.shared.begin.signal();
        let start = Instant::now();
        if !warm_up.is_zero() {
            (self.progress)(Progress::WarmUp);
        }
        let early = self.wait(Some(start + warm_up), false);
        let first = at_once.unwrap_or_else(|| probes.begin(self.shared));
        self.shared.measuring.store(true, Ordering::Relaxed);
        (self.progress)(Progress::Measuring);
        let planned = self.planned(total_s);
        let cut = early.or_else(|| self.wait(planned.map(|length| Instant::now() + length), true));
        self.shared.measuring.store(false, Ordering::Relaxed);
        let last = probes.end(self.shared);
        let interval = first.until(&last);
        let ending = self.ending(cut, &interval, planned);
        if cut.is_none() {
            self.cool_down(start, total_s, warm_up + planned.unwrap_or_default());
        }
        (interval, ending)
    }

    /// Keeps traffic going for as long as either end wants it.
    fn cool_down(&mut self, start: Instant, total_s: u32, so_far: Duration) {
        let own = so_far + Duration::from_secs(self.plan.cool_down_s.into());
        let end = start + own.max(Duration::from_secs(total_s.into()));
        if end > Instant::now() {
            (self.progress)(Progress::CoolDown);
            self.wait(Some(end), false);
        }
    }

    /// Returns the length of the measured interval, if it has one. If the sender asked for an open
    /// end, a receiver's own length does not count.
    fn planned(&self, total_s: u32) -> Option<Duration> {
        match (self.plan.length, self.plan.role) {
            (Length::Seconds(_), Role::Receiver) if total_s == 0 => None,
            (Length::Seconds(seconds), _) => Some(Duration::from_secs(seconds.into())),
            (Length::Buffers(_) | Length::UntilStopped, _) => None,
        }
    }

    /// Waits until `deadline` (without one, for ever). Returns early, with the reason, on an
    /// interruption.
    pub(crate) fn wait(
        &mut self,
        deadline: Option<Instant>,
        report_rate: bool,
    ) -> Option<Interruption> {
        let mut reported = (Instant::now(), self.shared.bytes());
        let mut silence = Silence::new(reported.1, reported.0);
        loop {
            self.shared.wake.clear();
            if let Some(cut) = self.cut() {
                return Some(cut);
            }
            let now = Instant::now();
            let left =
                deadline.map_or(POLL_INTERVAL, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                return None;
            }
            if self.should_move() && silence.exceeds_timeout(self.shared.bytes(), now) {
                self.shared.remark(format!(
                    "no connection accepted data for {} s: the receiver's host or the path to it is down",
                    SILENCE_TIMEOUT.as_secs()
                ));
                return Some(Interruption::Silence);
            }
            if report_rate && now.duration_since(reported.0) >= PROGRESS_INTERVAL {
                reported = self.report_rate(reported, now);
            }
            let mut fds = vec![self.shared.wake.as_fd()];
            fds.extend(self.server.as_ref().map(|server| server.as_fd()));
            wait_readable(&fds, left.min(POLL_INTERVAL));
        }
    }

    /// Whether this end's byte count must grow while the other end is alive. A receiver waits for
    /// others' bytes, and a limit may ask for less than a buffer in [`SILENCE_TIMEOUT`].
    fn should_move(&self) -> bool {
        self.plan.role == Role::Sender
            && self.plan.bandwidth_bits_per_s.is_none()
            && self.plan.pacing_bytes_per_s.is_none()
    }

    /// Whether the peer has ended the test.
    pub(crate) fn peer_has_ended(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.peer_has_ended())
    }

    fn cut(&mut self) -> Option<Interruption> {
        if self.plan.stop.load(Ordering::Relaxed) {
            return Some(Interruption::User);
        }
        let (opened, closed) = (self.shared.opened(), self.shared.closed());
        if self.shared.all_done() || (opened > 0 && closed >= opened) {
            return Some(Interruption::Threads);
        }
        self.peer_has_ended().then_some(Interruption::Peer)
    }

    fn report_rate(&mut self, (then, bytes_then): (Instant, u64), now: Instant) -> (Instant, u64) {
        let bytes = self.shared.bytes();
        let seconds = now.duration_since(then).as_secs_f64();
        let bytes_per_s = bytes.saturating_sub(bytes_then) as f64 / seconds;
        (self.progress)(Progress::Rate { bytes_per_s });
        (now, bytes)
    }

    fn ending(
        &self,
        cut: Option<Interruption>,
        interval: &Interval,
        planned: Option<Duration>,
    ) -> Ending {
        let in_time = planned.is_some_and(|planned| {
            interval.seconds + END_TOLERANCE.as_secs_f64() >= planned.as_secs_f64()
        });
        match (cut, planned) {
            (None, _) => Ending::Complete,
            (Some(Interruption::User), _) => Ending::StoppedByUser,
            (Some(_), Some(_)) if in_time => Ending::Complete,
            (Some(Interruption::Peer), None) => Ending::Complete,
            (Some(Interruption::Peer), Some(_)) => Ending::StoppedByPeer,
            (Some(Interruption::Threads), None) if self.shared.broken() == 0 => Ending::Complete,
            (Some(Interruption::Threads), _) if self.shared.broken() == 0 => Ending::StoppedByPeer,
            (Some(Interruption::Threads | Interruption::Silence), _) => Ending::PeerLost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The steps are 100 ms, as the conductor's are, except while the process is stopped.
        #[test]
        fn only_silence_of_all_connections_ends_a_run(quiet in 0u32..400, stopped_s in 0u64..600) {
            let mut now = Instant::now();
            let mut silence = Silence::new(1, now);
            now += Duration::from_secs(stopped_s);
            let mut enough = silence.exceeds_timeout(1, now);
            for _ in 0..quiet {
                now += POLL_INTERVAL;
                enough |= silence.exceeds_timeout(1, now);
            }
            prop_assert_eq!(enough, quiet >= 198 + u32::from(stopped_s == 0) * 2);
            prop_assert!(!silence.exceeds_timeout(2, now + POLL_INTERVAL));
            prop_assert!(!silence.exceeds_timeout(2, now + 2 * POLL_INTERVAL));
        }
    }
}
