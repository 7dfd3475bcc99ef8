//! The sender of the latency test: one byte there and back, one connection after the other, each
//! round trip timed.

use crate::TrafficError;
use crate::plan::{Length, Plan};
use crate::shared::Shared;
use crate::stopwatch::Stopwatch;
use crate::stream::Stream;
use crate::thread::ThreadState;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::{Duration, Instant};

/// Interval at which a waiting sender checks the stop signal. A datagram that has not come back by
/// then is sent again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Makes round trips until the stop, or as many as `-n` says. Each takes one clock reading: the end
/// of one is the start of the next.
pub(crate) fn ping(
    plan: &Plan,
    shared: &Shared,
    thread: &ThreadState,
    streams: &mut [Stream],
) -> Result<(), TrafficError> {
    let mut trips = Stopwatch::new()?;
    for stream in streams.iter() {
        rustix::io::ioctl_fionbio(&stream.socket, false)
            .and_then(|()| set_socket_timeout(&stream.socket, Timeout::Recv, Some(POLL_INTERVAL)))
            .map_err(TrafficError::system("make a socket wait"))?;
    }
    let mut left = match plan.length {
        Length::Buffers(count) => count,
        Length::Seconds(_) | Length::UntilStopped => u64::MAX,
    };
    let mut start = Some(Instant::now());
    'run: while streams.iter().any(|stream| stream.alive) {
        for stream in streams.iter_mut().filter(|stream| stream.alive) {
            if shared.stop.is_signalled() || left == 0 {
                break 'run;
            }
            left -= 1;
            match round_trip(shared, thread, stream) {
                Ok(true) => trips.lap(shared, &mut start),
                Ok(false) => start = Some(Instant::now()),
                Err(error) => {
                    stream.alive = false;
                    thread.close(Some(&error.to_string()));
                    shared.wake.signal();
                }
            }
        }
    }
    trips.store(thread);
    Ok(())
}

/// Sends a byte and returns whether it came back before the run's end.
fn round_trip(shared: &Shared, thread: &ThreadState, stream: &Stream) -> Result<bool, Errno> {
    let mut byte = [0; 1];
    send(&stream.socket, b"P", SendFlags::NOSIGNAL)?;
    loop {
        match recv(&stream.socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::CONNRESET),
            Ok(_) => {
                thread.counters.add(1);
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) if shared.stop.is_signalled() => return Ok(false),
            Err(Errno::AGAIN) if lost_for_good(stream) => {
                thread.counters.add_error();
                return Ok(false);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a byte that is late is lost: a datagram may be, a stream's byte is only late.
fn lost_for_good(stream: &Stream) -> bool {
    rustix::net::sockopt::socket_type(&stream.socket) == Ok(rustix::net::SocketType::DGRAM)
}
