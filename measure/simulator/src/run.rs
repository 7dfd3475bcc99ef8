//! Simulation of one load under each algorithm, step by step.

use crate::algorithm::{Algorithm, Measured, UnitMove, start};
use crate::load::Load;
use crate::machine::{Machine, Served};
use crate::oracle;
use crate::report::{Algorithms, Figures, LoadReport};
use balance::Part;
use std::time::Duration;

/// Virtual time of a step.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// Time for which the move of an entry holds its traffic, behind the fence that keeps frames in
/// order (docs/vmmq.md). The held work counts as lost.
const ENTRY_HOLD: Duration = Duration::from_millis(4);

/// Time for which the move of a guest's queue holds its traffic.
const QUEUE_HOLD: Duration = Duration::from_micros(100);

/// Share of the oracle's work at which an algorithm counts as converged.
const CONVERGED: f64 = 0.95;

/// Time after a rise within which an algorithm has to converge.
const CONVERGENCE_WINDOW: Duration = Duration::from_secs(10);

/// Simulates a load under all algorithms.
pub fn simulate(machine: &Machine, load: &Load, seed: u64) -> LoadReport {
    let best: Vec<OracleService> =
        load.rows.iter().map(|row| OracleService::new(machine, load, row)).collect();
    let run = |algorithm| Run::new(machine, load, &best, algorithm, seed).figures();
    LoadReport {
        name: load.name.clone(),
        description: load.description.clone(),
        seconds: load.duration().as_secs_f64(),
        algorithms: Algorithms {
            millrace: run(Algorithm::Millrace),
            ovs: run(Algorithm::Ovs),
            irqbalance: run(Algorithm::Irqbalance),
            round_robin: run(Algorithm::RoundRobin),
            oracle: run(Algorithm::Oracle),
        },
    }
}

/// Placement by the oracle for a row of demands, and the work that it serves.
struct OracleService {
    placed: Vec<usize>,
    total: f64,
}

impl OracleService {
    fn new(machine: &Machine, load: &Load, row: &[f64]) -> OracleService {
        let placed = oracle::place(machine, &load.units, row);
        let total = machine.serve(&load.units, &placed, row).total();
        OracleService { placed, total }
    }
}

/// One load under one algorithm.
struct Run<'r> {
    machine: &'r Machine,
    load: &'r Load,
    /// The oracle's placement for each row.
    best: &'r [OracleService],
    algorithm: Algorithm,
    seed: u64,
    placed: Vec<usize>,
    moves: usize,
    /// Work served for all units.
    served: f64,
    /// Work that moves held.
    held: f64,
    /// Served work as a share of the oracle's, step by step.
    ratios: Vec<f64>,
    /// Workers in use, summed over steps at rest, and the number of these steps.
    resting: (usize, usize),
}

