//! Prediction of a recorded run of the real switch from another recorded run.
//!
//! One recording, the *load*, has the share that each item took of its worker. The simulator starts
//! with the workers and the first placement of the *real* recording, places the items as our
//! balancer decides, and sums the busy time of each worker. The sums are compared with the busy
//! times that the real run's workers counted. This tests that the balancer decides alike on virtual
//! time: the prediction knows only the real run's workers, first placement and movable items.
//!
//! A second prediction uses the placement of the real run. It tests that costs add up, and that
//! they move with their items.

use crate::algorithm::{Measured, Millrace, Policy};
use crate::load::{Unit, units};
use crate::machine::{Machine, Served};
use crate::recording::{RecordedItem, Recording};
use crate::run::{STEP, Sums};
use balance::{Item, Mode, Reach, Settings, Worker};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Allowed difference of predicted and real busy time.
const LIMIT_PERCENT: f64 = 15.0;

/// Busy share below which a worker is idle; differences are relative to at least this.
const IDLE: f64 = 0.01;

/// Largest allowed busy time of items that only one recording has, as a share of all.
const MAX_FOREIGN: f64 = 0.02;

/// Predicted and real busy times of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// Compared time in seconds, which is the length of the shorter recording.
    pub seconds: f64,
    /// Largest difference allowed, in percent.
    pub limit_percent: f64,
    /// Whether all compared figures are within the limit.
    pub is_within: bool,
    /// Workers by number, with the placement of the real run.
    pub as_placed: Vec<Compared>,
    /// Workers by rank, with the placement that our balancer decides. Ranks are by busy time in
    /// each tenth of a second, because it does not matter which of several equal workers is used.
    pub decided: Vec<Compared>,
    /// All workers together, with the placement that our balancer decides.
    pub total: Compared,
    /// Number of moves that the real switch made.
    pub real_moves: usize,
    /// Number of moves that the simulator made.
    pub predicted_moves: usize,
    /// Share of the load's time, in percent, in which one of its workers was saturated, so that its
    /// items may have wanted more.
    pub saturated_percent: f64,
    /// The items that were busy in either recording.
    pub items: Vec<ReplayedItem>,
}

/// Busy time as a mean share of a worker.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Compared {
    /// Busy time that the real switch counted.
    pub real: f64,
    /// Busy time that the simulator predicted.
    pub predicted: f64,
    /// Difference in percent of `real`; `null` if both are idle.
    pub difference_percent: Option<f64>,
}

/// An item in both recordings. Pairs have the load's value first, then the real run's.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayedItem {
    /// The item's name.
    pub name: String,
    /// Mean share of a worker.
    pub busy: [f64; 2],
    /// Frames per second, if they were recorded.
    pub frames_per_s: [Option<f64>; 2],
    /// Busy time per frame, in nanoseconds.
    pub ns_per_frame: [Option<f64>; 2],
}

/// Reasons why two recordings cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording was written by hand, not by a switch.
    #[error("it has no workers, or items without their worker; `millrace vmmq record` writes both")]
    NotOfASwitch,
    /// A recording is idle: predicting nothing is always right.
    #[error(
        "a recording is idle: its items were busy for {percent:.2} % of a worker, wanted is 1 % at least; record under load"
    )]
    Idle {
        /// Busy time of all items together, in percent of a worker.
        percent: f64,
    },
    /// The recordings are of different switches or loads.
    #[error(
        "{percent:.0} % of its busy time are of items that the other recording lacks, such as {name}"
    )]
    Foreign {
        /// Busy time of items that the other recording lacks, in percent.
        percent: f64,
        /// The busiest of these items.
        name: String,
    },
}

impl Compared {
    fn new([real, predicted]: [f64; 2]) -> Compared {
        let is_idle = real < IDLE && predicted < IDLE;
        let difference_percent = (!is_idle).then(|| 100.0 * (predicted - real) / real.max(IDLE));
        Compared { real, predicted, difference_percent }
    }

    /// Whether predicted and real are close enough.
    pub fn is_within(&self) -> bool {
        self.difference_percent.is_none_or(|percent| percent.abs() <= LIMIT_PERCENT)
    }
}

/// Predicts the busy times of `real` from `load`, and compares them.
///
/// # Errors
/// [`ReplayError`] if one of them has items that the other lacks or is idle, or if `real` is no
/// recording of a switch.
pub fn replay(load: &Recording, real: &Recording) -> Result<Replay, ReplayError> {
    let is_placed = |item: &RecordedItem| !item.worker.is_empty();
    if real.workers.is_empty() || !real.items.iter().all(is_placed) {
        return Err(ReplayError::NotOfASwitch);
    }
    idle(load)?;
    idle(real)?;
    foreign(real, load)?;
    foreign(load, real)?;
    let known: HashMap<_, _> = real.items.iter().map(|item| (item.key(), item)).collect();
    let both = load.items.iter().filter_map(|item| Some((item, *known.get(&item.key())?)));
    let mut run = Run::new(load, real, both.unzip());
    let steps = duration(load).min(duration(real)) / STEP.as_millis();
    (0..u64::try_from(steps).unwrap_or(u64::MAX)).for_each(|step| run.step(step));
    Ok(run.summarise())
}

