//! The lanes of `-a N` with io_uring: each connection keeps a chain of N requests in the kernel, each with a buffer of its own.
//!
//! The requests of a chain are linked: the kernel carries them out one after the other without coming back here, and the
//! next chain goes in when the last request of this one has completed. So N requests are outstanding and the bytes of a
//! stream still have one order, which free requests on one socket do not promise. A send takes its whole buffer, a receive
//! whatever is there. What is counted, checked and reported is the same as with epoll (`send`, `receive`).

use crate::lane::{Lane, Stage};
use crate::payload::{Checker, Pattern};
use crate::plan::{Plan, Transport};
use crate::receive::{accept_all, check};
use crate::ring::{CHAIN_MAX, Done, Ring};
use crate::send::{Pace, Stream, Writer};
use crate::{TrafficError, receive};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// Most memory that a sender's chains may take.
const MEMORY_MAX: u64 = 1 << 30;
/// Numbers of what a ring watches.
const STOP: u32 = 0;
const PORT: u32 = 1;

/// How a run's threads talk to the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Which it is.
    pub kind: EngineKind,
    /// Why it is not io_uring, where `-a` asked for it.
    pub reason: Option<String>,
}

/// See [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Calls that do not wait, on connections that are ready.
    Epoll,
    /// Requests that wait in the kernel.
    IoUring,
}

impl Engine {
    /// io_uring where the plan asks for requests in flight and this host and test can have it.
    pub(crate) fn choose(plan: &Plan) -> Engine {
        let Some(chain) = plan.in_flight else {
            return Engine { kind: EngineKind::Epoll, reason: None };
        };
        match objection(plan, chain) {
            None => Engine { kind: EngineKind::IoUring, reason: None },
            Some(reason) => Engine { kind: EngineKind::Epoll, reason: Some(reason) },
        }
    }
}

fn objection(plan: &Plan, chain: u32) -> Option<String> {
    if plan.transport == Transport::Udp || plan.latency {
        return Some("only bulk TCP has requests in flight".into());
    }
    if chain > CHAIN_MAX {
        return Some(format!("{chain} requests in flight are asked for, {CHAIN_MAX} are the most"));
    }
    let memory = plan.connections() * u64::from(chain) * plan.buffer_bytes as u64;
    if memory > MEMORY_MAX {
        return Some(format!(
            "the buffers of all requests would take {} MiB, {} are the most: use a smaller -l or -a",
            memory >> 20,
            MEMORY_MAX >> 20
        ));
    }
    Ring::new().err().map(|error| format!("io_uring cannot be had here: {error}"))
}

/// Sends until the stop, or until the lane's share is sent.
pub(crate) fn send(
    plan: &Plan,
    stage: &Stage,
    lane: &Lane,
    streams: &mut [Stream],
) -> Result<(), TrafficError> {
    let mut sender = Sender::new(plan, stage, lane, streams).map_err(failed)?;
    let result = sender.turns().map_err(failed);
    // Also after a failure: what was sent is counted.
    sender.settle().map_err(failed).and(result)
}

/// Receives on all connections that come to a port, until the stop.
pub(crate) fn receive(
    plan: &Plan,
    stage: &Stage,
    lane: &Lane,
    port: OwnedFd,
) -> Result<(), TrafficError> {
    let ring = Ring::new().map_err(failed)?;
    let pattern = plan.verify.then(|| Pattern::new(plan.buffer_bytes));
    let chain = chain_of(plan);
    let mut receiver =
        Receiver { plan, stage, lane, port, ring, chain, pattern, streams: Vec::new() };
    receiver.turns().map_err(failed)
}

fn failed(error: io::Error) -> TrafficError {
    TrafficError::system("send or receive with io_uring")(error)
}

fn chain_of(plan: &Plan) -> usize {
    plan.in_flight.unwrap_or(1).clamp(1, CHAIN_MAX) as usize
}

struct Sender<'s> {
    stage: &'s Stage,
    lane: &'s Lane,
    streams: &'s mut [Stream],
    writer: Writer<'s>,
    pace: Pace,
    ring: Ring,
    chain: usize,
    /// Bytes that each buffer was lent with; 0 is not lent.
    lent: Vec<usize>,
    /// Requests that each connection has in the kernel.
    waiting: Vec<usize>,
}

