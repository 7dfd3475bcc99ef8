//! The bench of real hosts: bulk connections or round trips over a [`Topology`], whose counters the
//! lab reads from outside.

use crate::bulk_flows::{BulkFlows, Endpoints};
use crate::daemon::Daemon;
use crate::experiment::Experiment;
use crate::host::Reading;
use crate::interrupt::Interrupt;
use crate::load::{Load, Way};
use crate::meter::{Meter, Moment};
use crate::placement::Placement;
use crate::plan::{Arm, Bench, MOVES, Measured, ON, Plan, Usage, Values};
use crate::report::Account;
use crate::switch_counters::{SwitchCounters, put_ratio};
use crate::topology::{ROUND_TRIP_PORT, Route, Topology};
use crate::usage::{self, Reading as _, Sides};
use crate::{LabError, peers};
use procfs::process::Process;
use std::time::{Duration, Instant};

/// A running load between the hosts of a topology.
pub(crate) struct Namespaces<'t> {
    topology: &'t mut Topology,
    daemon: &'t mut Daemon,
    work: Work<'t>,
    meter: Meter,
    interrupt: Interrupt,
    begin: Instant,
    /// The route in use.
    route: Route,
    carried: BulkFlows,
}

/// What a bench carries out: a plan of an experiment under a load.
#[derive(Clone, Copy)]
pub(crate) struct Work<'t> {
    pub(crate) experiment: &'static dyn Experiment,
    pub(crate) load: Load,
    pub(crate) plan: &'t Plan,
}

/// The readings at one end of an interval.
struct Snapshot {
    moment: Moment,
    sender: Reading,
    receiver: Reading,
    sides: Sides,
    /// Run time of the switch's threads in nanoseconds, before and after its counters were
    /// requested.
    ran: [Option<u64>; 2],
    passed: Option<SwitchCounters>,
    /// How often a third port was added.
    visits: u64,
    way: Way,
    /// Bytes of each frame that the receiver's link does not count.
    uncounted: u64,
    placement: Option<Placement>,
}

impl<'t> Namespaces<'t> {
    /// Sets the first arm, and starts the load.
    ///
    /// # Errors
    /// A host or the daemon refuses the first arm, or no connection opens.
    pub(crate) fn start(
        topology: &'t mut Topology,
        daemon: &'t mut Daemon,
        work: Work<'t>,
        interrupt: Interrupt,
    ) -> Result<Namespaces<'t>, LabError> {
        let (meter, begin) = (Meter::new(), Instant::now());
        let (route, carried) = (Route::Switch, BulkFlows::default());
        let mut bench =
            Namespaces { topology, daemon, work, meter, interrupt, begin, route, carried };
        // An earlier run may have left another arm in force.
        if let Some(first) = work.plan.arms.first() {
            bench.switch_to(first)?;
        }
        Ok(bench)
    }

    /// Opens connections over the route in use.
    fn connect(&mut self) -> Result<(), LabError> {
        let Some(bulk) = self.work.load.carried() else { return Ok(()) };
        if let Some(first) = self.work.plan.phases.first() {
            self.topology.sender.limit(first.bits_per_s)?;
        }
        self.carried.begin(endpoints(self.topology, self.route), bulk, &self.interrupt)
    }

    /// Ends the connections of the route in use, and waits until all their bytes have arrived.
    fn leave(&mut self) {
        let (_, link) = self.topology.links(self.route);
        let payload = self.topology.payload(link);
        self.carried.end(endpoints(self.topology, self.route), &self.interrupt, payload);
    }

    /// Ends the load, and returns the counts of all hosts. `None` if a host did not answer, or
    /// without bulk connections.
    pub(crate) fn account(&mut self) -> Option<Account> {
        self.leave();
        self.carried.account()
    }

    /// Waits for an interval, and reads processor use meanwhile.
    fn watch(&mut self, interval: Duration) -> Result<(Vec<Usage>, f64), LabError> {
        let (processes, begin) = (self.processes(), self.begin);
        usage::watch(interval, begin, |time| self.pass(time), || Sides::read(processes))
    }

    /// Measures each phase of an interval without its first quarter, in which the load settles.
    /// Losses and moves are counted over the whole phase.
    fn phases(&mut self) -> Result<Measured, LabError> {
        let (mut values, mut usage) = (Values::new(), Vec::new());
        let (mut begin, mut moves) = (self.snapshot()?, self.daemon.moves()?);
        for phase in &self.work.plan.phases {
            let length = Duration::from_secs_f64(phase.seconds);
            self.topology.sender.limit(phase.bits_per_s)?;
            self.pass(length / 4)?;
            let settled = self.snapshot()?;
            usage.extend(self.watch(length - length / 4)?.0);
            let end = self.snapshot()?;
            let (mut whole, moved) = (end.since(&begin), self.daemon.moves()?);
            whole.insert(MOVES.into(), (moved - moves) as f64);
            values.extend(phase.part(end.since(&settled), whole));
            (begin, moves) = (end, moved);
        }
        Ok(Measured { values, usage })
    }

    /// Returns the process ids of sender, switch and receiver.
    fn processes(&self) -> [u32; 3] {
        let topology = &*self.topology;
        let switch = topology.switch_process(self.route);
        [topology.sender.process(), switch, topology.receiver_process()]
    }

    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let (from_link, to_link) = self.topology.links(self.route);
        let sides = Sides::read(self.processes());
        let switch = self.topology.switch_process(self.route);
        let before = ran(switch);
        let topology = &mut *self.topology;
        let sender = topology.sender.read(from_link)?;
        let ours = (self.route == Route::Switch).then_some(&*self.daemon);
        let passed = ours.map(|daemon| daemon.switch_counters(topology.way)).transpose()?;
        Ok(Snapshot {
            way: topology.way,
            uncounted: topology.uncounted(to_link),
            placement: topology.placement.clone().ok(),
            visits: self.daemon.visits(),
            sender,
            passed,
            sides,
            ran: [before, ran(switch)],
            // Read last at both ends of the interval, so that bytes and processor time are read
            // together.
            receiver: topology.receiver.read(to_link)?,
            moment: self.meter.read().map_err(LabError::io("reading /proc/stat"))?,
        })
    }
}

