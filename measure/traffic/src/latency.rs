//! Times: the latency test's sender (one byte there and back, one connection after the other, each
//! round trip timed), and the stopwatch of `-lm`, which times each request of the bulk data.

use crate::TrafficError;
use crate::lane::{Lane, Stage, lock};
use crate::plan::{Length, Plan};
use crate::send::Stream;
use hdrhistogram::Histogram;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a wait looks at the stop signal; a datagram that has not come back by then is sent
/// again.
const GLANCE: Duration = Duration::from_millis(200);
/// The longest round trip that is told apart: one minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Round trips until the stop, or as many as `-n` says. One clock reading each: the end of one is
/// the start of the next.
pub(crate) fn ping(
    plan: &Plan,
    stage: &Stage,
    lane: &Lane,
    streams: &mut [Stream],
) -> Result<(), TrafficError> {
    let mut trips = Stopwatch::new()?;
    for stream in streams.iter() {
        rustix::io::ioctl_fionbio(&stream.socket, false)
            .and_then(|()| set_socket_timeout(&stream.socket, Timeout::Recv, Some(GLANCE)))
            .map_err(TrafficError::system("make a socket wait"))?;
    }
    let mut left = match plan.length {
        Length::Buffers(count) => count,
        Length::Seconds(_) | Length::UntilStopped => u64::MAX,
    };
    let mut start = Some(Instant::now());
    'run: while streams.iter().any(|stream| stream.alive) {
        for stream in streams.iter_mut().filter(|stream| stream.alive) {
            if stage.stop.has_rung() || left == 0 {
                break 'run;
            }
            left -= 1;
            match round_trip(stage, lane, stream) {
                Ok(true) => trips.lap(stage, &mut start),
                Ok(false) => start = Some(Instant::now()),
                Err(error) => {
                    stream.alive = false;
                    lane.close(Some(&error.to_string()));
                    stage.bell.ring();
                }
            }
        }
    }
    trips.hand_over(lane);
    Ok(())
}

/// What a lane has timed.
pub(crate) struct Stopwatch {
    times: Histogram<u64>,
}

impl Stopwatch {
    /// # Errors
    /// No memory for a histogram.
    pub(crate) fn new() -> Result<Stopwatch, TrafficError> {
        Ok(Stopwatch { times: histogram()? })
    }

    /// The stopwatch of a lane whose requests are timed.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Stopwatch>, TrafficError> {
        plan.request_times.then(Stopwatch::new).transpose()
    }

    /// A request is done that was made at `since`; the connection's next one is made at once.
    /// Counts in the measured interval only, and not a connection's first request, which waited for
    /// the begin.
    pub(crate) fn lap(&mut self, stage: &Stage, since: &mut Option<Instant>) {
        let now = Instant::now();
        let Some(then) = since.replace(now) else { return };
        if stage.measuring.load(Ordering::Relaxed) {
            let nanoseconds = now.duration_since(then).as_nanos();
            self.times.saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }

    /// Gives the lane its times, at the end.
    pub(crate) fn hand_over(self, lane: &Lane) {
        *lock(&lane.times) = Some(self.times);
    }
}

/// What all lanes have timed, in nanoseconds.
pub(crate) fn times(stage: &Stage) -> Result<Histogram<u64>, TrafficError> {
    let mut all = histogram()?;
    for lane in &stage.lanes {
        // All have the same bounds.
        let _ = lock(&lane.times).as_ref().map(|times| all.add(times));
    }
    Ok(all)
}

/// An empty histogram of nanoseconds, three digits exact.
fn histogram() -> Result<Histogram<u64>, TrafficError> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3)
        .map_err(|error| TrafficError::Plan(format!("cannot make a histogram: {error}")))
}

/// Whether the byte came back before the run's end.
fn round_trip(stage: &Stage, lane: &Lane, stream: &Stream) -> Result<bool, Errno> {
    let mut byte = [0; 1];
    send(&stream.socket, b"P", SendFlags::NOSIGNAL)?;
    loop {
        match recv(&stream.socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::CONNRESET),
            Ok(_) => {
                lane.counters.add(1);
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) if stage.stop.has_rung() => return Ok(false),
            Err(Errno::AGAIN) if lost_for_good(stream) => {
                lane.counters.add_error();
                return Ok(false);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A datagram may be lost; a stream's byte is only late.
fn lost_for_good(stream: &Stream) -> bool {
    rustix::net::sockopt::socket_type(&stream.socket) == Ok(rustix::net::SocketType::DGRAM)
}
