//! A sending thread: connects, waits for the begin, and writes buffers until it is told to stop or
//! has written its share.

use crate::event_fd::{epoll_set, wait_for_events};
use crate::payload::{HEADER, Pattern};
use crate::plan::{Length, Plan, Transport};
use crate::shared::Shared;
use crate::stopwatch::Stopwatch;
use crate::stream::Stream;
use crate::thread::ThreadState;
use crate::{TrafficError, connect, host, latency};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A thread's destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) peer: SocketAddr,
    pub(crate) processor: Option<usize>,
    /// The first source port; 0 lets the kernel choose.
    pub(crate) source_port: u16,
    /// The first connection's number in the whole run.
    pub(crate) number: u64,
}

const STOP: u64 = u64::MAX;
const EVENTS: usize = 512;

/// Runs a sending thread.
pub(crate) fn run(
    plan: &Plan,
    shared: &Shared,
    thread: &ThreadState,
    target: Target,
) -> Result<(), TrafficError> {
    let opened = host::pin(target.processor).and_then(|()| open(plan, shared, thread, target));
    if opened.is_err() {
        thread.failed.store(true, Ordering::Release);
    }
    shared.wake.signal();
    let mut streams = opened?;
    while !shared.begin.is_signalled() && !shared.stop.is_signalled() {
        shared.begin.wait(Duration::from_millis(100));
    }
    let go = if plan.latency { latency::ping } else { pump };
    let result = go(plan, shared, thread, &mut streams);
    for stream in streams.iter().filter(|stream| stream.alive) {
        // Fails only if the peer has just gone, and all bytes are counted by now.
        let _ = shutdown(&stream.socket, Shutdown::Write);
    }
    thread.done.store(true, Ordering::Release);
    shared.wake.signal();
    result
}

fn open(
    plan: &Plan,
    shared: &Shared,
    thread: &ThreadState,
    target: Target,
) -> Result<Vec<Stream>, TrafficError> {
    let mut streams = Vec::new();
    for place in 0..plan.connections_per_thread {
        let ahead = u16::try_from(place).unwrap_or(u16::MAX);
        let port =
            if target.source_port == 0 { 0 } else { target.source_port.saturating_add(ahead) };
        let socket = match shared.take_early_connection(target.peer) {
            Some(socket) => socket,
            None => connect::data(plan, target.peer, port, &mut |wait| shared.note_wait(wait))?,
        };
        let socket = thread.open(socket);
        streams.push(Stream {
            socket,
            number: target.number + u64::from(place),
            sent: 0,
            since: None,
            alive: true,
        });
    }
    Ok(streams)
}

fn pump(
    plan: &Plan,
    shared: &Shared,
    thread: &ThreadState,
    streams: &mut [Stream],
) -> Result<(), TrafficError> {
    let sockets = streams.iter().zip(0..);
    let sockets = sockets.map(|(stream, place)| (stream.socket.as_fd(), place, EventFlags::OUT));
    let epoll = epoll_set(sockets.chain([(shared.stop.as_fd(), STOP, EventFlags::IN)]))?;
    let mut writer = Writer::new(plan)?;
    let mut pace = Pace { bandwidth: 0, since: Instant::now(), bytes: 0 };
    let mut events = Vec::with_capacity(EVENTS);
    while !shared.stop.is_signalled()
        && writer.left != Some(0)
        && streams.iter().any(|stream| stream.alive)
    {
        wait_for_events(&epoll, &mut events, None)?;
        for event in &events {
            let place = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(stream) = streams.get_mut(place) else { continue };
            if let Err(error) = writer.serve(shared, thread, stream) {
                stream.alive = false;
                let _ = epoll::delete(&epoll, &stream.socket);
                thread.close(Some(&error.to_string()));
                shared.wake.signal();
            }
        }
        let look = || {
            let all = shared.bandwidth.load(Ordering::Relaxed);
            let own = all.div_ceil(shared.threads.len() as u64);
            (!shared.stop.is_signalled()).then(|| (own, Instant::now()))
        };
        let bytes = thread.counters.bytes.load(Ordering::Relaxed);
        if pace.hold(bytes, look, |nap| shared.stop.wait(nap)) {
            // Time spent waiting for the limit does not count as a request's time.
            streams
                .iter_mut()
                .for_each(|stream| stream.since = stream.since.map(|_| Instant::now()));
        }
    }
    if let Some(stopwatch) = writer.stopwatch {
        stopwatch.store(thread);
    }
    Ok(())
}

/// Writes the plan's payload: plain or checked bytes, as a stream or as datagrams.
struct Writer<'p> {
    plan: &'p Plan,
    plain: Vec<u8>,
    pattern: Option<Pattern>,
    datagrams: u64,
    left: Option<u64>,
    stopwatch: Option<Stopwatch>,
}

