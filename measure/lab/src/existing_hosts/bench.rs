//! The bench between existing hosts: bulk connections or round trips, measured by the counters of
//! sender, receiver and switch.

use super::connected::ConnectedHosts;
use crate::bulk_flows::BulkFlows;
use crate::host::{Identity, Reading, Request};
use crate::interrupt::Interrupt;
use crate::load::{Bulk, Load};
use crate::meter::{Meter, Moment};
use crate::plan::{Arm, Bench, Measured, ON, Values};
use crate::report::{Account, difference};
use crate::switch_counters::{delivered, put_ratio};
use crate::topology::{ETHERNET, IP_AND_TCP, ROUND_TRIP_PORT};
use crate::usage::{self, MachineUsage};
use crate::{LabError, round_trips};
use api::body::CountersBody;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// Key of the payload for each TCP segment that the sender's host sent.
pub(crate) const SEGMENT_BYTES: &str = "segment_bytes";

/// A load between existing hosts.
pub(crate) struct Hosts<'s> {
    site: &'s mut ConnectedHosts,
    load: Load,
    meter: Meter,
    interrupt: Interrupt,
    begin: Instant,
    carried: BulkFlows,
    /// MTU for which the connections limit their segments.
    segments_for: Option<u16>,
    /// Bytes delivered to the toggled port before the load began.
    given: u64,
}

/// Everything that is read at both ends of an interval.
struct Snapshot {
    moment: Moment,
    sender: Reading,
    receiver: Reading,
    given: CountersBody,
    /// The daemon's process.
    switch: Option<ProcessSample>,
    machine: Option<MachineUsage>,
}

impl<'s> Hosts<'s> {
    /// Starts the load, with the first arm in force.
    pub(super) fn start(
        site: &'s mut ConnectedHosts,
        load: Load,
        interrupt: Interrupt,
    ) -> Result<Hosts<'s>, LabError> {
        // Connections begin with the first arm, whatever an earlier load left in force.
        site.running.switch(ON)?;
        let given = site.running.port.counters()?.egress_bytes;
        let (meter, begin, carried) = (Meter::new(), Instant::now(), BulkFlows::default());
        let segments_for = site.experiment.segments_for(ON);
        let mut bench = Hosts { site, load, meter, interrupt, begin, carried, segments_for, given };
        if let Load::RoundTrips(_) = load {
            let line = format!("(answers bytes on port {ROUND_TRIP_PORT})");
            bench.site.receiver.order(&Request::Answer { port: ROUND_TRIP_PORT }, &line)?;
        }
        bench.connect()?;
        Ok(bench)
    }

    /// Opens the bulk connections, if the load has any.
    fn connect(&mut self) -> Result<(), LabError> {
        let Some(bulk) = self.load.carried() else { return Ok(()) };
        let to = self.site.to;
        let segment = self.segments_for.map(|mtu| segment_of(mtu, to));
        let Hosts { site, carried, interrupt, .. } = self;
        carried.begin(site.endpoints(), Bulk { segment, ..bulk }, interrupt)
    }

    /// Opens the connections anew if an arm's limit their segments otherwise.
    fn limit_segments(&mut self, arm: &str) -> Result<(), LabError> {
        let wanted = self.site.experiment.segments_for(arm);
        if wanted == self.segments_for {
            return Ok(());
        }
        self.carried.end(self.site.endpoints(), &self.interrupt, payload);
        self.segments_for = wanted;
        self.connect()?;
        self.pass(self.load.gathering())
    }

    /// Ends the load, waits until all of it has arrived, and returns what sender, receiver and
    /// switch counted. `None` if a host does not answer, or without bulk connections.
    pub(crate) fn account(&mut self) -> Option<Account> {
        let sent = self.carried.sends();
        self.carried.end(self.site.endpoints(), &self.interrupt, payload);
        if sent {
            // A port without counters proves nothing.
            let now = self.site.running.port.counters().map_or(0, |now| now.egress_bytes);
            self.carried.crossed(now.saturating_sub(self.given));
        }
        self.carried.account()
    }

    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let ConnectedHosts { sender, receiver, running, link, .. } = &mut *self.site;
        Ok(Snapshot {
            given: running.port.counters()?,
            machine: MachineUsage::read(),
            switch: running.process.and_then(|process| ProcessSample::read(process).ok()),
            sender: sender.read(link)?,
            // The receiver is read last, so that its bytes and the machine's figures coincide.
            receiver: receiver.read(link)?,
            moment: self.meter.read().map_err(LabError::io("reading /proc/stat"))?,
        })
    }
}

