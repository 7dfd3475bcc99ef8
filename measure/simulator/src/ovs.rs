//! Open vSwitch's PMD auto load balance, after its documentation (topics/dpdk/pmd.rst). It checks
//! every 10 s. If a PMD was above 95 % for a minute, and the last rebalance was a minute ago, a dry
//! run assigns all queues anew by the loads of the last minute. The result is carried out if the
//! variance of load of a NUMA node improves by 25 % or more. The assignment is `group`: the largest
//! queue first, to the least loaded PMD of its node.

use crate::algorithm::{Measured, Policy, UnitMove, queues};
use crate::load::Unit;
use crate::machine::Machine;
use std::collections::VecDeque;
use std::time::Duration;

/// Busy share from which a PMD counts as overloaded.
const OVERLOADED: f64 = 0.95;
/// Number of checks in a minute.
const CHECKS_A_MINUTE: usize = 6;
/// Least improvement of the variance for which a new assignment is carried out.
const IMPROVEMENT: f64 = 0.25;

/// State of Open vSwitch's balancer.
pub(crate) struct Ovs {
    machine: Machine,
    queues: Vec<Vec<usize>>,
    homes: Vec<Option<usize>>,
    /// Loads of the queues at each check of the last minute.
    history: VecDeque<Vec<f64>>,
    /// Consecutive checks at which each PMD was overloaded.
    overloaded: Vec<usize>,
    /// Checks since the last rebalance.
    since_rebalance: usize,
}

impl Ovs {
    pub(crate) fn new(machine: Machine, units: &[Unit]) -> Ovs {
        let queues = queues(units);
        Ovs {
            machine,
            homes: queues.iter().map(|queue| units[queue[0]].home).collect(),
            queues,
            history: VecDeque::new(),
            overloaded: vec![0; machine.workers],
            since_rebalance: CHECKS_A_MINUTE,
        }
    }

    /// Returns the worker of each queue after a new assignment.
    fn dry_run(&self, loads: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..loads.len()).collect();
        order.sort_by(|one, other| loads[*other].total_cmp(&loads[*one]));
        let mut workers = vec![0.0; self.machine.workers];
        let mut assigned = vec![0; loads.len()];
        for queue in order {
            let local = (0..workers.len()).filter(|worker| {
                self.homes[queue].is_none_or(|home| home == self.machine.node(*worker))
            });
            let least = local.min_by(|one, other| f64::total_cmp(&workers[*one], &workers[*other]));
            let worker = least.unwrap_or(0);
            workers[worker] += loads[queue];
            assigned[queue] = worker;
        }
        assigned
    }

    /// Whether the variance of a node's PMDs improves enough.
    fn is_worth_it(&self, loads: &[f64], old: &[usize], new: &[usize]) -> bool {
        (0..self.machine.nodes).any(|node| {
            let [old, new] = [old, new].map(|assigned| {
                let mut workers = vec![0.0; self.machine.workers];
                assigned.iter().zip(loads).for_each(|(worker, load)| workers[*worker] += load);
                let of_node = |(worker, _): &(usize, f64)| self.machine.node(*worker) == node;
                variance(
                    workers.into_iter().enumerate().filter(of_node).map(|(_, load)| load).collect(),
                )
            });
            old > 0.0 && (old - new) / old >= IMPROVEMENT
        })
    }
}

/// Returns the variance of loads.
#[allow(clippy::cast_precision_loss, reason = "workers are few")]
pub(crate) fn variance(loads: Vec<f64>) -> f64 {
    let count = loads.len().max(1) as f64;
    let mean = loads.iter().sum::<f64>() / count;
    loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count
}

impl Policy for Ovs {
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn decide(&mut self, seen: &Measured<'_>, placed: &[usize]) -> Vec<UnitMove> {
        let load = |queue: &Vec<usize>| queue.iter().map(|unit| seen.units[*unit]).sum();
        self.history.push_back(self.queues.iter().map(load).collect());
        if self.history.len() > CHECKS_A_MINUTE {
            self.history.pop_front();
        }
        for (checks, busy) in self.overloaded.iter_mut().zip(seen.workers) {
            *checks = if *busy >= OVERLOADED { *checks + 1 } else { 0 };
        }
        self.since_rebalance += 1;
        let is_overloaded = self.overloaded.iter().any(|checks| *checks >= CHECKS_A_MINUTE);
        if !is_overloaded || self.since_rebalance < CHECKS_A_MINUTE {
            return Vec::new();
        }
        let mean = |queue: usize| self.history.iter().map(|loads| loads[queue]).sum::<f64>();
        let loads: Vec<f64> = (0..self.queues.len()).map(mean).collect();
        let old: Vec<usize> = self.queues.iter().map(|queue| placed[queue[0]]).collect();
        let new = self.dry_run(&loads);
        if !self.is_worth_it(&loads, &old, &new) {
            return Vec::new();
        }
        self.since_rebalance = 0;
        let moves =
            self.queues.iter().zip(old.iter().zip(&new)).filter(|(_, (old, new))| old != new);
        moves.map(|(units, (_, to))| UnitMove { units: units.clone(), to: *to }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use balance::{ItemId, Part};

    #[test]
    fn it_rebalances_after_a_minute_of_overload_and_where_it_helps() {
        let unit = |vnic| Unit {
            id: ItemId { vnic, part: Part::Queue(0) },
            queue: vnic as usize,
            home: None,
        };
        let units: Vec<Unit> = (0..4).map(unit).collect();
        let mut ovs = Ovs::new(Machine { workers: 2, nodes: 1 }, &units);
        let mut decide = |placed: &[usize], units: &[f64], workers: &[f64]| {
            ovs.decide(&Measured { at: Duration::ZERO, units, workers }, placed).len()
        };
        let uneven = [0, 0, 1, 1];
        let loads = ([0.5, 0.5, 0.01, 0.01], [1.0, 0.02]);
        let moves: Vec<usize> = (0..7).map(|_| decide(&uneven, &loads.0, &loads.1)).collect();
        assert_eq!(moves[..5], [0; 5], "not within the minute");
        assert!(moves[5] > 0 && moves[6] == 0, "then once: {moves:?}");
        let even: usize = (0..20).map(|_| decide(&[0, 1, 0, 1], &[0.5; 4], &[1.0; 2])).sum();
        assert_eq!(even, 0, "nothing would be won");
    }
}
