//! The bench of real hosts: bulk connections or round trips over a [`Topology`], measured from outside.

use crate::LabError;
use crate::daemon::{Daemon, Passed};
use crate::experiment::{Arm, Bench, Values};
use crate::experiments::{Bulk, Feature, Load};
use crate::host::{Reading, Request, connecting};
use crate::interrupt::Interrupt;
use crate::meter::{Meter, Moment};
use crate::report::Account;
use crate::topology::{ETHERNET, PEER, PORT, Topology, VNIC, Way};
use control::body::CountersBody;
use ports::link::LinkOffload;
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// Connections that are not there by then never will be.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Longest that the end of a load is waited for. A connection that lost frames again and again tries only after many
/// seconds more, and is told of.
const DRAIN_PATIENCE: Duration = Duration::from_secs(15);

/// Begin of the keys that count trains by their segments.
pub(crate) const TRAINS_OF: &str = "trains_of_";

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
    /// Of sender, switch, receiver.
    processes: [Option<ProcessSample>; 3],
    passed: Option<Passed>,
    /// Ports that came beside those of the load.
    visits: u64,
    guest_checksums: bool,
    way: Way,
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

    fn connect(&mut self, bulk: Bulk) -> Result<(), LabError> {
        let (from_link, to_link) = self.links();
        let to = self.topology.address(from_link);
        self.before = self.topology.receiver.read(to_link)?;
        let listen = Request::Listen { port: PORT, bulk };
        self.topology.receiver.order(&listen, &bulk.command('r', to.ip()))?;
        let line = bulk.command('s', to.ip());
        let patience = CONNECT_PATIENCE + connecting(bulk.connections);
        self.sending = true;
        let nobody = || LabError::NoTraffic {
            from: "the sender".into(),
            to: to.to_string(),
            waited: patience,
        };
        let topology = &mut *self.topology;
        topology.sender.order(&Request::Send { to, bulk }, &line).map_err(|error| match error {
            LabError::Refused { .. } => nobody(),
            other => other,
        })?;
        let all_there = || {
            let reading = topology.receiver.read(to_link)?;
            Ok((reading.connections == bulk.connections && reading.received_bytes > 0)
                .then_some(()))
        };
        self.interrupt.wait_for(patience, all_there)?.ok_or_else(nobody)
    }

    fn stop_sending(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.sending) {
            return Ok(());
        }
        self.topology.sender.order(&Request::StopSending, "(Ctrl-C)")
    }

    /// Ends the load, waits until all of it has arrived, and asks everyone what they counted. `None` where nobody answers,
    /// or where there are no bulk connections.
    pub(crate) fn account(&mut self) -> Option<Account> {
        let Load::Bulk(_) = self.load else { return None };
        let to_link = self.links().1;
        self.stop_sending().ok()?;
        let topology = &mut *self.topology;
        let arrived = || {
            let reading = topology.receiver.read(to_link)?;
            Ok((reading.connections == 0).then_some(reading))
        };
        let after = match self.interrupt.wait_for(DRAIN_PATIENCE, arrived).ok()? {
            Some(reading) => reading,
            None => self.topology.receiver.read(to_link).ok()?,
        };
        let topology = &mut *self.topology;
        let sent = topology.sender.read(to_link).ok()?;
        let frames = after.arrived_frames.saturating_sub(self.before.arrived_frames);
        let bytes = after.arrived_bytes.saturating_sub(self.before.arrived_bytes);
        Some(Account {
            undelivered_connections: after.connections,
            sent_bytes: sent.given_bytes,
            received_bytes: after.received_bytes,
            interface_payload_bytes: topology.payload(to_link, frames, bytes),
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let (from_link, to_link) = self.links();
        let topology = &mut *self.topology;
        let sender = topology.sender.read(from_link)?;
        let daemon = self.daemon.as_deref();
        let passed = daemon.map(|daemon| daemon.passed(topology.way)).transpose()?;
        let processes = [&topology.sender, &topology.switch, &topology.receiver]
            .map(|host| ProcessSample::read(host.process()).ok());
        Ok(Snapshot {
            way: topology.way,
            guest_checksums: topology.guest().offload(VNIC, LinkOffload::TxCsum)?,
            visits: daemon.map_or(0, Daemon::visits),
            sender,
            passed,
            processes,
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
        put("guest_checksum_offload", f64::from(u8::from(self.guest_checksums)));
        put("retransmits", (self.sender.retransmits - earlier.sender.retransmits) as f64);
        let (frames, wire_bytes) = self.wire();
        let (frames_before, bytes_before) = earlier.wire();
        put("frame_bytes_on_the_wire", ratio(wire_bytes - bytes_before, frames - frames_before));
        let names = ["sender_cpu_s_per_s", "switch_cpu_s_per_s", "receiver_cpu_s_per_s"];
        for (name, (now, then)) in names.iter().zip(self.processes.iter().zip(&earlier.processes)) {
            if let (Some(now), Some(then)) = (now, then) {
                put(name, now.since(then).percent_of_one_processor / 100.0);
            }
        }
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

impl Passed {
    /// What the switch took from the sender and gave to the receiver.
    fn since(&self, earlier: &Passed) -> Values {
        let (taken, taken_before) = (&self.ingress, &earlier.ingress);
        let (given, given_before) = (&self.egress, &earlier.egress);
        let delivered = given.egress_frames - given_before.egress_frames;
        let joined = given.rsc.coalesced_packets - given_before.rsc.coalesced_packets;
        let bytes = taken.ingress_bytes - taken_before.ingress_bytes;
        let frames = taken.ingress_frames - taken_before.ingress_frames;
        let figures = [
            ("ingress_frame_bytes", ratio(bytes, frames)),
            ("egress_frames", delivered as f64),
            ("coalesced_packets", joined as f64),
            ("segments_per_train", ratio(delivered + joined, delivered)),
            ("segmented_trains", (given.segmented_trains - given_before.segmented_trains) as f64),
            ("segments", (given.segments - given_before.segments) as f64),
            ("finished_checksums", (given.checksums - given_before.checksums) as f64),
            ("lost_frames", (self.lost() - earlier.lost()) as f64),
        ];
        let depths = given.rsc.train_depth.iter().map(|depth| {
            let before = given_before.rsc.train_depth.iter();
            let before = before.filter(|then| then.segments == depth.segments);
            let trains = depth.trains - before.map(|then| then.trains).sum::<u64>();
            (format!("{TRAINS_OF}{}", depth.segments), trains as f64)
        });
        let figures = figures.into_iter().map(|(key, value)| (key.to_owned(), value));
        figures.chain(depths).collect()
    }

    /// Frames of the two ports that got lost, in the switch or before it.
    fn lost(&self) -> u64 {
        let of = |counters: &CountersBody| counters.dropped + counters.device_lost;
        of(&self.ingress) + of(&self.egress)
    }
}

fn ratio(total: u64, count: u64) -> f64 {
    total as f64 / count.max(1) as f64
}

impl Bench for Namespaces<'_> {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        self.switch(&arm.name)
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.topology.switch.check()
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Values, LabError> {
        let before = self.snapshot()?;
        let mut trips = None;
        match self.load {
            Load::Bulk(_) => self.pass(interval)?,
            Load::RoundTrips => {
                self.pass(Duration::ZERO)?;
                let to = self.topology.round_trip_address(self.links().0);
                trips = Some(self.topology.sender.round_trips(to, interval)?);
            }
        }
        let mut values = self.snapshot()?.since(&before);
        if let Some(trips) = trips {
            values.insert("round_trips".into(), trips.count as f64);
            values.insert("latency_median_ns".into(), trips.median_ns);
            values.insert("latency_p99_ns".into(), trips.p99_ns);
        }
        Ok(values)
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
