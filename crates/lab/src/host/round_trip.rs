//! Request and response of one byte, as NTttcp's latency mode does.

use super::protocol::RoundTrips;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A response that has not come by then never will; nor a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often whoever answers looks whether it shall end.
const GLANCE: Duration = Duration::from_millis(100);
const GLANCE_OF_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Ten seconds: more than [`PATIENCE`].
const LONGEST_NS: u64 = 10_000_000_000;

/// Answers every byte with a byte, one connection after the other, until it is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// Answers on all addresses.
    pub(super) fn start(port: u16) -> io::Result<Answering> {
        // The IPv6 wildcard takes IPv4 too, where the machine knows IPv6 at all.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        Answering::at(listener)
    }

    fn at(listener: TcpListener) -> io::Result<Answering> {
        listener.set_nonblocking(true)?;
        let stop = Arc::<AtomicBool>::default();
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Relaxed) {
                let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&GLANCE_OF_POLL));
                if let Ok((stream, _)) = listener.accept() {
                    // How a connection ended is the asker's business.
                    let _ = answer(stream, &seen);
                }
            }
        });
        Ok(Answering { stop, thread: Some(thread) })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut last, mut byte) = (Instant::now(), [0]);
    while !stop.load(Relaxed) && last.elapsed() < PATIENCE {
        match stream.read_exact(&mut byte) {
            Ok(()) => {
                stream.write_all(&byte)?;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends requests for a time, one in flight at once.
pub(super) fn ask(to: SocketAddr, time: Duration) -> io::Result<RoundTrips> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).map_err(io::Error::other)?;
    let (begin, mut byte) = (Instant::now(), [b'?']);
    while begin.elapsed() < time {
        let sent = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        histogram.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(summary(&histogram))
}

/// Count, median and 99th percentile.
pub(crate) fn summary(histogram: &Histogram<u64>) -> RoundTrips {
    RoundTrips {
        count: histogram.len(),
        median_ns: histogram.value_at_quantile(0.5) as f64,
        p99_ns: histogram.value_at_quantile(0.99) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_until_the_end_and_the_port_is_free_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = Answering::at(listener).unwrap();
        let trips = ask(address, Duration::from_millis(20)).unwrap();
        assert!(trips.count > 0 && trips.median_ns > 0.0 && trips.p99_ns >= trips.median_ns);
        drop(answering);
        assert!(ask(address, Duration::from_millis(20)).is_err());
        TcpListener::bind(address).unwrap();
    }
}
