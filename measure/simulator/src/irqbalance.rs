//! The policy of irqbalance, simplified. Every 10 s, on each node, queues move to the least loaded
//! core from cores whose load exceeds the mean by more than one standard deviation. A queue moves
//! only if its old core stays the more loaded one.

use crate::algorithm::{Measured, Policy, UnitMove, queues};
use crate::load::Unit;
use crate::machine::Machine;
use crate::ovs::variance;
use std::time::Duration;

/// State of irqbalance.
pub(crate) struct Irqbalance {
    machine: Machine,
    queues: Vec<Vec<usize>>,
}

impl Irqbalance {
    pub(crate) fn new(machine: Machine, units: &[Unit]) -> Irqbalance {
        Irqbalance { machine, queues: queues(units) }
    }

    /// Returns the moves within a node.
    fn balance(&self, node: usize, seen: &Measured<'_>, placed: &[usize]) -> Vec<UnitMove> {
        let here: Vec<usize> =
            (0..self.machine.workers).filter(|worker| self.machine.node(*worker) == node).collect();
        let mut loads = seen.workers.to_vec();
        let of_node: Vec<f64> = here.iter().map(|worker| loads[*worker]).collect();
        #[allow(clippy::cast_precision_loss, reason = "workers are few")]
        let mean = of_node.iter().sum::<f64>() / of_node.len() as f64;
        let limit = mean + variance(of_node).sqrt();
        let load = |queue: &Vec<usize>| queue.iter().map(|unit| seen.units[*unit]).sum::<f64>();
        let mut shifts = Vec::new();
        for worker in here.iter().filter(|worker| seen.workers[**worker] > limit) {
            let mut of_worker: Vec<&Vec<usize>> =
                self.queues.iter().filter(|queue| placed[queue[0]] == *worker).collect();
            of_worker.sort_by(|one, other| load(other).total_cmp(&load(one)));
            for queue in of_worker {
                let Some(least) =
                    here.iter().min_by(|one, other| loads[**one].total_cmp(&loads[**other]))
                else {
                    break;
                };
                let load = load(queue);
                if load > 0.0 && loads[*worker] - load > loads[*least] + load {
                    loads[*worker] -= load;
                    loads[*least] += load;
                    shifts.push(UnitMove { units: queue.clone(), to: *least });
                }
            }
        }
        shifts
    }
}

impl Policy for Irqbalance {
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn decide(&mut self, seen: &Measured<'_>, placed: &[usize]) -> Vec<UnitMove> {
        (0..self.machine.nodes).flat_map(|node| self.balance(node, seen, placed)).collect()
    }
}