fn idle(recording: &Recording) -> Result<(), ReplayError> {
    let busy: f64 = recording.items.iter().map(|item| figures(recording, item).0).sum();
    if busy < IDLE { Err(ReplayError::Idle { percent: 100.0 * busy }) } else { Ok(()) }
}

fn duration(recording: &Recording) -> u128 {
    u128::from(recording.interval_ms) * recording.intervals() as u128
}

/// Checks that at most [`MAX_FOREIGN`] of the busy time in `of` belongs to items that `other`
/// lacks.
///
/// # Errors
/// [`ReplayError::Foreign`] if more does.
fn foreign(of: &Recording, other: &Recording) -> Result<(), ReplayError> {
    let known: HashSet<_> = other.items.iter().map(RecordedItem::key).collect();
    let busy = |item: &RecordedItem| item.busy.iter().sum::<f64>();
    let all: f64 = of.items.iter().map(busy).sum();
    let lacking = of.items.iter().filter(|item| !known.contains(&item.key()));
    let sum: f64 = lacking.clone().map(busy).sum();
    let busiest = lacking.max_by(|one, next| busy(one).total_cmp(&busy(next)));
    match busiest {
        Some(item) if sum > MAX_FOREIGN * all => {
            Err(ReplayError::Foreign { percent: 100.0 * sum / all, name: item.name() })
        }
        _ => Ok(()),
    }
}

/// The items that both recordings have, on virtual time.
struct Run<'r> {
    load: &'r Recording,
    real: &'r Recording,
    /// The item of each unit, in the load and in the real run.
    items: (Vec<&'r RecordedItem>, Vec<&'r RecordedItem>),
    units: Vec<Unit>,
    machine: Machine,
    policy: Millrace,
    placed: Vec<usize>,
    /// Backlog of each unit in steps of work, for the decided and for the real placement.
    backlog: [Vec<f64>; 2],
    /// Sums since the balancer's last decision.
    unseen: Sums,
    moves: usize,
    steps: u64,
    saturated: u64,
    /// Busy time of each worker since the last ranking: real, as placed, as decided.
    since_ranking: [Vec<f64>; 3],
    /// Sums of real and predicted busy time, by the worker's number.
    as_placed: Vec<[f64; 2]>,
    /// Sums of real and predicted busy time, by rank.
    decided: Vec<[f64; 2]>,
}

