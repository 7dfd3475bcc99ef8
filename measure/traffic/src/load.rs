//! A load without an end: the threads of a run, for measurements over connections that keep
//! running.
//!
//! An NTttcp run begins, measures and ends by its own clock; [`run`](crate::run) does that. An
//! experiment that switches something under running connections has a clock of its own. It starts a
//! [`Load`] at each end, reads the byte count as often as it likes, and drops it. There is no
//! synchronisation and no report.

use crate::plan::{Plan, Role};
use crate::sender::{await_connections, targets};
use crate::shared::{Handle, Shared, join, start};
use crate::stopwatch::times;
use crate::thread::{ThreadState, lock};
use crate::{TrafficError, host, receive, receiver, send};
use hdrhistogram::Histogram;
use rustix::net::sockopt::set_socket_linger;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One end of a load. Dropping it ends the load.
#[derive(Debug)]
pub struct Load {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    threads: Vec<Handle>,
}

impl Load {
    /// Starts one end of a plan. When this returns, a receiver listens; a sender has all its
    /// connections and sends. The plan's times and synchronisation are ignored.
    ///
    /// # Errors
    /// Fails if a port is taken, a receiver cannot be reached, or the kernel refuses the sockets.
    pub fn start(plan: Plan) -> Result<Load, TrafficError> {
        plan.check()?;
        match plan.role {
            Role::Receiver => Load::receive(plan),
            Role::Sender => Load::send(plan),
        }
    }

    /// Limits what a sender sends from now on, in bits a second on all its connections together.
    /// `None` removes the limit.
    pub fn limit(&self, bits_per_s: Option<u64>) {
        self.shared.bandwidth.store(bits_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the bytes that this end's application has sent or received since the start.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.opened().saturating_sub(self.shared.closed())
    }

    /// Stops sending or receiving. A sender's connections stay open until they have delivered what
    /// they were given, or until this load is dropped.
    pub fn stop(&mut self) {
        // An error of a thread does not change what it has counted.
        let _ = self.join();
    }

    /// Makes round trips for a time, at a sender with [`Plan::latency`], and ends the load. Returns
    /// their times in nanoseconds.
    ///
    /// # Errors
    /// Fails if all connections broke before the end.
    pub fn round_trips(mut self, time: Duration) -> Result<Histogram<u64>, TrafficError> {
        let end = Instant::now() + time;
        self.shared.measuring.store(true, Ordering::Relaxed);
        loop {
            self.shared.wake.clear();
            let left = end.saturating_duration_since(Instant::now());
            if self.shared.all_done() {
                let remarks =
                    self.shared.threads.iter().flat_map(|thread| lock(&thread.remarks).clone());
                return Err(TrafficError::Plan(remarks.collect::<Vec<_>>().join("; ")));
            }
            if left.is_zero() {
                break;
            }
            self.shared.wake.wait(left);
        }
        self.stop();
        times(&self.shared)
    }

    /// Returns the bytes that a sender's connections have not delivered, by the kernel's count.
    /// Call this after [`Load::stop`].
    pub fn undelivered(&self) -> u64 {
        self.shared.undelivered().0
    }

    /// Stops, and discards undelivered bytes so that the next run starts clean.
    pub fn abort(mut self) {
        self.stop();
        for thread in &self.shared.threads {
            for socket in lock(&thread.sockets).iter() {
                // Fails only if the connection is gone already.
                let _ = set_socket_linger(socket, Some(Duration::ZERO));
            }
        }
    }

    fn receive(plan: Plan) -> Result<Load, TrafficError> {
        host::allow_all_files();
        let ports = receiver::listen(&plan)?;
        Load::new(plan, ports, receive::run)
    }

    fn send(plan: Plan) -> Result<Load, TrafficError> {
        host::allow_files(plan.connections())?;
        let targets = targets(&plan);
        let mut load = Load::new(plan, targets, send::run)?;
        if let Err(error) = await_connections(&load.plan, &load.shared, &mut |_| {}) {
            // A thread's own error says more than "not all connected".
            return Err(load.join().err().unwrap_or(error));
        }
        load.shared.begin.signal();
        Ok(load)
    }

    fn new<P: Send + 'static>(
        plan: Plan,
        parts: Vec<P>,
        body: fn(&Plan, &Shared, &ThreadState, P) -> Result<(), TrafficError>,
    ) -> Result<Load, TrafficError> {
        let shared = Arc::new(Shared::new(&plan, parts.len())?);
        let plan = Arc::new(plan);
        let threads = start(&plan, &shared, parts, body);
        Ok(Load { plan, shared, threads })
    }