/// Returns the TCP payload in the frames of the receiver's link. Some links count the Ethernet
/// header of arriving frames and some do not, which is not visible here: of both results, a
/// hundredth apart, this takes the one nearer to the application's count.
fn payload(before: &Reading, after: &Reading) -> u64 {
    let (frames, bytes) = after.arrived_since(before);
    let without = |header: u64| bytes.saturating_sub(frames.saturating_mul(header + IP_AND_TCP));
    let off = |count: &u64| difference(*count, after.received_bytes).abs();
    let counts = [without(0), without(ETHERNET)];
    counts.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(0)
}

/// Returns the largest TCP segment that fits a packet of this MTU to an address, without options.
fn segment_of(mtu: u16, to: IpAddr) -> u16 {
    mtu - if to.is_ipv4() { 40 } else { 60 }
}

impl Snapshot {
    fn since(&self, earlier: &Snapshot, identities: &[Identity; 2]) -> Values {
        let bytes = self.receiver.received_bytes.saturating_sub(earlier.receiver.received_bytes);
        let seconds = seconds(&self.receiver, &earlier.receiver);
        let mut values = self.moment.since(&earlier.moment, bytes, seconds);
        values.extend(delivered(&self.given, &earlier.given));
        let mut processes = Values::new();
        if let (Some(now), Some(then)) = (&self.switch, &earlier.switch) {
            let used = now.since(then).percent_of_one_processor / 100.0;
            processes.insert("switch_cpu_s_per_s".into(), used);
        }
        let own = Identity::own().boot;
        let sides = [
            ("sender_cpu_s_per_s", &self.sender, &earlier.sender),
            ("receiver_cpu_s_per_s", &self.receiver, &earlier.receiver),
        ];
        for ((key, now, then), identity) in sides.into_iter().zip(identities) {
            let used = |count: fn(&Reading) -> u64| {
                count(now).saturating_sub(count(then)) as f64 / 1e9 / self::seconds(now, then)
            };
            // On the switch's machine the process is counted, elsewhere the whole machine with its
            // kernel.
            if identity.boot == own {
                processes.insert(key.into(), used(|reading| reading.own_ns));
            } else {
                values.insert(key.into(), used(|reading| reading.busy_ns));
            }
        }
        values.extend(self.sender.sent_since(&earlier.sender));
        let segments = self.sender.sent_segments.saturating_sub(earlier.sender.sent_segments);
        put_ratio(&mut values, SEGMENT_BYTES, bytes, segments);
        usage::add_machine(&mut processes, self.machine.as_ref(), earlier.machine.as_ref());
        values.extend(processes);
        usage::add_cost_of_receiving(&mut values, None);
        values
    }
}

/// Returns the seconds between two readings of one host, by its own clock.
fn seconds(now: &Reading, then: &Reading) -> f64 {
    (now.at_ns.saturating_sub(then.at_ns) as f64 / 1e9).max(1e-9)
}

impl Bench for Hosts<'_> {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        self.site.running.switch(&arm.name)?;
        self.limit_segments(&arm.name)
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)
    }

    /// Leaves [`Measured::usage`] empty: requests to a host cross the network that is measured, so
    /// none are made within an interval.
    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let before = self.snapshot()?;
        let mut trips = None;
        match self.load {
            Load::Bulk(_) => self.pass(interval)?,
            Load::RoundTrips(_) => {
                self.pass(Duration::ZERO)?;
                let to = SocketAddr::new(self.site.to, ROUND_TRIP_PORT);
                trips = Some(self.site.sender.round_trips(to, interval)?);
            }
        }
        let mut values = self.snapshot()?.since(&before, &self.site.identities);
        self.site.running.check()?;
        // Only figures of round trips are taken from the sender.
        let trips = trips.into_iter().flatten();
        values.extend(trips.filter(|(key, _)| round_trips::is_own(key)));
        Ok(Measured { values, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        // A host that is gone has no connections to end.
        let _ = self.carried.stop(self.site.endpoints());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_found_whether_the_link_counts_ethernet_headers_or_not() {
        let after = |header: u64| Reading {
            received_bytes: 144_800,
            arrived_frames: 100,
            arrived_bytes: 100 * (1448 + IP_AND_TCP + header),
            ..Reading::default()
        };
        for header in [0, ETHERNET] {
            assert_eq!(payload(&Reading::default(), &after(header)), 144_800);
        }
    }

    #[test]
    fn a_segment_and_its_headers_fill_the_mtu() {
        assert_eq!(segment_of(1500, "192.0.2.1".parse().unwrap()), 1460);
        assert_eq!(segment_of(1500, "fd00::1".parse().unwrap()), 1440);
    }

    #[test]
    fn a_host_that_counts_backwards_breaks_nothing() {
        let late = Reading { at_ns: 5, arrived_bytes: u64::MAX, ..Reading::default() };
        assert_eq!(seconds(&Reading::default(), &late), 1e-9);
        assert_eq!(payload(&late, &Reading::default()), 0);
    }
}