impl<'r> Run<'r> {
    fn new(
        load: &'r Recording,
        real: &'r Recording,
        items: (Vec<&'r RecordedItem>, Vec<&'r RecordedItem>),
    ) -> Run<'r> {
        let workers = real.workers.len();
        // A recording does not tell what work costs on a remote NUMA node.
        let home = None;
        let named = units(items.1.iter().copied());
        let units: Vec<Unit> = named.into_iter().map(|unit| Unit { home, ..unit }).collect();
        let item = |(unit, item): (&Unit, &&RecordedItem)| Item {
            id: unit.id,
            worker: 0,
            busy: 0.0,
            mode: if item.dynamic { Mode::Dynamic } else { Mode::Static },
            home,
            reach: item.reach.as_ref().map_or(Reach::ALL, |reach| reach.iter().copied().collect()),
        };
        let count = units.len();
        let decided = units.iter().zip(&items.1).map(item).collect();
        let policy = Millrace::of(real.workers.iter().enumerate().map(worker).collect(), decided);
        Run {
            load,
            real,
            placed: items.1.iter().map(|item| item.worker[0]).collect(),
            items,
            machine: Machine { workers, nodes: 1 },
            policy,
            unseen: Sums::new(units.len(), workers),
            units,
            moves: 0,
            steps: 0,
            saturated: 0,
            backlog: [0, 1].map(|_| vec![0.0; count]),
            since_ranking: [0, 1, 2].map(|_| vec![0.0; workers]),
            as_placed: vec![[0.0; 2]; workers],
            decided: vec![[0.0; 2]; workers],
        }
    }

    fn step(&mut self, step: u64) {
        let at = STEP * u32::try_from(step).unwrap_or(u32::MAX);
        let row = |of: &Recording| (at.as_millis() / u128::from(of.interval_ms)) as usize;
        let (row, real_row) = (row(self.load), row(self.real));
        let busy: Vec<f64> = self.items.0.iter().map(|item| item.busy[row]).collect();
        let had: Vec<usize> = self.items.1.iter().map(|item| item.worker[real_row]).collect();
        let [decided_backlog, placed_backlog] = &mut self.backlog;
        let served = serve(&self.machine, &self.units, &self.placed, &busy, decided_backlog);
        let as_placed = serve(&self.machine, &self.units, &had, &busy, placed_backlog);
        let [real, placed, decided] = &mut self.since_ranking;
        for (worker, sum) in real.iter_mut().enumerate() {
            *sum += self.real.workers[worker].busy[real_row];
            placed[worker] += as_placed.workers[worker];
            decided[worker] += served.workers[worker];
        }
        let is_full =
            |worker: &crate::RecordedWorker| worker.busy[row] >= Settings::default().saturated;
        self.saturated += u64::from(self.load.workers.iter().any(is_full));
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_RANKING) {
            self.rank();
        }
        self.decide(at + STEP, &served);
    }

    fn decide(&mut self, at: std::time::Duration, served: &Served) {
        self.unseen.add(served);
        if self.unseen.lasted < self.policy.period() {
            return;
        }
        let (units, workers) = self.unseen.take();
        let seen = Measured { at, units: &units, workers: &workers };
        for shift in self.policy.decide(&seen, &self.placed) {
            self.moves += 1;
            shift.units.iter().for_each(|unit| self.placed[*unit] = shift.to);
        }
    }

    fn rank(&mut self) {
        let [real, placed, decided] = &mut self.since_ranking;
        add(&mut self.as_placed, real, placed);
        for busy in [&mut *real, decided] {
            busy.sort_by(|one, other| other.total_cmp(one));
        }
        add(&mut self.decided, real, decided);
        self.since_ranking.iter_mut().for_each(|busy| busy.fill(0.0));
    }

    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    fn summarise(mut self) -> Replay {
        if !self.steps.is_multiple_of(STEPS_PER_RANKING) {
            self.rank();
        }
        let steps = self.steps.max(1) as f64;
        let compared = |sums: &[f64; 2]| Compared::new(sums.map(|sum| sum / steps));
        let [as_placed, decided] =
            [&self.as_placed, &self.decided].map(|of| of.iter().map(compared).collect::<Vec<_>>());
        let both = |sums: [f64; 2], next: &[f64; 2]| [sums[0] + next[0], sums[1] + next[1]];
        let total = compared(&self.decided.iter().fold([0.0; 2], both));
        let is_within = as_placed.iter().chain(&decided).chain([&total]).all(Compared::is_within);
        let pairs = self.items.0.iter().zip(&self.items.1);
        let items = pairs.map(|(load, real)| self.item(load, real));
        let items = items.filter(|item| item.busy.iter().any(|busy| *busy > 0.0)).collect();
        Replay {
            seconds: steps * STEP.as_secs_f64(),
            limit_percent: LIMIT_PERCENT,
            is_within,
            as_placed,
            decided,
            total,
            real_moves: usize::try_from(self.real.moves_missed)
                .unwrap_or(usize::MAX)
                .saturating_add(self.real.moves.len()),
            predicted_moves: self.moves,
            saturated_percent: 100.0 * self.saturated as f64 / steps,
            items,
        }
    }

    fn item(&self, load: &RecordedItem, real: &RecordedItem) -> ReplayedItem {
        let figures = [(self.load, load), (self.real, real)].map(|(of, item)| figures(of, item));
        ReplayedItem {
            name: load.name(),
            busy: figures.map(|(busy, _)| busy),
            frames_per_s: figures.map(|(_, frames)| frames),
            ns_per_frame: figures.map(|(busy, frames)| {
                frames.filter(|frames| *frames > 0.0).map(|frames| 1e9 * busy / frames)
            }),
        }
    }
}

/// Steps between two rankings of the workers: a tenth of a second.
const STEPS_PER_RANKING: u64 = 10;

/// Longest backlog of a unit, in steps of work; the ring loses what exceeds it.
const MAX_BACKLOG: f64 = 10.0;

/// Serves measured work. Turns are counted when they end, so the work of a step may exceed it; the
/// rest waits in `backlog`.
fn serve(
    machine: &Machine,
    units: &[Unit],
    placed: &[usize],
    busy: &[f64],
    backlog: &mut [f64],
) -> Served {
    let wanted: Vec<f64> =
        busy.iter().zip(&*backlog).map(|(busy, backlog)| busy + backlog).collect();
    let served = machine.serve(units, placed, &wanted);
    for ((backlog, wanted), busy) in backlog.iter_mut().zip(wanted).zip(&served.busy) {
        *backlog = (wanted - busy).clamp(0.0, MAX_BACKLOG);
    }
    served
}

fn add(sums: &mut [[f64; 2]], real: &[f64], predicted: &[f64]) {
    for (sum, (real, predicted)) in sums.iter_mut().zip(real.iter().zip(predicted)) {
        *sum = [sum[0] + real, sum[1] + predicted];
    }
}

fn worker((number, worker): (usize, &crate::RecordedWorker)) -> Worker {
    let core = worker.core.unwrap_or(usize::MAX - number);
    Worker { core, node: worker.node, busy: 0.0, waited: 0.0, excluded: false }
}

/// Returns the mean busy share of an item, and its frames per second.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(of: &Recording, item: &RecordedItem) -> (f64, Option<f64>) {
    let intervals = item.busy.len().max(1) as f64;
    let seconds = intervals * of.interval_ms as f64 / 1e3;
    let frames = item.frames.iter().fold(0, |sum: u64, frames| sum.saturating_add(*frames));
    let busy = item.busy.iter().sum::<f64>() / intervals;
    (busy, (!item.frames.is_empty()).then_some(frames as f64 / seconds))
}

#[cfg(test)]
mod tests;
