//! Continuous traffic between guests on different hosts: echo requests, and connections on which
//! every byte is checked.

use super::sites::COUNT;
use crate::host::Host;
use crate::transfer::Stream;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most of the last requests that may lack an answer because ping did not wait.
const IN_FLIGHT: usize = 10;
/// Pause before each 64 KiB of a connection: the machine has other work as well.
const PAUSE: Duration = Duration::from_millis(50);

/// Results of the echo requests since the last call of [`Traffic::mark`].
#[derive(Clone, Copy, Default)]
pub(super) struct Answers {
    pub(super) answered: usize,
    pub(super) lost: usize,
    /// Longest time between two answers, in seconds.
    pub(super) longest: f64,
}

/// Parses the answers of one ping as they come.
#[derive(Default)]
struct Pings {
    since: Answers,
    all: usize,
    /// Sequence number and time of the last answer.
    last: Option<(u16, f64)>,
}

impl Pings {
    /// Parses a line of `ping -D`.
    fn read(&mut self, line: &str) {
        let Some((number, time)) = answer(line) else { return };
        if let Some((before, then)) = self.last {
            let step = usize::from(number.wrapping_sub(before));
            self.since.lost += step.saturating_sub(1);
            self.since.longest = self.since.longest.max(time - then);
        }
        self.last = Some((number, time));
        self.since.answered += 1;
        self.all += 1;
    }
}

/// Returns sequence number and time of an answer.
fn answer(line: &str) -> Option<(u16, f64)> {
    let time = line.strip_prefix('[')?.split_once(']')?.0.parse().ok()?;
    let number = line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok()?;
    Some((number, time))
}

struct Pair {
    ping: Child,
    pings: Arc<Mutex<Pings>>,
    /// Returns how many requests were sent.
    reader: JoinHandle<usize>,
    stream: Stream,
}

/// Traffic between each two neighbours.
pub(super) struct Traffic(Vec<Pair>);

impl Traffic {
    pub(super) fn start(guests: &[Host; COUNT]) -> Traffic {
        let pair = |number| Pair::start(guests[number], guests[number + 1], number + 2);
        Traffic((0..COUNT).step_by(2).map(pair).collect())
    }

    /// Returns the results of the requests since the last call, and the number of bytes checked so
    /// far.
    pub(super) fn mark(&self) -> (Answers, usize) {
        let mut all = Answers::default();
        for pair in &self.0 {
            assert!(pair.stream.goes_on(), "a connection has died");
            let since = std::mem::take(&mut pair.pings.lock().unwrap().since);
            all.answered += since.answered;
            all.lost += since.lost;
            all.longest = all.longest.max(since.longest);
        }
        (all, self.0.iter().map(|pair| pair.stream.checked()).sum())
    }

    /// Ends the traffic; nothing may be lost. Returns the number of answered requests, and of
    /// checked bytes.
    pub(super) fn end(self) -> (usize, usize) {
        let ends = self.0.into_iter().map(Pair::end);
        ends.fold((0, 0), |(pings, bytes), (answered, checked)| (pings + answered, bytes + checked))
    }
}

impl Pair {
    fn start(from: Host, to: Host, address: usize) -> Pair {
        let mut ping = from.command("ping");
        ping.args(["-n", "-D", "-i", "0.05", &format!("10.9.0.{address}")]);
        let mut ping = ping.stdout(Stdio::piped()).spawn().unwrap();
        let pings = Arc::new(Mutex::new(Pings::default()));
        let (lines, writes) = (ping.stdout.take().unwrap(), Arc::clone(&pings));
        let reader = std::thread::spawn(move || {
            let mut sent = 0;
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                writes.lock().unwrap().read(&line);
                if let Some((number, _)) = line.split_once(" packets transmitted") {
                    sent = number.parse().unwrap();
                }
            }
            sent
        });
        let address = [10, 9, 0, u8::try_from(address).unwrap()].into();
        Pair { ping, pings, reader, stream: Stream::start((from, to, address), PAUSE) }
    }

    fn end(mut self) -> (usize, usize) {
        kill_process(Pid::from_child(&self.ping), Signal::INT).unwrap();
        self.ping.wait().unwrap();
        let sent = self.reader.join().unwrap();
        let answered = self.pings.lock().unwrap().all;
        assert!(answered + IN_FLIGHT >= sent, "only {answered} of {sent} requests were answered");
        (answered, self.stream.end())
    }
}

/// Returns how many frames the kernel has dropped because a processor's queue of received frames
/// was full (`net.core.netdev_max_backlog`). All namespaces share these queues, including veths of
/// other stories.
pub(super) fn dropped_by_the_kernel() -> usize {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let second = |line: &str| usize::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
    text.lines().map(second).sum()
}

#[test]
fn lost_answers_and_the_longest_gap_are_counted() {
    let mut pings = Pings::default();
    let line = |number: u16, time: f64| {
        format!("[{time:.6}] 64 bytes from 10.9.0.2: icmp_seq={number} ttl=64 time=0.3 ms")
    };
    pings.read("PING 10.9.0.2 (10.9.0.2) 56(84) bytes of data.");
    for (number, time) in [(65534, 1.0), (65535, 1.5), (0, 2.0), (3, 4.25)] {
        pings.read(&line(number, time));
    }
    assert_eq!((pings.since.answered, pings.since.lost, pings.all), (4, 2, 4));
    assert!((pings.since.longest - 2.25).abs() < 1e-9);
}