impl Snapshot {
    fn since(&self, earlier: &Snapshot) -> Values {
        let bytes = self.receiver.received_bytes.saturating_sub(earlier.receiver.received_bytes);
        let seconds = self.receiver.at_ns.saturating_sub(earlier.receiver.at_ns) as f64 / 1e9;
        let mut values = self.moment.since(&earlier.moment, bytes, seconds);
        values.insert("ports_added".into(), (self.visits - earlier.visits) as f64);
        values.extend(self.sender.sent_since(&earlier.sender));
        let ((frames, bytes), (before, bytes_before)) = (self.wire(), earlier.wire());
        put_ratio(&mut values, "frame_bytes_on_the_wire", bytes - bytes_before, frames - before);
        values.extend(self.sides.since(&earlier.sides));
        if let ([Some(now), _], [_, Some(then)]) = (self.ran, earlier.ran) {
            let used = now.saturating_sub(then) as f64 / 1e9;
            let seconds = self.moment.seconds_since(&earlier.moment);
            values.insert("switch_run_s_per_s".into(), used / seconds);
        }
        let used = self.moment.processors_since(&earlier.moment);
        usage::add_cost_of_all(&mut values, used.iter().sum());
        let placed = self.placement.as_ref().and_then(|placement| placement.receiving(&used));
        usage::add_cost_of_receiving(&mut values, placed);
        if let (Some(now), Some(then)) = (&self.passed, &earlier.passed) {
            values.extend(now.since(then));
        }
        values
    }

    /// Returns the frames and bytes that the wire has carried toward the receiver.
    fn wire(&self) -> (u64, u64) {
        match self.way.guest_sends() {
            false => (self.sender.sent_frames, self.sender.sent_bytes),
            true => {
                let Reading { arrived_frames, arrived_bytes, .. } = self.receiver;
                (arrived_frames, arrived_bytes + arrived_frames * self.uncounted)
            }
        }
    }
}

/// Returns the run time of a process's threads in nanoseconds: ticks of 10 ms are too coarse for
/// workers that are nearly idle. `None` if the kernel does not count it.
fn ran(process: u32) -> Option<u64> {
    let tasks = Process::new(i32::try_from(process).ok()?).ok()?.tasks().ok()?.flatten();
    tasks.map(|task| Some(task.schedstat().ok()?.sum_exec_runtime)).sum()
}

/// Returns sender and receiver on a route.
fn endpoints(topology: &mut Topology, route: Route) -> Endpoints<'_> {
    let ((_, link), to) = (topology.links(route), topology.address(route));
    let Topology { sender, receiver, .. } = topology;
    Endpoints { sender, receiver, to, link }
}

impl Bench for Namespaces<'_> {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        let experiment = self.work.experiment;
        let peer = peers::of(&arm.name);
        let setup = peer.unwrap_or_else(|| experiment.setup(&arm.name));
        let moves = setup.route != self.route || experiment.opens_anew();
        if moves {
            self.leave();
            self.route = setup.route;
        }
        self.topology.enter(setup)?;
        if setup.route == Route::Switch {
            let own = if peer.is_some() { ON } else { &arm.name };
            experiment.switch(self.topology, self.daemon, own)?;
        }
        if !self.carried.sends() {
            self.connect()?;
        }
        if moves { self.pass(self.work.load.gathering()) } else { Ok(()) }
    }

    fn give_up(&mut self, arm: &Arm, error: LabError) -> Result<(), LabError> {
        // Without Millrace there is nothing to compare with.
        if peers::of(&arm.name).is_none() || self.topology.switch.check().is_err() {
            return Err(error);
        }
        // The bytes that a broken path still holds are not counted.
        let _ = self.carried.stop(endpoints(self.topology, self.route));
        self.topology.left_out.push(format!("{} was left out: {error}.", arm.label));
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.topology.switch.check()
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        if !self.work.plan.phases.is_empty() {
            return self.phases();
        }
        let before = self.snapshot()?;
        let (mut trips, mut watched) = (None, None);
        match self.work.load {
            Load::Bulk(_) => watched = Some(self.watch(interval)?),
            Load::RoundTrips(_) => {
                self.pass(Duration::ZERO)?;
                let to = (self.topology.address(self.route), ROUND_TRIP_PORT).into();
                trips = Some(self.topology.sender.round_trips(to, interval)?);
            }
        }
        let mut values = self.snapshot()?.since(&before);
        values.extend(trips.into_iter().flatten());
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
        // No third port is added any more. A host that has ended has no connections to stop.
        let _ = self.daemon.churn_ports(false);
        let _ = self.carried.stop(endpoints(self.topology, self.route));
    }
}
