//! The load as NTttcp makes it, by the lanes of [`traffic`]: a port and a thread at each end,
//! several connections each.
//!
//! Unlike an NTttcp run it has no end: an experiment cuts its intervals out of connections that
//! keep running while the feature under test is switched.

use super::protocol::Reading;
use crate::load::Bulk;
use crate::plan::Values;
use crate::round_trips as trips;
use std::net::SocketAddr;
use std::time::Duration;
use traffic::arguments::{Invocation, parse};
use traffic::{Family, Load, Plan, Role, TrafficError};

/// A receiver that does not answer by then cannot be reached.
const CONNECT_ATTEMPTS: u32 = 2;

/// Bulk connections as they are described, and round trips of one byte.
#[derive(Debug, Default)]
pub(super) struct Ends {
    answering: Vec<Load>,
    receiving: Option<Load>,
    /// It stays when it is stopped, until all of it is accounted for.
    sending: Option<Load>,
    /// Most that is sent, in bits a second, now and by whatever is sent next.
    limit: Option<u64>,
    stopped: bool,
}

impl Ends {
    /// Listens, in place of an earlier listening.
    pub(super) fn receive(&mut self, at: SocketAddr, bulk: Bulk) -> Result<(), TrafficError> {
        forget(&mut self.receiving);
        self.receiving = Some(Load::start(plan('r', at, bulk)?)?);
        Ok(())
    }

    /// Answers every byte with a byte on all addresses, in place of an earlier answering.
    pub(super) fn answer(&mut self, port: u16) -> Result<(), TrafficError> {
        self.answering.clear();
        let on = |family: Family| {
            Load::start(latency(Role::Receiver, (family.unspecified(), port).into()))
        };
        self.answering.push(on(Family::V4)?);
        // There are machines without IPv6.
        self.answering.extend(on(Family::V6));
        Ok(())
    }

    /// Makes round trips for a time, one in flight at once.
    pub(super) fn round_trips(to: SocketAddr, time: Duration) -> Result<Values, TrafficError> {
        let sender = Load::start(latency(Role::Sender, to))?;
        sender.round_trips(time).map(|times| trips::values(&times))
    }

    /// Opens all connections and sends on them.
    pub(super) fn send(&mut self, to: SocketAddr, bulk: Bulk) -> Result<(), TrafficError> {
        forget(&mut self.sending);
        self.stopped = false;
        let plan = plan('s', to, bulk)?;
        self.sending = Some(Load::start(Plan { bandwidth_bits_per_s: self.limit, ..plan })?);
        Ok(())
    }

    /// Sends at most so many bits a second from now on.
    pub(super) fn limit(&mut self, bits_per_s: Option<u64>) {
        self.limit = bits_per_s;
        if let Some(sending) = &self.sending {
            sending.limit(bits_per_s);
        }
    }

    /// Ends what is sent, with all that was given to the connections on its way.
    pub(super) fn stop(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.stop();
            self.stopped = true;
        }
    }

    /// Adds what the connections counted. Undelivered bytes only of a sender that is stopped: it
    /// takes a question to each of its connections.
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

/// Ends an earlier load with all that is still on its way: it would share the wire with the next
/// one.
fn forget(load: &mut Option<Load>) {
    if let Some(load) = load.take() {
        load.abort();
    }
}

/// What the command in the report says. Only who cannot be reached is known sooner.
fn plan(role: char, at: SocketAddr, bulk: Bulk) -> Result<Plan, TrafficError> {
    let line = bulk.command(role, at);
    // The first word is this program's name.
    match parse(line.split(' ').skip(1).map(str::to_owned)) {
        Ok(Invocation::Run(run)) => Ok(Plan { connect_attempts: CONNECT_ATTEMPTS, ..run.plan }),
        Ok(Invocation::Help) => Err(TrafficError::Plan(line)),
        Err(error) => Err(TrafficError::Plan(error.to_string())),
    }
}

/// One byte to and fro.
fn latency(role: Role, at: SocketAddr) -> Plan {
    let plan = Plan::new(role, at.ip(), at.port(), 0);
    Plan { latency: true, connect_attempts: CONNECT_ATTEMPTS, ..plan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, TcpListener};
    use std::time::{Duration, Instant};
    use traffic::Length;

    #[test]
    fn what_was_given_is_what_is_received_once_all_is_over() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bulk = Bulk { connections: 3, buffer_bytes: 1000 };
        // One port is free, its neighbours need not be.
        let one = Bulk { connections: 1, ..bulk };
        let mut ends = Ends::default();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        ends.receive(at, one).unwrap();
        ends.send(at, one).unwrap();
        let read = |ends: &Ends| ends.add_to(Reading::default());
        let end = Instant::now() + Duration::from_secs(60);
        while read(&ends).received_bytes < 1 << 20 {
            assert!(Instant::now() < end, "{:?}: bytes are received", read(&ends));
            std::thread::yield_now();
        }
        ends.stop();
        // The last acknowledgement may come after the receiver has seen the end.
        while read(&ends).connections > 0 || read(&ends).undelivered_bytes > 0 {
            assert!(Instant::now() < end, "{:?}: bytes are on their way", read(&ends));
            std::thread::yield_now();
        }
        let last = read(&ends);
        assert_eq!(last.given_bytes, last.received_bytes);
    }

    #[test]
    fn round_trips_are_answered_on_all_addresses_until_the_end() {
        let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let mut ends = Ends::default();
        ends.answer(port).unwrap();
        let time = Duration::from_millis(20);
        for host in ["127.0.0.1", "127.0.0.2", "::1"] {
            let to = SocketAddr::new(host.parse().unwrap(), port);
            if TcpListener::bind((to.ip(), 0)).is_ok() {
                // A busy machine may let none be made in so short a time.
                let some = || Ends::round_trips(to, time).unwrap();
                let trips = std::iter::repeat_with(some).find(|trips| trips.len() > 1).unwrap();
                let [median, p99] = ["latency_median_ns", "latency_p99_ns"].map(|key| trips[key]);
                assert!(p99 >= median && median > 0.0, "{host}: {trips:?}");
            }
        }
        // A second time takes the place of the first.
        ends.answer(port).unwrap();
        drop(ends);
        assert!(Ends::round_trips(([127, 0, 0, 1], port).into(), time).is_err());
    }

    proptest! {
        #[test]
        fn the_command_printed_is_the_load_asked_for(
            connections in 1..=10_000u32, bytes in 1..=4u32 << 20, sends: bool, v6: bool, port in 2..60_000u16,
        ) {
            let bulk = Bulk { connections, buffer_bytes: bytes };
            let ip: IpAddr = if v6 { "fd00::2" } else { "10.0.0.2" }.parse().unwrap();
            let plan = plan(if sends { 's' } else { 'r' }, (ip, port).into(), bulk).unwrap();
            prop_assert_eq!(plan.connections(), u64::from(connections));
            prop_assert_eq!(plan.buffer_bytes, bytes as usize);
            prop_assert_eq!((plan.base_port, plan.mappings[0].host), (port, ip));
            prop_assert_eq!(plan.role == Role::Sender, sends);
            prop_assert_eq!((plan.sync, plan.length), (false, Length::UntilStopped));
        }
    }
}