impl Writer<'_> {
    fn new(plan: &Plan) -> Result<Writer<'_>, TrafficError> {
        let letter = if plan.transport == Transport::Tcp { b'A' } else { b'B' };
        let left = match plan.length {
            Length::Buffers(count) => Some(count.saturating_mul(plan.buffer_bytes as u64)),
            Length::Seconds(_) | Length::UntilStopped => None,
        };
        Ok(Writer {
            plan,
            plain: vec![letter; plan.buffer_bytes],
            pattern: plan.verify.then(|| Pattern::new(plan.buffer_bytes)),
            datagrams: 0,
            left,
            stopwatch: Stopwatch::of(plan)?,
        })
    }

    /// Writes up to `-a` buffers to one ready connection.
    fn serve(
        &mut self,
        shared: &Shared,
        thread: &ThreadState,
        stream: &mut Stream,
    ) -> Result<(), Errno> {
        for _ in 0..self.plan.outstanding.max(1) {
            let result = match self.plan.transport {
                Transport::Tcp => self.write_stream(stream),
                Transport::Udp => self.write_datagram(stream),
            };
            match result {
                Ok(0) | Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(sent) => {
                    thread.counters.add(sent);
                    let buffers = |stream: &Stream| stream.sent / self.plan.buffer_bytes as u64;
                    let before = buffers(stream);
                    stream.sent += sent as u64;
                    if let Some(stopwatch) =
                        self.stopwatch.as_mut().filter(|_| buffers(stream) > before)
                    {
                        stopwatch.lap(shared, &mut stream.since);
                    }
                    self.left = self.left.map(|left| left.saturating_sub(sent as u64));
                }
                // Report of an earlier datagram's failure, or a full device queue: the next
                // datagram may pass.
                Err(_) if self.plan.transport == Transport::Udp => thread.counters.add_error(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_stream(&self, stream: &Stream) -> Result<usize, Errno> {
        let header = stream.number.to_be_bytes();
        let room = self.room();
        let bytes = match &self.pattern {
            None => self.plain.get(..room).unwrap_or_default(),
            Some(pattern) => match stream.sent.checked_sub(HEADER as u64) {
                Some(offset) => pattern.at(stream.number, offset, room),
                None => header.get(usize::try_from(stream.sent).unwrap_or(0)..).unwrap_or_default(),
            },
        };
        let bytes = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        send(&stream.socket, bytes, SendFlags::NOSIGNAL)
    }

    fn write_datagram(&mut self, stream: &Stream) -> Result<usize, Errno> {
        let room = self.room();
        if let Some(pattern) = &self.pattern {
            let number = (stream.number << 40) | self.datagrams;
            let (header, rest) = self.plain.split_at_mut(HEADER.min(self.plan.buffer_bytes));
            header.copy_from_slice(number.to_be_bytes().get(..header.len()).unwrap_or_default());
            rest.copy_from_slice(pattern.at(number, 0, rest.len()));
        }
        let sent =
            send(&stream.socket, self.plain.get(..room).unwrap_or_default(), SendFlags::NOSIGNAL)?;
        self.datagrams += 1;
        Ok(sent)
    }

    /// Returns the bytes of the next call: a buffer, or what is left of the thread's share.
    fn room(&self) -> usize {
        let left = self.left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
        self.plan.buffer_bytes.min(left)
    }
}

/// Longest sleep of a paced thread; after it the thread sees a changed bandwidth.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Lead, in seconds, below which a thread does not sleep: a shorter sleep costs more than it holds
/// back.
const LEAD_MIN_S: f64 = 0.000_2;

/// Holds a thread to its share of the bandwidth since the bandwidth was set. A late thread catches
/// up at once; an early one sleeps rather than spins.
struct Pace {
    bandwidth: u64,
    since: Instant,
    bytes: u64,
}

impl Pace {
    /// Sleeps while a thread that has sent `bytes` is ahead. Returns whether it slept. `look`
    /// returns the thread's bandwidth and the time, or `None` if the thread is to stop.
    fn hold(
        &mut self,
        bytes: u64,
        look: impl Fn() -> Option<(u64, Instant)>,
        sleep: impl Fn(Duration),
    ) -> bool {
        let mut slept = false;
        while let Some((bandwidth, now)) = look() {
            let ahead = self.ahead(bandwidth, bytes, now);
            if ahead <= LEAD_MIN_S {
                break;
            }
            sleep(Duration::from_secs_f64(ahead).min(SLEEP_MAX));
            slept = true;
        }
        slept
    }

    /// Returns the seconds by which a thread that has sent `bytes` is ahead of its bandwidth; 0 if
    /// there is no limit.
    fn ahead(&mut self, bandwidth: u64, bytes: u64, now: Instant) -> f64 {
        if bandwidth != self.bandwidth {
            *self = Pace { bandwidth, since: now, bytes };
        }
        if bandwidth == 0 {
            return 0.0;
        }
        let due = (bytes - self.bytes) as f64 * 8.0 / bandwidth as f64;
        due - now.duration_since(self.since).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// A thread's loop on virtual time, with its sleeps.
    struct Paced {
        pace: Pace,
        begin: Instant,
        now: Cell<Duration>,
        naps: Cell<u32>,
        longest: Cell<Duration>,
    }

    impl Paced {
        fn new() -> Paced {
            let pace = Pace { bandwidth: 0, since: Instant::now(), bytes: 0 };
            let (now, naps, longest) = (Cell::default(), Cell::default(), Cell::default());
            Paced { begin: pace.since, pace, now, naps, longest }
        }

        /// Paces a thread that has sent `bytes`, with the bandwidth of each moment. Returns whether
        /// it slept.
        fn hold(&mut self, bytes: u64, told: impl Fn(Duration) -> Option<u64>) -> bool {
            let Paced { pace, begin, now, naps, longest } = self;
            let look = || Some((told(now.get())?, *begin + now.get()));
            let sleep = |nap: Duration| {
                now.set(now.get() + nap);
                naps.set(naps.get() + 1);
                longest.set(longest.get().max(nap));
                assert!(naps.get() < 1_000_000, "it never ends");
            };
            pace.hold(bytes, look, sleep)
        }
    }

    proptest! {
        #[test]
        fn a_thread_sends_no_more_than_its_bandwidth_and_wastes_none(
            bandwidth in 1_000_000..10_000_000_000u64,
            // The bytes of one write, and how long it takes.
            writes in proptest::collection::vec((1..1_000_000u64, 0..2000u64), 1..60),
        ) {
            let (mut thread, mut bytes) = (Paced::new(), 0);
            thread.hold(0, |_| Some(bandwidth));
            for (written, micros) in writes {
                bytes += written;
                let before = thread.now.get() + Duration::from_micros(micros);
                thread.now.set(before);
                let slept = thread.hold(bytes, |_| Some(bandwidth));
                let (due, now) = (bytes as f64 * 8.0 / bandwidth as f64, thread.now.get());
                prop_assert!(now.as_secs_f64() + LEAD_MIN_S + 1e-6 >= due, "{now:?} of {due} s: ahead");
                let is_on_time = if slept { now.as_secs_f64() <= due + 1e-6 } else { now == before };
                prop_assert!(is_on_time, "{before:?} to {now:?} of {due} s");
            }
            prop_assert!(thread.longest.get() <= SLEEP_MAX);
        }
    }

    #[test]
    fn a_thread_that_sleeps_sees_a_new_bandwidth_and_the_stop_within_a_nap() {
        let second = Duration::from_secs(1);
        let told = |changed: Option<u64>| move |now| if now < second { Some(8) } else { changed };
        for changed in [Some(0), Some(8_000_000_000), None] {
            let mut thread = Paced::new();
            thread.hold(0, told(changed));
            assert!(thread.hold(1000, told(changed)), "it has a thousand seconds to wait");
            assert!((second..second + SLEEP_MAX).contains(&thread.now.get()), "{changed:?}");
            assert_eq!(thread.longest.get(), SLEEP_MAX);
        }
        let mut stopped = Paced::new();
        assert!(!stopped.hold(1000, |_| None) && stopped.naps.get() == 0);
        assert!(!stopped.hold(u64::MAX, |_| Some(0)) && stopped.naps.get() == 0, "no limit");
    }

    #[test]
    fn a_thread_keeps_its_bandwidth_from_the_moment_it_was_set() {
        let begin = Instant::now();
        let mut pace = Pace { bandwidth: 0, since: begin, bytes: 0 };
        let mut ahead = |bandwidth: u64, bytes: u64, second: u64| {
            pace.ahead(bandwidth, bytes, begin + Duration::from_secs(second))
        };
        assert_eq!(ahead(0, 5000, 0), 0.0);
        assert_eq!(ahead(800, 5000, 1), 0.0, "what was sent before does not count");
        assert_eq!(ahead(800, 5200, 2), 1.0);
        assert_eq!(ahead(800, 5200, 4), -1.0, "it is late and may catch up");
        assert_eq!(ahead(400, 5200, 4), 0.0);
        assert_eq!(ahead(400, 5300, 5), 1.0);
        assert_eq!(ahead(0, 9000, 6), 0.0);
    }
}
