//! The load, in the shape of NTttcp's, made by [`traffic`]: one port and one thread for several
//! connections at each end.
//!
//! Unlike an NTttcp run, a load has no set length: connections keep running while the experiment
//! switches the feature under test and measures intervals.

use super::protocol::Reading;
use crate::load::Bulk;
use crate::plan::Values;
use crate::round_trips as trips;
use std::net::SocketAddr;
use std::time::Duration;
use traffic::arguments::{Invocation, parse};
use traffic::{Family, Load, Plan, Role, TrafficError};

/// Attempts to connect after which a receiver counts as unreachable.
const CONNECT_ATTEMPTS: u32 = 2;

/// A host's end of the load: bulk connections, and round trips of one byte.
#[derive(Debug, Default)]
pub(super) struct Endpoint {
    answering: Vec<Load>,
    receiving: Option<Load>,
    /// Kept after it is stopped, so that its undelivered bytes can still be counted.
    sending: Option<Load>,
    /// Limit in bits per second, for the running load and for the next one.
    limit: Option<u64>,
    stopped: bool,
}

impl Endpoint {
    /// Listens for bulk connections; replaces an earlier listener.
    ///
    /// # Errors
    /// A port is taken, or the plan is invalid.
    pub(super) fn receive(&mut self, at: SocketAddr, bulk: Bulk) -> Result<(), TrafficError> {
        forget(&mut self.receiving);
        self.receiving = Some(Load::start(plan('r', at, bulk)?)?);
        Ok(())
    }

    /// Answers every byte with a byte, on all addresses; replaces earlier answering.
    ///
    /// # Errors
    /// The port is taken.
    pub(super) fn answer(&mut self, port: u16) -> Result<(), TrafficError> {
        self.answering.clear();
        let on = |family: Family| {
            Load::start(latency(Role::Receiver, (family.unspecified(), port).into()))
        };
        self.answering.push(on(Family::V4)?);
        // A machine may have no IPv6.
        self.answering.extend(on(Family::V6));
        Ok(())
    }

    /// Makes round trips for `time`, one at a time, and returns their figures.
    ///
    /// # Errors
    /// The receiver is not reachable, or the connection breaks.
    pub(super) fn round_trips(to: SocketAddr, time: Duration) -> Result<Values, TrafficError> {
        let sender = Load::start(latency(Role::Sender, to))?;
        sender.round_trips(time).map(|times| trips::values(&times))
    }

    /// Opens all bulk connections, and sends on them until stopped; ends an earlier load.
    ///
    /// # Errors
    /// The receiver is not reachable, or the plan is invalid.
    pub(super) fn send(&mut self, to: SocketAddr, bulk: Bulk) -> Result<(), TrafficError> {
        forget(&mut self.sending);
        self.stopped = false;
        let plan = plan('s', to, bulk)?;
        self.sending = Some(Load::start(Plan { bandwidth_bits_per_s: self.limit, ..plan })?);
        Ok(())
    }

    /// Limits the sending rate from now on; `None` removes the limit.
    pub(super) fn limit(&mut self, bits_per_s: Option<u64>) {
        self.limit = bits_per_s;
        if let Some(sending) = &self.sending {
            sending.limit(bits_per_s);
        }
    }

    /// Stops sending; bytes already given to the connections may still be delivered.
    pub(super) fn stop(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.stop();
            self.stopped = true;
        }
    }

    /// Returns the reading with the counts of the connections. Undelivered bytes are counted only
    /// once the sender is stopped, because each connection has to be asked.
    pub(super) fn add_to(&self, reading: Reading) -> Reading {
        let (receiving, sending) = (self.receiving.as_ref(), self.sending.as_ref());
        let open = receiving.map_or(0, Load::connections);
        Reading {
            received_bytes: receiving.map_or(0, Load::bytes),
            given_bytes: sending.map_or(0, Load::bytes),
            undelivered_bytes: sending.filter(|_| self.stopped).map_or(0, Load::undelivered),
            connections: u32::try_from(open).unwrap_or(u32::MAX),
            ..reading
        }
    }
}

/// Aborts a load with the bytes in flight, which would share the wire with the next load.
fn forget(load: &mut Option<Load>) {
    if let Some(load) = load.take() {
        load.abort();
    }
}

