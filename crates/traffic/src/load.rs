//! A load without an end: the lanes of a run, for whoever cuts intervals out of connections that keep running.
//!
//! An NTttcp run begins, measures and ends by its own clock, and [`run`](crate::run) does that. An experiment that
//! switches something under running connections has a clock of its own: it starts a [`Load`] at each end, reads what has
//! passed so far as often as it likes, and drops it. There is no synchronisation and no report.

use crate::lane::{Stage, lock};
use crate::plan::{Plan, Role};
use crate::sender::{await_connections, targets};
use crate::{TrafficError, host, receive, receiver, send};
use rustix::net::sockopt::set_socket_linger;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// One end of a load. It ends when it is dropped.
#[derive(Debug)]
pub struct Load {
    plan: Arc<Plan>,
    stage: Arc<Stage>,
    lanes: Vec<JoinHandle<Result<(), TrafficError>>>,
}

impl Load {
    /// Starts a plan's end. A receiver listens when this returns; a sender has all its connections and sends. Of the plan,
    /// times and synchronisation do not matter.
    ///
    /// # Errors
    /// A port is taken, a receiver cannot be reached, or the kernel refuses the sockets.
    pub fn start(plan: Plan) -> Result<Load, TrafficError> {
        plan.check()?;
        match plan.role {
            Role::Receiver => Load::receive(plan),
            Role::Sender => Load::send(plan),
        }
    }

    /// From now on a sender sends at most so many bits a second on all its connections together. `None`: as fast as it can.
    pub fn limit(&self, bits_per_s: Option<u64>) {
        self.stage.bandwidth.store(bits_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes that this end's application has sent or received since the start.
    pub fn bytes(&self) -> u64 {
        self.stage.bytes()
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.stage.opened().saturating_sub(self.stage.closed())
    }

    /// Ends it; the bytes of all of it. A sender's last bytes may still be on their way then.
    pub fn end(mut self) -> u64 {
        self.stop();
        self.bytes()
    }

    /// Nothing more is sent or received by this end. A sender's connections stay until they have delivered what they were
    /// given, or until this load is dropped.
    pub fn stop(&mut self) {
        // How a lane ended does not change what it has counted.
        let _ = self.join();
    }

    /// Bytes that a sender's connections were given and have not delivered, by TCP's own books. After [`Load::stop`].
    pub fn undelivered(&self) -> u64 {
        self.stage.undelivered().0
    }

    /// Ends it and throws away what is not delivered, so that nothing of it disturbs what comes next.
    pub fn abort(mut self) {
        self.stop();
        for lane in &self.stage.lanes {
            for socket in lock(&lane.sockets).iter() {
                // Refused only where there is no connection any more.
                let _ = set_socket_linger(socket, Some(Duration::ZERO));
            }
        }
    }

    fn receive(plan: Plan) -> Result<Load, TrafficError> {
        host::allow_all_files();
        let ports = receiver::listen(&plan)?;
        let mut load = Load::new(plan, ports.len())?;
        for (place, (port, processor)) in ports.into_iter().enumerate() {
            load.spawn(place, move |plan, stage, lane| {
                receive::run(plan, stage, lane, port, processor)
            });
        }
        Ok(load)
    }

    fn send(plan: Plan) -> Result<Load, TrafficError> {
        host::allow_files(plan.connections())?;
        let targets = targets(&plan);
        let mut load = Load::new(plan, targets.len())?;
        for (place, target) in targets.into_iter().enumerate() {
            load.spawn(place, move |plan, stage, lane| send::run(plan, stage, lane, target));
        }
        if let Err(error) = await_connections(&load.plan, &load.stage) {
            // A lane's own words say more than "not all connected".
            return Err(load.join().err().unwrap_or(error));
        }
        load.stage.begin.raise();
        Ok(load)
    }

    fn new(plan: Plan, lanes: usize) -> Result<Load, TrafficError> {
        let stage = Stage::new(&plan, lanes)?;
        Ok(Load { plan: Arc::new(plan), stage: Arc::new(stage), lanes: Vec::new() })
    }

    fn spawn(
        &mut self,
        place: usize,
        life: impl FnOnce(&Plan, &Stage, &crate::lane::Lane) -> Result<(), TrafficError>
        + Send
        + 'static,
    ) {
        let (plan, stage) = (self.plan.clone(), self.stage.clone());
        self.lanes.push(spawn(move || match stage.lanes.get(place) {
            Some(lane) => life(&plan, &stage, lane),
            None => Ok(()),
        }));
    }

    /// Ends all lanes; the first error of any.
    fn join(&mut self) -> Result<(), TrafficError> {
        self.plan.stop.store(true, Ordering::Relaxed);
        self.stage.stop.raise();
        let mut result = Ok(());
        for lane in self.lanes.drain(..) {
            let ended = lane.join().unwrap_or(Err(TrafficError::StoppedEarly));
            // That one was stopped says nothing where another one failed.
            if matches!(result, Ok(()) | Err(TrafficError::StoppedEarly)) && ended.is_err() {
                result = ended;
            }
        }
        result
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Nobody is left to be told how a lane ended.
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

    /// A receiver on any port that is free.
    fn receiver() -> (Load, u16) {
        loop {
            let port = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
            match Load::start(plan(Role::Receiver, port, 1)) {
                Ok(load) => return (load, port),
                Err(TrafficError::Bind { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn connections_run_until_an_end_is_dropped_and_every_byte_arrives() {
        let (receiver, port) = receiver();
        let sender = Load::start(plan(Role::Sender, port, 40)).unwrap();
        while receiver.connections() < 40 || receiver.bytes() < 1 << 20 {
            std::thread::yield_now();
        }
        assert_eq!(sender.connections(), 40);
        let sent = sender.end();
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
        // Until the buffers of both ends are full.
        while sender.undelivered() == 0 || before < waiting() {
            before = waiting();
            std::thread::sleep(Duration::from_millis(20));
        }
        sender.stop();
        // What has arrived and is not yet confirmed is in both.
        let (undelivered, sent) = (sender.undelivered(), sender.bytes());
        assert!((sent - waiting()..sent).contains(&undelivered), "{undelivered} of {sent}");
        sender.abort();
        for mut one in unread {
            let error = std::io::copy(&mut one, &mut std::io::sink()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn a_receiver_that_is_not_there_is_named() {
        let plan = Plan { connect_attempts: 1, ..plan(Role::Sender, 9, 2) };
        let error = Load::start(plan).unwrap_err();
        assert!(matches!(error, TrafficError::Unreachable { .. }), "{error}");
    }
}
