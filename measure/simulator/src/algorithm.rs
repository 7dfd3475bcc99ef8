//! The compared algorithms, and the interface that the simulator calls them by.

use crate::irqbalance::Irqbalance;
use crate::load::Unit;
use crate::machine::Machine;
use crate::ovs::Ovs;
use balance::{Balancer, Item, Measurement, Mode, Reach, Settings, Worker};
use std::collections::HashMap;
use std::time::Duration;

/// An algorithm that places entries and queues on workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Ours: single entries and queues, every 20 ms.
    Millrace,
    /// Open vSwitch's PMD auto load balance: whole queues, at most once a minute.
    Ovs,
    /// The policy of irqbalance: whole queues, every 10 s, off cores above the mean and one
    /// standard deviation.
    Irqbalance,
    /// No moves: queues are assigned once, in turn.
    RoundRobin,
    /// An oracle, which knows the demand: places everything anew at no cost whenever the demand
    /// changes.
    Oracle,
}

/// Measurements since the last call, in shares of a worker.
pub(crate) struct Measured<'s> {
    pub(crate) at: Duration,
    pub(crate) units: &'s [f64],
    pub(crate) workers: &'s [f64],
}

/// A move of an entry or a queue, or of all entries of a queue that moves as a whole.
pub(crate) struct UnitMove {
    pub(crate) units: Vec<usize>,
    pub(crate) to: usize,
}

/// State of an algorithm in a running simulation.
pub(crate) trait Policy {
    /// Returns the interval between two calls.
    fn period(&self) -> Duration;

    /// Returns the moves to make. `placed` has the worker of each unit.
    fn decide(&mut self, seen: &Measured<'_>, placed: &[usize]) -> Vec<UnitMove>;
}

impl Algorithm {
    /// Makes an algorithm's state; `None` if it moves nothing.
    pub(crate) fn policy(
        self,
        machine: Machine,
        units: &[Unit],
        seed: u64,
    ) -> Option<Box<dyn Policy>> {
        match self {
            Algorithm::Millrace => Some(Box::new(Millrace::new(machine, units, seed))),
            Algorithm::Ovs => Some(Box::new(Ovs::new(machine, units))),
            Algorithm::Irqbalance => Some(Box::new(Irqbalance::new(machine, units))),
            Algorithm::RoundRobin | Algorithm::Oracle => None,
        }
    }
}

/// Returns the units of each queue that moves as a whole.
pub(crate) fn queues(units: &[Unit]) -> Vec<Vec<usize>> {
    let mut places = HashMap::new();
    let mut queues: Vec<Vec<usize>> = Vec::new();
    for (place, unit) in units.iter().enumerate() {
        let queue = *places.entry(unit.queue).or_insert(queues.len());
        if queue == queues.len() {
            queues.push(Vec::new());
        }
        queues[queue].push(place);
    }
    queues
}

/// Returns the first placement of all algorithms: queues are assigned in turn to the workers of
/// their node. A vNIC with more queues than its node has workers uses all workers.
pub(crate) fn start(machine: Machine, units: &[Unit]) -> Vec<usize> {
    let queues = queues(units);
    let mut of_vnic: HashMap<u32, usize> = HashMap::new();
    for queue in &queues {
        *of_vnic.entry(units[queue[0]].id.vnic).or_default() += 1;
    }
    let mut next = vec![0; machine.nodes + 1];
    let mut placed = vec![0; units.len()];
    for queue in &queues {
        let unit = &units[queue[0]];
        let local: Vec<usize> = (0..machine.workers)
            .filter(|worker| unit.home.is_none_or(|home| home == machine.node(*worker)))
            .collect();
        let is_local = of_vnic[&unit.id.vnic] <= local.len();
        let allowed = if is_local { local } else { (0..machine.workers).collect() };
        let turn = &mut next[unit.home.filter(|_| is_local).unwrap_or(machine.nodes)];
        queue.iter().for_each(|unit| placed[*unit] = allowed[*turn % allowed.len()]);
        *turn += 1;
    }
    placed
}

/// Largest error of a load measured over 20 ms, in either direction, as a share of the load.
const NOISE: f64 = 0.2;

/// The daemon's balancer, which sees loads with a random measuring error.
pub(crate) struct Millrace {
    balancer: Balancer,
    workers: Vec<Worker>,
    items: Vec<Item>,
    places: HashMap<balance::ItemId, usize>,
    random: fastrand::Rng,
    /// Largest error of measured loads, as a share of the load.
    noise: f64,
}

impl Millrace {
    fn new(machine: Machine, units: &[Unit], seed: u64) -> Millrace {
        let worker = |core| Worker {
            core,
            node: machine.node(core),
            busy: 0.0,
            waited: 0.0,
            excluded: false,
        };
        let item = |unit: &Unit| Item {
            id: unit.id,
            worker: 0,
            busy: 0.0,
            mode: Mode::Dynamic,
            home: unit.home,
            reach: Reach::ALL,
        };
        let workers = (0..machine.workers).map(worker).collect();
        let random = fastrand::Rng::with_seed(seed);
        Millrace { random, noise: NOISE, ..Millrace::of(workers, units.iter().map(item).collect()) }
    }

    /// Makes the balancer for recorded workers and items, whose loads already have a measuring
    /// error.
    pub(crate) fn of(workers: Vec<Worker>, items: Vec<Item>) -> Millrace {
        Millrace {
            balancer: Balancer::new(Settings::default()),
            workers,
            places: items.iter().enumerate().map(|(place, item)| (item.id, place)).collect(),
            items,
            random: fastrand::Rng::with_seed(0),
            noise: 0.0,
        }
    }
}

impl Policy for Millrace {
    fn period(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn decide(&mut self, seen: &Measured<'_>, placed: &[usize]) -> Vec<UnitMove> {
        for (place, item) in self.items.iter_mut().enumerate() {
            let noise = 1.0 + self.noise * (2.0 * self.random.f64() - 1.0);
            (item.worker, item.busy) = (placed[place], seen.units[place] * noise);
        }
        for (worker, busy) in self.workers.iter_mut().zip(seen.workers) {
            worker.busy = *busy;
        }
        let measurement = Measurement { at: seen.at, workers: &self.workers, items: &self.items };
        let moves = self.balancer.decide(&measurement);
        moves
            .iter()
            .map(|moved| UnitMove { units: vec![self.places[&moved.item]], to: moved.to })
            .collect()
    }
}
