//! The bench: the switch, two guests, and the readings of an interval.

use super::guest::{End, Guest, Shared};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::meter::{Meter, Moment};
use crate::plan::{Arm, Bench, Measured, OFF, Values};
use crate::port::status;
use crate::report::{BenchFacts, Check};
use crate::switch_counters::put_ratio;
use crate::usage::{self, Reading as _, Sides};
use crate::{LabError, peers, round_trips};
use datapath::{
    PortCounters, PortId, PortRole, PortSettings, RscPolicy, RscStatus, Switch, SwitchOptions,
};
use hdrhistogram::Histogram;
use ports::{Offloads, memory};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// MTU of both ports.
const MTU: u16 = 1500;
/// Largest IP packet that the receiving guest accepts.
const LARGEST: u16 = u16::MAX;
/// Frames that a port holds in each direction: more than all TCP windows together.
const DEPTH: usize = 4096;
/// Timeout of the first byte.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest round trip, in nanoseconds.
const LONGEST_NS: u64 = 10_000_000_000;

/// A running switch with its two guests.
pub(crate) struct InProcess {
    switch: Switch,
    port: PortId,
    settings: PortSettings,
    sender: Running,
    receiver: Running,
    load: Load,
    meter: Meter,
    interrupt: Interrupt,
    begin: Instant,
}

/// Returns the description of this bench, for the report.
pub(crate) fn facts() -> BenchFacts {
    BenchFacts {
        in_process: true,
        description: "IN PROCESS: sender and receiver are user-space TCP stacks (smoltcp) on memory ports of the \
                      real switch, all in one process. The figures show what coalescing saves such a guest; they \
                      say nothing about a kernel or a virtual machine."
            .to_owned(),
        mtu: Some(MTU),
        vnic: Some("memory".into()),
        ..BenchFacts::default()
    }
}

/// A guest's thread; dropping it ends it.
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Snapshot {
    moment: Moment,
    bytes: u64,
    counters: PortCounters,
    sides: Sides,
}

impl InProcess {
    /// Starts the switch and the guests, and waits for the first byte.
    ///
    /// # Errors
    /// A port or a thread cannot be made, or no byte arrives in time.
    pub(crate) fn start(load: Load, interrupt: Interrupt) -> Result<InProcess, LabError> {
        let refused = |error: datapath::SwitchError| LabError::Switch(error.to_string());
        let opened = LabError::io("opening a port in memory");
        let (uplink, sender) = memory::open(DEPTH, Offloads::empty(), MTU).map_err(opened)?;
        let takes = Offloads::CSUM | Offloads::TSO4 | Offloads::TSO6;
        let opened = LabError::io("opening a port in memory");
        let (vnic, receiver) = memory::open(DEPTH, takes, MTU).map_err(opened)?;
        let mut switch = Switch::start(SwitchOptions::default()).map_err(refused)?;
        let mut settings = PortSettings { mtu: MTU, ..PortSettings::default() };
        settings.rsc.policy = RscPolicy::Ndis;
        let outside = PortSettings { role: PortRole::Uplink, mtu: MTU, ..PortSettings::default() };
        switch.add_port("uplink", uplink, outside).map_err(refused)?;
        let port = switch.add_port("vnic", vnic, settings.clone()).map_err(refused)?;
        let bench = InProcess {
            switch,
            port,
            settings,
            receiver: Running::start(End::Receiver, load, receiver, LARGEST)?,
            sender: Running::start(End::Sender, load, sender, MTU)?,
            load,
            meter: Meter::new(),
            interrupt,
            begin: Instant::now(),
        };
        bench.wait_for_traffic()?;
        Ok(bench)
    }

    fn wait_for_traffic(&self) -> Result<(), LabError> {
        let flows = || Ok((self.receiver.shared.bytes.load(Relaxed) > 0).then_some(()));
        self.interrupt.wait_for(FIRST_BYTE_TIMEOUT, flows)?.ok_or_else(|| LabError::NoTraffic {
            from: "the sending guest".into(),
            to: "the receiving guest".into(),
            waited: FIRST_BYTE_TIMEOUT,
        })
    }

