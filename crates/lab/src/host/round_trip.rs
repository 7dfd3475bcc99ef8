//! Request and response of one byte, as NTttcp's latency mode does.

use super::protocol::RoundTrips;
use hdrhistogram::Histogram;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A response that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ten seconds: more than [`PATIENCE`].
const LONGEST_NS: u64 = 10_000_000_000;

/// Answers every byte with a byte, for ever.
pub(super) fn answer(listener: TcpListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

/// Asks again and again for a time, one request on its way at once.
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
    fn every_request_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        answer(listener);
        let trips = ask(address, Duration::from_millis(20)).unwrap();
        assert!(trips.count > 0 && trips.median_ns > 0.0 && trips.p99_ns >= trips.median_ns);
    }
}
