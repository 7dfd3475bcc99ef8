//! Measures outages: counts arrivals, and the longest time without one.

use crate::host::Host;
use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::env;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use waiting::until;

/// Returns how often a story restarts the switch.
pub(crate) fn restarts() -> u32 {
    if is_long() { 20 } else { 3 }
}

/// Returns whether stories of traffic are to be long.
pub(crate) fn is_long() -> bool {
    env::var_os("MILLRACE_LONG").is_some()
}

/// Counts arrivals, and measures the longest time between two.
#[derive(Default)]
pub(crate) struct Arrivals {
    longest_us: AtomicU64,
    count: AtomicU64,
    stop: AtomicBool,
}

impl Arrivals {
    /// Notes an arrival. `last` is the time of the arrival before.
    pub(crate) fn note(&self, last: &mut Instant) {
        let gap = u64::try_from(last.elapsed().as_micros()).unwrap();
        *last = Instant::now();
        self.longest_us.fetch_max(gap, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of arrivals.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Tells the sender to stop.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs `work` and waits until more has arrived after it. Returns the longest time without an
    /// arrival, in milliseconds.
    #[allow(clippy::cast_precision_loss, reason = "microseconds of seconds")]
    pub(crate) fn outage_ms(&self, work: impl FnOnce()) -> f64 {
        self.longest_us.store(0, Ordering::Relaxed);
        work();
        let seen = self.count();
        until("something comes again", || (self.count() > seen + 100).then_some(()));
        self.longest_us.load(Ordering::Relaxed) as f64 / 1000.0
    }
}

/// Sends a numbered datagram every millisecond from one host to another.
pub(crate) struct Probe {
    pub(crate) arrivals: Arc<Arrivals>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Vec<u64>>,
}

impl Probe {
    pub(crate) fn start((from, to, address): (Host, Host, IpAddr)) -> Probe {
        let socket = to.within(|| UdpSocket::bind((address, 0))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        // Datagrams that waited during an outage arrive at once.
        const ROOM: usize = 16 << 20;
        // Without root the host's limit applies.
        sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, ROOM))
            .unwrap();
        let end = socket.local_addr().unwrap();
        let arrivals = Arc::new(Arrivals::default());
        let seen = arrivals.clone();
        let receiver = thread::spawn(move || {
            let (mut last, mut numbers, mut number) = (Instant::now(), Vec::new(), [0; 8]);
            loop {
                match socket.recv(&mut number) {
                    Ok(_) => {
                        seen.note(&mut last);
                        numbers.push(u64::from_ne_bytes(number));
                    }
                    // No datagram is under way any more.
                    Err(_) if seen.is_over() => return numbers,
                    Err(_) => {}
                }
            }
        });
        let socket = from.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let seen = arrivals.clone();
        let sender = thread::spawn(move || {
            // One that changed its processor would overtake itself: a frame may wait at the old one.
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            sched_setaffinity(None, &here).unwrap();
            let mut sent = 0u64;
            while !seen.is_over() {
                sent += u64::from(socket.send_to(&sent.to_ne_bytes(), end).is_ok());
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Probe { arrivals, sender, receiver }
    }

    /// Returns how many datagrams were sent, and the numbers of those that came. Numbers start at
    /// 0.
    pub(crate) fn end(self) -> (u64, Vec<u64>) {
        self.arrivals.end();
        let sent = self.sender.join().unwrap();
        (sent, self.receiver.join().unwrap())
    }
}

/// Pings a guest every 5 ms.
pub(crate) struct Pinged {
    pub(crate) arrivals: Arc<Arrivals>,
    ping: Child,
}

impl Pinged {
    pub(crate) fn start(from: Host, address: IpAddr) -> Pinged {
        let mut command = from.command("ping");
        command.args(["-n", "-i", "0.005", &address.to_string()]).stdout(Stdio::piped());
        let mut ping = command.spawn().unwrap();
        let answers = BufReader::new(ping.stdout.take().unwrap());
        let arrivals = Arc::new(Arrivals::default());
        let seen = arrivals.clone();
        thread::spawn(move || {
            let mut last = Instant::now();
            let is_answer = |line: &String| line.contains("bytes from");
            answers
                .lines()
                .map_while(Result::ok)
                .filter(is_answer)
                .for_each(|_| seen.note(&mut last));
        });
        Pinged { arrivals, ping }
    }
}

impl Drop for Pinged {
    fn drop(&mut self) {
        self.ping.kill().unwrap();
        self.ping.wait().unwrap();
    }
}

/// Returns a text with the number of outages, and their lengths.
pub(crate) fn told(mut outages: Vec<f64>) -> String {
    outages.sort_by(f64::total_cmp);
    let (least, most) = (outages[0], outages[outages.len() - 1]);
    let median = outages[outages.len() / 2];
    let count = outages.len();
    format!("{count} outages, {median:.1} ms at the median, {least:.1} to {most:.1} ms")
}
