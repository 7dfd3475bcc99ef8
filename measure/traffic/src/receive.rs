//! A receiving thread: one port, all connections that come to it, one large buffer.

use crate::event_fd::{epoll_set, wait_for_events};
use crate::payload::{Checker, Mismatch, Pattern};
use crate::plan::{Plan, Transport};
use crate::shared::Shared;
use crate::stopwatch::Stopwatch;
use crate::thread::ThreadState;
use crate::{TrafficError, host};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketFlags, accept_with, recv, recvfrom, send, sendto, sockopt,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const STOP: u64 = u64::MAX;
const PORT: u64 = u64::MAX - 1;
const EVENTS: usize = 512;
/// Most datagrams taken before the next check of the stop signal.
const DATAGRAMS: u32 = 64;

/// A thread's listener or UDP socket, and the processor it is pinned to.
pub(crate) type Port = (OwnedFd, Option<usize>);

/// Runs a receiving thread. `port` is the listener, or the UDP socket.
pub(crate) fn run(
    plan: &Plan,
    shared: &Shared,
    thread: &ThreadState,
    (port, processor): Port,
) -> Result<(), TrafficError> {
    let result = host::pin(processor)
        .and_then(|()| Reader::new(plan, shared, thread, port)?.read_until_stopped());
    if result.is_err() {
        thread.failed.store(true, Ordering::Release);
    }
    thread.done.store(true, Ordering::Release);
    shared.wake.signal();
    result
}

struct Reader<'r> {
    plan: &'r Plan,
    shared: &'r Shared,
    thread: &'r ThreadState,
    port: Arc<OwnedFd>,
    epoll: OwnedFd,
    streams: Vec<Option<Stream>>,
    buffer: Vec<u8>,
    pattern: Option<Pattern>,
    stopwatch: Option<Stopwatch>,
    /// When the datagram being awaited was asked for, where reads are timed.
    since: Option<Instant>,
}

struct Stream {
    socket: Arc<OwnedFd>,
    checker: Checker,
    /// When the current read began, where reads are timed.
    since: Option<Instant>,
}

impl<'r> Reader<'r> {
    fn new(
        plan: &'r Plan,
        shared: &'r Shared,
        thread: &'r ThreadState,
        port: OwnedFd,
    ) -> Result<Self, TrafficError> {
        let own = [(shared.stop.as_fd(), STOP), (port.as_fd(), PORT)];
        let epoll = epoll_set(own.map(|(fd, number)| (fd, number, EventFlags::IN)))?;
        let room = if plan.transport == Transport::Udp { 65_536 } else { plan.buffer_bytes };
        Ok(Reader {
            plan,
            shared,
            thread,
            port: Arc::new(port),
            epoll,
            streams: Vec::new(),
            buffer: vec![0; room],
            pattern: plan.verify.then(|| Pattern::new(room)),
            stopwatch: Stopwatch::of(plan)?,
            since: None,
        })
    }

    fn read_until_stopped(&mut self) -> Result<(), TrafficError> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.shared.stop.is_signalled() {
            wait_for_events(&self.epoll, &mut events, None)?;
            for event in &events {
                match event.data.u64() {
                    STOP => {}
                    PORT if self.plan.transport == Transport::Udp => self.datagrams(),
                    PORT => self.accept(),
                    place => self.read(usize::try_from(place).unwrap_or(usize::MAX)),
                }
            }
        }
        if let Some(stopwatch) = self.stopwatch.take() {
            stopwatch.store(self.thread);
        }
        Ok(())
    }

    fn accept(&mut self) {
        // A flood of new connections must not keep the thread from its stop.
        while !self.shared.stop.is_signalled() {
            match accept_with(&self.port, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.admit(socket),
                Err(Errno::AGAIN) => return,
                // The peer has already closed the connection.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    self.thread.counters.add_error();
                    self.thread.remark(format!(
                        "no more connections were accepted: {error}; raise `ulimit -Hn`"
                    ));
                    // Going on would spin over a listener that stays ready.
                    let _ = epoll::delete(&self.epoll, &self.port);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        if self.plan.latency {
            // Fails only on a closed socket, which the next read finds.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
        }
        let place = EventData::new_u64(self.streams.len() as u64);
        let socket = self.thread.open(socket);
        match epoll::add(&self.epoll, &socket, place, EventFlags::IN) {
            Ok(()) => {
                self.streams.push(Some(Stream { socket, checker: Checker::default(), since: None }))
            }
            Err(error) => self.thread.close(Some(&error.to_string())),
        }
        self.shared.wake.signal();
    }

    /// Reads up to `-a` buffers from one ready connection.
    fn read(&mut self, place: usize) {
        let Some(Some(stream)) = self.streams.get_mut(place) else { return };
        let mut end = None;
        for _ in 0..self.plan.outstanding.max(1) {
            match recv(&stream.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => end = Some(None),
                Ok((count, _)) => {
                    self.thread.counters.add(count);
                    let bytes = self.buffer.get(..count).unwrap_or_default();
                    check(self.thread, self.pattern.as_ref(), &mut stream.checker, bytes);
                    if let Some(stopwatch) = &mut self.stopwatch {
                        stopwatch.lap(self.shared, &mut stream.since);
                    }
                    if self.plan.latency
                        && send(&stream.socket, bytes, SendFlags::NOSIGNAL) != Ok(count)
                    {
                        self.thread.counters.add_error();
                    }
                    if count < self.buffer.len() {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => end = Some(Some(error.to_string())),
            }
            if end.is_some() {
                break;
            }
        }
        if let Some(error) = end {
            let _ = epoll::delete(&self.epoll, &stream.socket);
            if let Some(slot) = self.streams.get_mut(place) {
                *slot = None;
            }
            self.thread.close(error.as_deref());
            self.shared.wake.signal();
        }
    }

    fn datagrams(&mut self) {
        for _ in 0..DATAGRAMS {
            let (count, from) = match recvfrom(&self.port, &mut self.buffer[..], RecvFlags::empty())
            {
                Ok((count, _, from)) => (count, from),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => {
                    self.thread.counters.add_error();
                    return;
                }
            };
            if self.thread.opened.load(Ordering::Relaxed) == 0 {
                self.thread.opened.store(1, Ordering::Release);
                self.shared.wake.signal();
            }
            self.thread.counters.add(count);
            let bytes = self.buffer.get(..count).unwrap_or_default();
            check(self.thread, self.pattern.as_ref(), &mut Checker::default(), bytes);
            if let Some(stopwatch) = &mut self.stopwatch {
                stopwatch.lap(self.shared, &mut self.since);
            }
            let Some(from) = from.filter(|_| self.plan.latency) else { continue };
            if sendto(&self.port, bytes, SendFlags::NOSIGNAL, &from) != Ok(count) {
                self.thread.counters.add_error();
            }
        }
    }
}

fn check(thread: &ThreadState, pattern: Option<&Pattern>, checker: &mut Checker, bytes: &[u8]) {
    let Some(pattern) = pattern else { return };
    match checker.check(pattern, bytes) {
        Ok(()) => thread.counters.add_verified(bytes.len()),
        Err(Mismatch { offset, sent, received }) => {
            thread.counters.add_error();
            thread.remark(format!(
                "byte {offset} of a connection is {received:#04x}, {sent:#04x} was sent"
            ));
        }
    }
}
