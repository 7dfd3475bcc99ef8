//! The conductor: warm-up, measured interval, cool-down, and what may cut them short.

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

/// What cut a wait short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The plan's stop flag.
    User,
    /// The peer said that it is over.
    Peer,
    /// No thread has anything left to do.
    Threads,
    /// No connection has taken anything for [`SILENCE`].
    Silence,
}

/// A run that ends so little before its time has ended in time: the two ends' clocks start a moment
/// apart.
const SLACK: Duration = Duration::from_millis(500);
/// How often the stop flag is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How often progress is told.
const TELL: Duration = Duration::from_millis(500);

/// A sender of which no connection takes anything for so long has lost its receiver. A single
/// connection proves nothing: among thousands that lose frames, some wait longer than this for
/// their turn.
const SILENCE: Duration = Duration::from_secs(20);

/// How long nothing has moved.
struct Silence {
    bytes: u64,
    seen: Instant,
    lasted: Duration,
}

impl Silence {
    fn new(bytes: u64, now: Instant) -> Silence {
        Silence { bytes, seen: now, lasted: Duration::ZERO }
    }

    /// Whether it is enough. One look adds two glances at most, so that a process that was itself
    /// stopped for a while does not take that for the receiver's silence.
    fn is_enough(&mut self, bytes: u64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.seen).min(2 * GLANCE);
        self.lasted = if bytes == self.bytes { self.lasted + since } else { Duration::ZERO };
        (self.bytes, self.seen) = (bytes, now);
        self.lasted >= SILENCE
    }
}

/// Walks a run from its first byte to its last.
pub(crate) struct Conductor<'c> {
    pub(crate) plan: &'c Plan,
    pub(crate) shared: &'c Shared,
    /// Where a receiver hears its senders; a sender hears nothing during a run.
    pub(crate) server: Option<&'c mut SyncServer>,
    pub(crate) progress: &'c mut dyn FnMut(Progress),
}

impl Conductor<'_> {
    /// Measures. `total_s` is what both ends agreed on, 0 for an open end. Without warm-up the
    /// first counters are read before that, so that no byte is missed.
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

    /// Traffic goes on for as long as either end wants it.
    fn cool_down(&mut self, start: Instant, total_s: u32, so_far: Duration) {
        let own = so_far + Duration::from_secs(self.plan.cool_down_s.into());
        let end = start + own.max(Duration::from_secs(total_s.into()));
        if end > Instant::now() {
            (self.progress)(Progress::CoolDown);
            self.wait(Some(end), false);
        }
    }

    /// The measured interval's length, where it has one: a receiver goes by an open end that the
    /// sender asked for.
    fn planned(&self, total_s: u32) -> Option<Duration> {
        match (self.plan.length, self.plan.role) {
            (Length::Seconds(_), Role::Receiver) if total_s == 0 => None,
            (Length::Seconds(seconds), _) => Some(Duration::from_secs(seconds.into())),
            (Length::Buffers(_) | Length::UntilStopped, _) => None,
        }
    }

    /// Waits until `deadline`, or for ever, unless something cuts it short.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>, tell: bool) -> Option<Cut> {
        let mut told = (Instant::now(), self.shared.bytes());
        let mut silence = Silence::new(told.1, told.0);
        loop {
            self.shared.wake.clear();
            if let Some(cut) = self.cut() {
                return Some(cut);
            }
            let now = Instant::now();
            let left = deadline.map_or(GLANCE, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                return None;
            }
            if self.should_move() && silence.is_enough(self.shared.bytes(), now) {
                self.shared.remark(format!(
                    "no connection accepted data for {} s: the receiver's host or the path to it is down",
                    SILENCE.as_secs()
                ));
                return Some(Cut::Silence);
            }
            if tell && now.duration_since(told.0) >= TELL {
                told = self.tell(told, now);
            }
            let mut fds = vec![self.shared.wake.as_fd()];
            fds.extend(self.server.as_ref().map(|server| server.as_fd()));
            wait_readable(&fds, left.min(GLANCE));
        }
    }

    /// Whether this end's bytes grow as long as the other end lives. Not a receiver's, which waits
    /// for others' bytes, and not where a limit may ask for less than a buffer in so long a time.
    fn should_move(&self) -> bool {
        self.plan.role == Role::Sender
            && self.plan.bandwidth_bits_per_s.is_none()
            && self.plan.pacing_bytes_per_s.is_none()
    }

    /// Whether the peer has said that the test is over.
    pub(crate) fn peer_has_ended(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.peer_has_ended())
    }

    fn cut(&mut self) -> Option<Cut> {
        if self.plan.stop.load(Ordering::Relaxed) {
            return Some(Cut::User);
        }
        let (opened, closed) = (self.shared.opened(), self.shared.closed());
        if self.shared.all_done() || (opened > 0 && closed >= opened) {
            return Some(Cut::Threads);
        }
        self.peer_has_ended().then_some(Cut::Peer)
    }

    fn tell(&mut self, (then, bytes_then): (Instant, u64), now: Instant) -> (Instant, u64) {
        let bytes = self.shared.bytes();
        let seconds = now.duration_since(then).as_secs_f64();
        let bytes_per_s = bytes.saturating_sub(bytes_then) as f64 / seconds;
        (self.progress)(Progress::Rate { bytes_per_s });
        (now, bytes)
    }

    fn ending(&self, cut: Option<Cut>, interval: &Interval, planned: Option<Duration>) -> Ending {
        let in_time = planned
            .is_some_and(|planned| interval.seconds + SLACK.as_secs_f64() >= planned.as_secs_f64());
        match (cut, planned) {
            (None, _) => Ending::Complete,
            (Some(Cut::User), _) => Ending::StoppedByUser,
            (Some(_), Some(_)) if in_time => Ending::Complete,
            (Some(Cut::Peer), None) => Ending::Complete,
            (Some(Cut::Peer), Some(_)) => Ending::StoppedByPeer,
            (Some(Cut::Threads), None) if self.shared.broken() == 0 => Ending::Complete,
            (Some(Cut::Threads), _) if self.shared.broken() == 0 => Ending::StoppedByPeer,
            (Some(Cut::Threads | Cut::Silence), _) => Ending::PeerLost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Looks are 100 ms apart, as the conductor's are, unless the process is stopped.
        #[test]
        fn only_silence_of_all_connections_ends_a_run(quiet in 0u32..400, stopped_s in 0u64..600) {
            let mut now = Instant::now();
            let mut silence = Silence::new(1, now);
            now += Duration::from_secs(stopped_s);
            let mut enough = silence.is_enough(1, now);
            for _ in 0..quiet {
                now += GLANCE;
                enough |= silence.is_enough(1, now);
            }
            prop_assert_eq!(enough, quiet >= 198 + u32::from(stopped_s == 0) * 2);
            prop_assert!(!silence.is_enough(2, now + GLANCE));
            prop_assert!(!silence.is_enough(2, now + 2 * GLANCE));
        }
    }
}