impl<'r> Run<'r> {
    fn new(
        machine: &'r Machine,
        load: &'r Load,
        best: &'r [OracleService],
        algorithm: Algorithm,
        seed: u64,
    ) -> Run<'r> {
        let placed = start(*machine, &load.units);
        let (ratios, resting) = Default::default();
        Run {
            machine,
            load,
            best,
            algorithm,
            seed,
            placed,
            moves: 0,
            served: 0.0,
            held: 0.0,
            ratios,
            resting,
        }
    }

    /// Returns the epoch of a step. Epochs begin one step before measurements, so the load changes
    /// between two of them.
    fn epoch(&self, step: u32) -> Option<usize> {
        let epoch = (STEP * (step + 1)).as_nanos() / self.load.epoch.as_nanos();
        usize::try_from(epoch).ok().filter(|epoch| *epoch < self.load.timeline.len())
    }

    fn figures(mut self) -> Figures {
        let mut policy = self.algorithm.policy(*self.machine, &self.load.units, self.seed);
        let (mut served, mut row) = (Served::default(), None);
        let mut sums = Sums::new(self.load.units.len(), self.machine.workers);
        for step in 0.. {
            let Some(epoch) = self.epoch(step) else { break };
            let wanted = self.load.timeline[epoch];
            if row != Some(wanted) {
                served = self.serve(wanted);
                row = Some(wanted);
            }
            self.record(&served, wanted, epoch);
            let Some(policy) = &mut policy else { continue };
            sums.add(&served);
            let at = STEP * (step + 1);
            if sums.lasted >= policy.period() {
                let seen = sums.take();
                let shifts =
                    policy.decide(&Measured { at, units: &seen.0, workers: &seen.1 }, &self.placed);
                if !shifts.is_empty() {
                    self.apply(shifts, &served);
                    row = None;
                }
            }
        }
        self.summarise()
    }

    fn serve(&mut self, row: usize) -> Served {
        let wanted = &self.load.rows[row];
        if self.algorithm == Algorithm::Oracle {
            let placed = &self.best[row].placed;
            self.moves += placed.iter().zip(&self.placed).filter(|(new, old)| new != old).count();
            self.placed.clone_from(placed);
        }
        self.machine.serve(&self.load.units, &self.placed, wanted)
    }

    fn record(&mut self, served: &Served, row: usize, epoch: usize) {
        let total = served.total();
        self.served += total * STEP.as_secs_f64();
        let best = self.best[row].total;
        self.ratios.push(if best > 0.0 { total / best } else { 1.0 });
        if self.load.at_rest[epoch] {
            let in_use = served.workers.iter().filter(|busy| **busy > 0.0).count();
            self.resting = (self.resting.0 + in_use, self.resting.1 + 1);
        }
    }

    fn apply(&mut self, shifts: Vec<UnitMove>, served: &Served) {
        self.moves += shifts.len();
        for UnitMove { units, to } in shifts {
            for unit in units {
                let is_entry = matches!(self.load.units[unit].id.part, Part::Entry(_));
                let held = if is_entry { ENTRY_HOLD } else { QUEUE_HOLD };
                self.held += served.useful[unit] * held.as_secs_f64();
                self.placed[unit] = to;
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    fn summarise(&self) -> Figures {
        let steps = self.ratios.len() as f64;
        let wanted: f64 = (0..)
            .map_while(|step| self.epoch(step))
            .map(|epoch| self.best[self.load.timeline[epoch]].total * STEP.as_secs_f64())
            .sum();
        let (in_use, at_rest) = self.resting;
        let is_oracle = self.algorithm == Algorithm::Oracle;
        let mean = |sum: usize| sum as f64 / at_rest as f64;
        // Less than one worker's work needs no more than one worker.
        let idle = if is_oracle { 1.0 } else { mean(in_use) };
        Figures {
            throughput_of_oracle: if wanted > 0.0 {
                (self.served - self.held) / wanted
            } else {
                1.0
            },
            moves_per_minute: (steps > 0.0)
                .then(|| self.moves as f64 / (steps * STEP.as_secs_f64() / 60.0)),
            converge_ms: if is_oracle { Some(0) } else { self.converged() },
            idle_cores: (at_rest > 0).then_some(idle),
        }
    }

    /// Returns the longest time from a rise until the ratio is reached and stays.
    fn converged(&self) -> Option<u64> {
        let (step, epoch) = (STEP.as_nanos(), self.load.epoch.as_nanos());
        let steps = |epochs: usize| usize::try_from(epochs as u128 * epoch / step).unwrap_or(0);
        let mut longest = None;
        for (place, rise) in self.load.rises.iter().enumerate() {
            let from = steps(*rise).saturating_sub(1);
            let next =
                self.load.rises.get(place + 1).map_or(self.ratios.len(), |next| steps(*next) - 1);
            let window =
                usize::try_from(CONVERGENCE_WINDOW.as_nanos() / step).unwrap_or(usize::MAX);
            let to = next.min(from + window).min(self.ratios.len());
            let below = self.ratios[from..to].iter().rposition(|ratio| *ratio < CONVERGED);
            let after = below.map_or(0, |last| last + 1);
            if after >= to - from {
                return None;
            }
            longest = longest.max(u64::try_from(after as u128 * STEP.as_millis()).ok());
        }
        longest
    }
}

/// Sums of busy times since the last call of [`Sums::take`].
pub(crate) struct Sums {
    units: Vec<f64>,
    workers: Vec<f64>,
    /// Time over which the sums were taken.
    pub(crate) lasted: Duration,
}

impl Sums {
    pub(crate) fn new(units: usize, workers: usize) -> Sums {
        Sums { units: vec![0.0; units], workers: vec![0.0; workers], lasted: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, served: &Served) {
        self.units.iter_mut().zip(&served.busy).for_each(|(sum, busy)| *sum += busy);
        self.workers.iter_mut().zip(&served.workers).for_each(|(sum, busy)| *sum += busy);
        self.lasted += STEP;
    }

    /// Returns the shares of units and of workers, and begins new sums.
    pub(crate) fn take(&mut self) -> (Vec<f64>, Vec<f64>) {
        let share = STEP.as_secs_f64() / self.lasted.as_secs_f64();
        let (units, workers) = (self.units.len(), self.workers.len());
        let sums = std::mem::replace(self, Sums::new(units, workers));
        let shares = |sums: Vec<f64>| sums.into_iter().map(|sum| sum * share).collect();
        (shares(sums.units), shares(sums.workers))
    }
}
