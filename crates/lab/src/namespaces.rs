//! The bench of real hosts: bulk connections or round trips over a [`Topology`], measured from outside.

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Arm, Bench, Values};
use crate::experiments::{Load, rsc};
use crate::host::{Reading, Request};
use crate::interrupt::Interrupt;
use crate::meter::{Meter, Moment};
use crate::topology::{PEER, Topology, VNIC, WIRE};
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// Connections that are not there by then never will be.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Namespaces<'t> {
    topology: &'t mut Topology,
    /// The switch; `None` on the way through the Linux bridge.
    daemon: Option<&'t mut Daemon>,
    load: Load,
    meter: Meter,
    interrupt: Interrupt,
    begin: Instant,
}

/// Everything that is read at both ends of an interval.
struct Snapshot {
    moment: Moment,
    sender: Reading,
    receiver: Reading,
    /// Of sender, switch, receiver.
    processes: [Option<ProcessSample>; 3],
    egress: Option<crate::daemon::Egress>,
}

impl<'t> Namespaces<'t> {
    /// Starts the load, through the switch or (without one) through the bridge.
    pub(crate) fn start(
        topology: &'t mut Topology,
        daemon: Option<&'t mut Daemon>,
        load: Load,
        interrupt: Interrupt,
    ) -> Result<Namespaces<'t>, LabError> {
        let begin = Instant::now();
        let mut bench =
            Namespaces { topology, daemon, load, meter: Meter::new(), interrupt, begin };
        if let Load::Bulk(connections) = load {
            bench.connect(connections)?;
        }
        Ok(bench)
    }

    /// The sender's link on the way that is measured.
    fn link(&self) -> &'static str {
        if self.daemon.is_some() { WIRE } else { PEER }
    }

    fn connect(&mut self, connections: u32) -> Result<(), LabError> {
        let to = self.topology.address(self.link());
        let line = format!("millrace ntttcp -S -M {connections},*,{} -l 64k -a 6", to.ip());
        let nobody = || LabError::NoTraffic {
            from: "the sender".into(),
            to: to.to_string(),
            waited: CONNECT_PATIENCE,
        };
        let topology = &mut *self.topology;
        topology.sender.order(&Request::Send { to, connections }, &line).map_err(|error| {
            match error {
                LabError::Refused { .. } => nobody(),
                other => other,
            }
        })?;
        let all_there = || {
            let reading = topology.receiver.read(VNIC)?;
            Ok((reading.connections == connections && reading.received_bytes > 0).then_some(()))
        };
        self.interrupt.wait_for(CONNECT_PATIENCE, all_there)?.ok_or_else(nobody)
    }

    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let link = self.link();
        let topology = &mut *self.topology;
        let sender = topology.sender.read(link)?;
        let egress = self.daemon.as_mut().map(|daemon| daemon.egress()).transpose()?;
        let processes = [&topology.sender, &topology.switch, &topology.receiver];
        Ok(Snapshot {
            sender,
            egress,
            processes: processes.map(|host| ProcessSample::read(host.process()).ok()),
            // Last at both ends, so that bytes and machine are read in one go.
            receiver: topology.receiver.read(VNIC)?,
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
        put("retransmits", (self.sender.retransmits - earlier.sender.retransmits) as f64);
        let frames = self.sender.sent_frames.saturating_sub(earlier.sender.sent_frames);
        let wire_bytes = self.sender.sent_bytes.saturating_sub(earlier.sender.sent_bytes);
        put("frame_bytes_on_the_wire", wire_bytes as f64 / frames.max(1) as f64);
        let names = ["sender_cpu_s_per_s", "switch_cpu_s_per_s", "receiver_cpu_s_per_s"];
        for (name, (now, then)) in names.iter().zip(self.processes.iter().zip(&earlier.processes)) {
            if let (Some(now), Some(then)) = (now, then) {
                put(name, now.since(then).percent_of_one_processor / 100.0);
            }
        }
        if let (Some(now), Some(then)) = (&self.egress, &earlier.egress) {
            let delivered = now.frames.saturating_sub(then.frames) as f64;
            let joined = now.coalesced_packets.saturating_sub(then.coalesced_packets) as f64;
            put("egress_frames", delivered);
            put("coalesced_packets", joined);
            put("segments_per_train", (delivered + joined) / delivered.max(1.0));
        }
        values
    }
}

impl Bench for Namespaces<'_> {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        match &mut self.daemon {
            Some(daemon) => daemon.set_rsc(arm.name == rsc::ON),
            None => Ok(()),
        }
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
                let to = self.topology.round_trip_address(self.link());
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
        // A host that is gone has no connections to end.
        let _ = self.topology.sender.order(&Request::StopSending, "(Ctrl-C)");
    }
}