    /// Ends all threads, and returns the first error of any.
    fn join(&mut self) -> Result<(), TrafficError> {
        self.plan.stop.store(true, Ordering::Relaxed);
        self.shared.stop.signal();
        join(self.threads.drain(..))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // A drop has no way to report a thread's error.
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const HERE: std::net::IpAddr = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn plan(role: Role, port: u16, connections: u32) -> Plan {
        Plan { connections_per_thread: connections, ..Plan::new(role, HERE, port, 0) }
    }

    /// Makes a receiver on any free port.
    fn receiver(latency: bool) -> (Load, u16) {
        loop {
            let port = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
            match Load::start(Plan { latency, ..plan(Role::Receiver, port, 1) }) {
                Ok(load) => return (load, port),
                Err(TrafficError::Bind { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn connections_run_until_an_end_is_dropped_and_every_byte_arrives() {
        let (receiver, port) = receiver(false);
        let mut sender = Load::start(plan(Role::Sender, port, 40)).unwrap();
        while receiver.connections() < 40 || receiver.bytes() < 1 << 20 {
            std::thread::yield_now();
        }
        assert_eq!(sender.connections(), 40);
        sender.stop();
        let sent = sender.bytes();
        while receiver.connections() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(receiver.bytes(), sent);
    }

    #[test]
    fn a_load_that_nobody_reads_knows_what_it_has_not_delivered_and_leaves_nothing_behind() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut sender = Load::start(plan(Role::Sender, port, 2)).unwrap();
        let unread: Vec<_> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        let waiting = || unread.iter().map(|one| rustix::io::ioctl_fionread(one).unwrap()).sum();
        let mut before: u64 = 0;
        // Waits until the buffers at both ends of each connection are full.
        while sender.shared.undelivered().1 < unread.len() || before < waiting() {
            before = waiting();
            std::thread::sleep(Duration::from_millis(20));
        }
        sender.stop();
        // Bytes that have arrived and are not yet confirmed are counted by both.
        let (undelivered, sent) = (sender.undelivered(), sender.bytes());
        assert!((sent - waiting()..sent).contains(&undelivered), "{undelivered} of {sent}");
        sender.abort();
        for mut one in unread {
            let error = std::io::copy(&mut one, &mut std::io::sink()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn round_trips_are_timed_until_the_end_and_a_receiver_that_goes_is_told() {
        let (receiver, port) = receiver(true);
        let ask = || Load::start(Plan { latency: true, ..plan(Role::Sender, port, 1) });
        // A busy machine may make none in so short a time.
        let some = || ask().unwrap().round_trips(Duration::from_millis(20)).unwrap();
        let times = std::iter::repeat_with(some).find(|times| !times.is_empty()).unwrap();
        assert!(times.min() > 0 && times.max() < 60_000_000_000);
        let second = ask().unwrap();
        while receiver.connections() == 0 {
            std::thread::yield_now();
        }
        drop(receiver);
        let error = second.round_trips(Duration::from_secs(600)).unwrap_err();
        assert!(error.to_string().contains("broke"), "{error}");
    }

    #[test]
    fn a_receiver_that_is_not_there_is_named() {
        let plan = Plan { connect_attempts: 1, ..plan(Role::Sender, 9, 2) };
        let error = Load::start(plan).unwrap_err();
        assert!(matches!(error, TrafficError::Unreachable { .. }), "{error}");
    }
}