impl<'s> Sender<'s> {
    fn new(
        plan: &'s Plan,
        stage: &'s Stage,
        lane: &'s Lane,
        streams: &'s mut [Stream],
    ) -> io::Result<Sender<'s>> {
        let (mut ring, chain) = (Ring::new()?, chain_of(plan));
        let buffers = streams.len() * chain;
        for _ in 0..buffers {
            ring.keep(vec![0; plan.buffer_bytes].into());
        }
        ring.watch(&stage.stop, STOP)?;
        let waiting = vec![0; streams.len()];
        let (writer, pace) = (Writer::new(plan), Pace::new(plan));
        Ok(Sender {
            stage,
            lane,
            streams,
            writer,
            pace,
            ring,
            chain,
            lent: vec![0; buffers],
            waiting,
        })
    }

    fn turns(&mut self) -> io::Result<()> {
        for place in 0..self.streams.len() {
            self.ask(place)?;
        }
        while !self.stage.stop.is_raised() && self.waiting.iter().any(|waiting| *waiting > 0) {
            self.ring.wait()?;
            while let Some(done) = self.ring.next() {
                let Done::Buffer(buffer, result) = done else { continue };
                self.count(buffer, result);
                let place = buffer / self.chain;
                if self.waiting.get(place) == Some(&0) && !self.stage.stop.is_raised() {
                    self.ask(place)?;
                }
            }
            self.pace.hold(self.stage, self.lane);
        }
        Ok(())
    }

    /// A connection's next chain, as long as there is something to send.
    fn ask(&mut self, place: usize) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(place).filter(|stream| stream.alive) else {
            return Ok(());
        };
        let first = place * self.chain;
        let mut lengths = Vec::with_capacity(self.chain);
        for buffer in first..first + self.chain {
            let bytes = self.ring.bytes(buffer).unwrap_or_default();
            let length = self.writer.fill(stream, bytes);
            if length == 0 {
                break;
            }
            lengths.push(length);
        }
        self.ring.make_room(lengths.len())?;
        for (ahead, length) in lengths.iter().enumerate() {
            let linked = ahead + 1 < lengths.len();
            self.ring.send(&stream.socket, first + ahead, *length, linked)?;
            if let Some(lent) = self.lent.get_mut(first + ahead) {
                *lent = *length;
            }
        }
        if let Some(waiting) = self.waiting.get_mut(place) {
            *waiting = lengths.len();
        }
        Ok(())
    }

    fn count(&mut self, buffer: usize, result: i32) {
        let place = buffer / self.chain;
        let lent = self.lent.get_mut(buffer).map(std::mem::take).unwrap_or_default();
        let (Some(stream), Some(waiting)) =
            (self.streams.get_mut(place), self.waiting.get_mut(place))
        else {
            return;
        };
        *waiting = waiting.saturating_sub(1);
        let sent = usize::try_from(result).unwrap_or(0);
        if sent > 0 {
            self.lane.counters.add(sent);
        }
        self.writer.take_back(stream, lent.saturating_sub(sent));
        if let Some(error) = broke(result).filter(|_| stream.alive) {
            stream.alive = false;
            self.lane.close(Some(&error.to_string()));
            self.stage.bell.ring();
        }
    }

    /// Everything comes back before the connections are shut down, and is counted.
    fn settle(&mut self) -> io::Result<()> {
        let mut back = Vec::new();
        let settled = self.ring.settle(|_, done| back.push(done));
        for done in back {
            if let Done::Buffer(buffer, result) = done {
                self.count(buffer, result);
            }
        }
        settled
    }
}

/// What ended a connection. Being cancelled is our own doing, or that of the request before.
fn broke(result: i32) -> Option<Errno> {
    let error = (result < 0).then(|| Errno::from_raw_os_error(result.saturating_neg()))?;
    (!matches!(error, Errno::CANCELED | Errno::AGAIN | Errno::INTR)).then_some(error)
}

struct Receiver<'r> {
    plan: &'r Plan,
    stage: &'r Stage,
    lane: &'r Lane,
    port: OwnedFd,
    ring: Ring,
    chain: usize,
    pattern: Option<Pattern>,
    streams: Vec<Incoming>,
}

/// One connection of the lane.
struct Incoming {
    socket: Arc<OwnedFd>,
    checker: Checker,
    /// Requests in the kernel.
    waiting: usize,
    alive: bool,
}

impl Receiver<'_> {
    fn turns(&mut self) -> io::Result<()> {
        self.ring.watch(&self.stage.stop, STOP)?;
        self.ring.watch(&self.port, PORT)?;
        while !self.stage.stop.is_raised() {
            self.ring.wait()?;
            while let Some(done) = self.ring.next() {
                match done {
                    Done::Readable(PORT) => self.accept()?,
                    Done::Readable(_) => {}
                    Done::Buffer(buffer, result) => self.take(buffer, result)?,
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        let (more, sockets) = accept_all(self.stage, self.lane, &self.port);
        for socket in sockets {
            // The ring waits for it; a call that would not wait might come back at once.
            rustix::io::ioctl_fionbio(&socket, false)?;
            receive::prepare(self.plan, &socket);
            let socket = self.lane.open(socket);
            self.stage.bell.ring();
            self.streams.push(Incoming {
                socket,
                checker: Checker::default(),
                waiting: 0,
                alive: true,
            });
            for _ in 0..self.chain {
                self.ring.keep(vec![0; self.plan.buffer_bytes].into());
            }
            self.ask(self.streams.len() - 1)?;
        }
        if more { self.ring.watch(&self.port, PORT) } else { Ok(()) }
    }

    /// A connection's next chain.
    fn ask(&mut self, place: usize) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(place).filter(|stream| stream.alive) else {
            return Ok(());
        };
        self.ring.make_room(self.chain)?;
        let first = place * self.chain;
        for ahead in 0..self.chain {
            self.ring.receive(&stream.socket, first + ahead, ahead + 1 < self.chain)?;
        }
        stream.waiting = self.chain;
        Ok(())
    }

    fn take(&mut self, buffer: usize, result: i32) -> io::Result<()> {
        let place = buffer / self.chain;
        let Some(stream) = self.streams.get_mut(place) else { return Ok(()) };
        stream.waiting = stream.waiting.saturating_sub(1);
        if let Ok(count @ 1..) = usize::try_from(result) {
            self.lane.counters.add(count);
            let bytes = self.ring.bytes(buffer).unwrap_or_default();
            let bytes = bytes.get(..count).unwrap_or_default();
            check(self.lane, self.pattern.as_ref(), &mut stream.checker, bytes);
        }
        let error = broke(result);
        if stream.alive && (result == 0 || error.is_some()) {
            stream.alive = false;
            self.lane.close(error.map(|error| error.to_string()).as_deref());
            self.stage.bell.ring();
        }
        if stream.waiting == 0 { self.ask(place) } else { Ok(()) }
    }
}