    /// Activity 1 of the guide: returns what the receiver's port reports about coalescing.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let ports = self.switch.ports();
        let Some(port) = ports.iter().find(|port| port.id == self.port) else { return Vec::new() };
        let (ipv4, ipv6) = port.rsc();
        let check = |(family, RscStatus { enabled, operational, failure_reason })| {
            status("vnic", family, [enabled, operational], failure_reason.name())
        };
        [("IPv4", ipv4), ("IPv6", ipv6)].map(check).into()
    }

    /// Reads the processor time of each side; the switch's is that of the process without its
    /// guests.
    fn sides(&self) -> Sides {
        let used_s = |guest: &Running| guest.shared.cpu_ns.load(Relaxed) as f64 / 1e9;
        let (sender, receiver) = (used_s(&self.sender), used_s(&self.receiver));
        let switch = usage::used_s(std::process::id()).map(|all| all - sender - receiver);
        Sides::new([Some(sender), switch, Some(receiver)])
    }

    fn snapshot(&self) -> Result<Snapshot, LabError> {
        Ok(Snapshot {
            counters: self.switch.counters(self.port).unwrap_or_default(),
            sides: self.sides(),
            bytes: self.receiver.shared.bytes.load(Relaxed),
            moment: self.meter.read().map_err(LabError::io("reading /proc/stat"))?,
        })
    }

    fn round_trips(&self, values: &mut Values) {
        let trips = self.sender.shared.round_trips.lock();
        let Some(trips) = trips.unwrap_or_else(PoisonError::into_inner).take() else { return };
        values.extend(round_trips::values(&trips));
    }
}

impl Snapshot {
    fn since(&self, earlier: &Snapshot) -> Values {
        let bytes = self.bytes.saturating_sub(earlier.bytes);
        let seconds = self.moment.seconds_since(&earlier.moment).max(1e-9);
        let mut values = self.moment.since(&earlier.moment, bytes, seconds);
        let frames = self.counters.egress_frames.saturating_sub(earlier.counters.egress_frames);
        let joined =
            self.counters.coalesced_packets.saturating_sub(earlier.counters.coalesced_packets);
        values.insert("egress_frames".into(), frames as f64);
        values.insert("coalesced_packets".into(), joined as f64);
        put_ratio(&mut values, "segments_per_train", frames + joined, frames);
        values.extend(self.sides.since(&earlier.sides));
        values
    }
}

impl Bench for InProcess {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        if peers::of(&arm.name).is_some() {
            return Err(LabError::NoPeer);
        }
        let policy = if arm.name == OFF { RscPolicy::Off } else { RscPolicy::Ndis };
        if policy == self.settings.rsc.policy {
            return Ok(());
        }
        self.settings.rsc.policy = policy;
        self.switch
            .change_port(self.port, self.settings.clone())
            .map_err(|error| LabError::Switch(error.to_string()))
    }

    /// Ignores the failure of another switch's arm: no other switch runs in this process.
    fn give_up(&mut self, arm: &Arm, error: LabError) -> Result<(), LabError> {
        if peers::of(&arm.name).is_some() { Ok(()) } else { Err(error) }
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        if let Load::RoundTrips(_) = self.load {
            let trips = Histogram::new_with_bounds(1, LONGEST_NS, 3).ok();
            *self.sender.shared.round_trips.lock().unwrap_or_else(PoisonError::into_inner) = trips;
        }
        let before = self.snapshot()?;
        let (usage, cost) =
            usage::watch(interval, self.begin, |time| self.interrupt.pass(time), || self.sides())?;
        let mut values = self.snapshot()?.since(&before);
        self.round_trips(&mut values);
        let bad = [&self.sender, &self.receiver]
            .map(|guest| guest.shared.bad_checksums.load(Relaxed))
            .iter()
            .sum::<u64>();
        values.insert("bad_checksums".into(), bad as f64);
        values.insert(usage::COST.into(), cost);
        Ok(Measured { values, usage })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Running {
    fn start(end: End, load: Load, peer: memory::Peer, mtu: u16) -> Result<Running, LabError> {
        let shared = Arc::new(Shared::default());
        let guest = Guest::new(end, load, peer, usize::from(mtu), shared.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{end:?}").to_lowercase())
            .spawn(move || guest.run())
            .map_err(LabError::io("starting a guest"))?;
        Ok(Running { shared, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
