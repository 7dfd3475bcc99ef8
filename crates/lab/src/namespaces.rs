//! The bench of real hosts: bulk connections or round trips over a [`Topology`], measured from outside.

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Arm, Bench, Measured, Usage, Values};
use crate::experiments::{Bulk, Feature, Load};
use crate::host::{Host, Reading};
use crate::interrupt::Interrupt;
use crate::meter::{Meter, Moment};
use crate::pair::Pair;
use crate::passed::{Passed, put_ratio};
use crate::placement::Placement;
use crate::report::Account;
use crate::topology::{ETHERNET, PEER, Topology, Way};
use crate::usage::{self, Reading as _, Sides};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Namespaces<'t> {
    topology: &'t mut Topology,
    /// The switch; `None` on the way through the Linux bridge.
    daemon: Option<&'t mut Daemon>,
    feature: &'static Feature,
    load: Load,
    meter: Meter,
    interrupt: Interrupt,
    begin: Instant,
    /// The receiver before the load.
    before: Reading,
    sending: bool,
}

/// Everything that is read at both ends of an interval.
struct Snapshot {
    moment: Moment,
    sender: Reading,
    receiver: Reading,
    sides: Sides,
    passed: Option<Passed>,
    /// Ports that came beside those of the load.
    visits: u64,
    way: Way,
    placement: Option<Placement>,
}

impl<'t> Namespaces<'t> {
    /// Starts the load, through the switch or (without one) through the bridge.
    pub(crate) fn start(
        topology: &'t mut Topology,
        daemon: Option<&'t mut Daemon>,
        feature: &'static Feature,
        load: Load,
        interrupt: Interrupt,
    ) -> Result<Namespaces<'t>, LabError> {
        let begin = Instant::now();
        let (meter, before) = (Meter::new(), Reading::default());
        let sending = false;
        let mut bench = Namespaces {
            topology,
            daemon,
            feature,
            load,
            meter,
            interrupt,
            begin,
            before,
            sending,
        };
        // Connections begin with the first arm, whatever an earlier run left in force.
        if let Some(first) = (feature.arms)(bench.topology.mtu).first() {
            bench.switch(&first.name)?;
        }
        if let Load::Bulk(bulk) = load {
            bench.connect(bulk)?;
        }
        Ok(bench)
    }

    /// The links of sender and receiver on the way that is measured.
    fn links(&self) -> (&'static str, &'static str) {
        if self.daemon.is_some() { self.topology.way.links() } else { (PEER, PEER) }
    }

    fn switch(&mut self, arm: &str) -> Result<(), LabError> {
        match &mut self.daemon {
            Some(daemon) => (self.feature.switch)(self.topology, daemon, arm),
            None => Ok(()),
        }
    }

    /// Sender and receiver on the way that is measured.
    fn pair(&mut self) -> Pair<'_> {
        let (from_link, link) = self.links();
        let to = self.topology.address(from_link);
        let Topology { sender, receiver, .. } = &mut *self.topology;
        Pair { sender, receiver, to, link }
    }

    fn connect(&mut self, bulk: Bulk) -> Result<(), LabError> {
        self.sending = true;
        let interrupt = self.interrupt.clone();
        self.before = self.pair().connect(bulk, &interrupt)?;
        Ok(())
    }

    fn stop_sending(&mut self) -> Result<(), LabError> {
        if std::mem::take(&mut self.sending) { self.pair().stop() } else { Ok(()) }
    }

    /// Ends the load, waits until all of it has arrived, and asks everyone what they counted. `None` where nobody answers,
    /// or where there are no bulk connections.
    pub(crate) fn account(&mut self) -> Option<Account> {
        let Load::Bulk(_) = self.load else { return None };
        self.stop_sending().ok()?;
        let interrupt = self.interrupt.clone();
        let (sent, after) = self.pair().drain(&interrupt)?;
        let frames = after.arrived_frames.saturating_sub(self.before.arrived_frames);
        let bytes = after.arrived_bytes.saturating_sub(self.before.arrived_bytes);
        Some(Account {
            undelivered_connections: after.connections,
            undelivered_bytes: sent.undelivered_bytes,
            sent_bytes: sent.given_bytes,
            received_bytes: after.received_bytes,
            interface_payload_bytes: self.topology.payload(self.links().1, frames, bytes),
        })
    }

    /// Lets an interval pass and looks who uses the processor.
    fn watch(&mut self, interval: Duration) -> Result<(Vec<Usage>, f64), LabError> {
        let (processes, begin) = (self.processes(), self.begin);
        usage::watch(interval, begin, |time| self.pass(time), || Sides::read(processes))
    }

    /// Of sender, switch, receiver.
    fn processes(&self) -> [u32; 3] {
        [&self.topology.sender, &self.topology.switch, &self.topology.receiver].map(Host::process)
    }

    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let (from_link, to_link) = self.links();
        let sides = Sides::read(self.processes());
        let topology = &mut *self.topology;
        let sender = topology.sender.read(from_link)?;
        let daemon = self.daemon.as_deref();
        let passed = daemon.map(|daemon| daemon.passed(topology.way)).transpose()?;
        Ok(Snapshot {
            way: topology.way,
            placement: topology.placement.clone().ok(),
            visits: daemon.map_or(0, Daemon::visits),
            sender,
            passed,
            sides,
            // Last at both ends, so that bytes and machine are read in one go.
            receiver: topology.receiver.read(to_link)?,
            moment: self.meter.read().map_err(LabError::io("reading /proc/stat"))?,
        })
    }
}