/// Returns the plan for the command that the report prints, with fewer attempts to connect.
fn plan(role: char, at: SocketAddr, bulk: Bulk) -> Result<Plan, TrafficError> {
    let line = bulk.command(role, at);
    // The first word is this program's name.
    match parse(line.split(' ').skip(1).map(str::to_owned)) {
        Ok(Invocation::Run(run)) => Ok(Plan { connect_attempts: CONNECT_ATTEMPTS, ..run.plan }),
        Ok(Invocation::Help) => Err(TrafficError::Plan(line)),
        Err(error) => Err(TrafficError::Plan(error.to_string())),
    }
}

/// Returns the plan for round trips of one byte.
fn latency(role: Role, at: SocketAddr) -> Plan {
    let plan = Plan::new(role, at.ip(), at.port(), 0);
    Plan { latency: true, connect_attempts: CONNECT_ATTEMPTS, ..plan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sockets;
    use proptest::prelude::*;
    use std::net::{IpAddr, TcpListener};
    use std::time::{Duration, Instant};
    use traffic::Length;

    #[test]
    fn what_was_given_is_what_is_received_once_all_is_over() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bulk = Bulk::new(3, 1000);
        // One port is free, its neighbours need not be.
        let one = Bulk { connections: 1, ..bulk };
        let mut endpoint = Endpoint::default();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        endpoint.receive(at, one).unwrap();
        endpoint.send(at, one).unwrap();
        let read = |endpoint: &Endpoint| endpoint.add_to(Reading::default());
        let end = Instant::now() + Duration::from_secs(60);
        while read(&endpoint).received_bytes < 1 << 20 {
            assert!(Instant::now() < end, "{:?}: bytes are received", read(&endpoint));
            std::thread::yield_now();
        }
        endpoint.stop();
        // The last acknowledgement may come after the receiver has seen the end.
        while read(&endpoint).connections > 0 || read(&endpoint).undelivered_bytes > 0 {
            assert!(Instant::now() < end, "{:?}: bytes are on their way", read(&endpoint));
            std::thread::yield_now();
        }
        let last = read(&endpoint);
        assert_eq!(last.given_bytes, last.received_bytes);
    }

    #[test]
    fn round_trips_are_answered_on_all_addresses_until_the_end() {
        let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let mut endpoint = Endpoint::default();
        endpoint.answer(port).unwrap();
        let time = Duration::from_millis(20);
        for host in ["127.0.0.1", "127.0.0.2", "::1"] {
            let to = SocketAddr::new(host.parse().unwrap(), port);
            if TcpListener::bind((to.ip(), 0)).is_ok() {
                // A busy machine may let none be made in so short a time.
                let some = || Endpoint::round_trips(to, time).unwrap();
                let trips = std::iter::repeat_with(some).find(|trips| trips.len() > 1).unwrap();
                let [median, p99] = ["latency_median_ns", "latency_p99_ns"].map(|key| trips[key]);
                assert!(p99 >= median && median > 0.0, "{host}: {trips:?}");
            }
        }
        // A second time takes the place of the first.
        endpoint.answer(port).unwrap();
        drop(endpoint);
        assert!(Endpoint::round_trips(([127, 0, 0, 1], port).into(), time).is_err());
    }

    proptest! {
        #[test]
        fn the_command_printed_is_the_load_asked_for(
            connections in 1..=10_000u32, bytes in 1..=4u32 << 20, sends: bool, v6: bool, port in 2..60_000u16,
        ) {
            let sockets = Sockets { receive: Some(65_536), send: None };
            let bulk = Bulk { sockets, segment: Some(1460), ..Bulk::new(connections, bytes) };
            let ip: IpAddr = if v6 { "fd00::2" } else { "10.0.0.2" }.parse().unwrap();
            let plan = plan(if sends { 's' } else { 'r' }, (ip, port).into(), bulk).unwrap();
            prop_assert_eq!(plan.connections(), u64::from(connections));
            prop_assert_eq!(plan.buffer_bytes, bytes as usize);
            prop_assert_eq!(plan.receive_socket_bytes, (!sends).then_some(65_536));
            prop_assert_eq!(plan.send_socket_bytes, None);
            prop_assert_eq!(plan.segment_bytes, sends.then_some(1460));
            prop_assert_eq!((plan.base_port, plan.mappings[0].host), (port, ip));
            prop_assert_eq!(plan.role == Role::Sender, sends);
            prop_assert_eq!((plan.sync, plan.length), (false, Length::UntilStopped));
        }
    }
}