impl Snapshot {
    fn since(&self, earlier: &Snapshot) -> Values {
        let bytes = self.receiver.received_bytes.saturating_sub(earlier.receiver.received_bytes);
        let seconds = self.receiver.at_ns.saturating_sub(earlier.receiver.at_ns) as f64 / 1e9;
        let mut values = self.moment.since(&earlier.moment, bytes);
        let mut put = |key: &str, value: f64| values.insert(key.to_owned(), value);
        put("seconds", seconds);
        put("received_bytes", bytes as f64);
        put("throughput_bps", bytes as f64 * 8.0 / seconds.max(1e-9));
        put("ports_added", (self.visits - earlier.visits) as f64);
        values.extend(self.sender.sent_since(&earlier.sender));
        let ((frames, bytes), (before, bytes_before)) = (self.wire(), earlier.wire());
        put_ratio(&mut values, "frame_bytes_on_the_wire", bytes - bytes_before, frames - before);
        values.extend(self.sides.since(&earlier.sides));
        let used = self.moment.processors_since(&earlier.moment);
        let placed = self.placement.as_ref().map(|placement| placement.receiving(&used));
        usage::add_cost_of_receiving(&mut values, placed);
        if let (Some(now), Some(then)) = (&self.passed, &earlier.passed) {
            values.extend(now.since(then));
        }
        values
    }

    /// Frames and bytes that the wire has carried toward the receiver.
    fn wire(&self) -> (u64, u64) {
        match self.way {
            Way::ToVnic => (self.sender.sent_frames, self.sender.sent_bytes),
            // The wire is a veth, which counts what arrives without the Ethernet header.
            Way::FromVnic => {
                let Reading { arrived_frames, arrived_bytes, .. } = self.receiver;
                (arrived_frames, arrived_bytes + arrived_frames * ETHERNET)
            }
        }
    }
}

impl Bench for Namespaces<'_> {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        self.switch(&arm.name)
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.topology.switch.check()
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let before = self.snapshot()?;
        let (mut trips, mut watched) = (None, None);
        match self.load {
            Load::Bulk(_) => watched = Some(self.watch(interval)?),
            Load::RoundTrips => {
                self.pass(Duration::ZERO)?;
                let to = self.topology.round_trip_address(self.links().0);
                trips = Some(self.topology.sender.round_trips(to, interval)?);
            }
        }
        let mut values = self.snapshot()?.since(&before);
        if let Some(trips) = trips {
            values.extend(trips.values());
        }
        let (usage, cost) = watched.unwrap_or_default();
        values.insert(usage::COST.into(), cost);
        Ok(Measured { values, usage })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Drop for Namespaces<'_> {
    fn drop(&mut self) {
        // A third port comes no more; a host that is gone has no connections to end.
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.come_and_go(false);
        }
        let _ = self.stop_sending();
    }
}
