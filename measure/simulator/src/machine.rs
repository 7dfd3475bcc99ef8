//! The simulated host: workers, and how they share their time among the units placed on them.

use crate::load::Unit;
use balance::{Part, Settings};

/// A host with workers on whole cores, spread evenly over its NUMA nodes.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of workers.
    pub workers: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { workers: 64, nodes: 2 }
    }
}

/// Work that is served under one placement, in shares of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// Time that each unit's worker spends on it.
    pub(crate) busy: Vec<f64>,
    /// Work of each unit that is done: `busy` without the extra cost on a remote NUMA node.
    pub(crate) useful: Vec<f64>,
    /// Busy time of each worker.
    pub(crate) workers: Vec<f64>,
}

impl Served {
    /// Returns the work that is done for all units.
    pub(crate) fn total(&self) -> f64 {
        self.useful.iter().sum()
    }
}

impl Machine {
    /// Returns the NUMA node of a worker.
    pub(crate) fn node(&self, worker: usize) -> usize {
        worker * self.nodes / self.workers
    }

    /// Returns the cost of a unit's work on a worker, as a multiple of its cost on the unit's node.
    pub(crate) fn cost_factor(&self, unit: &Unit, worker: usize) -> f64 {
        let is_remote = unit.home.is_some_and(|home| home != self.node(worker));
        if is_remote { Settings::default().remote } else { 1.0 }
    }

    /// Returns the served work if each unit wants `wanted` of a worker on the unit's node.
    pub(crate) fn serve(&self, units: &[Unit], placed: &[usize], wanted: &[f64]) -> Served {
        let mut by_worker = vec![Vec::new(); self.workers];
        let mut served = Served {
            busy: vec![0.0; units.len()],
            useful: vec![0.0; units.len()],
            workers: vec![0.0; self.workers],
        };
        for (place, unit) in units.iter().enumerate() {
            let worker = placed[place];
            served.busy[place] = wanted[place] * self.cost_factor(unit, worker);
            served.workers[worker] += served.busy[place];
            by_worker[worker].push(place);
        }
        for (worker, places) in by_worker.iter().enumerate() {
            if served.workers[worker] > 1.0 {
                serve_fairly(units, places, &mut served.busy);
                served.workers[worker] = 1.0;
            }
        }
        for (place, unit) in units.iter().enumerate() {
            served.useful[place] = served.busy[place] / self.cost_factor(unit, placed[place]);
        }
        served
    }
}

/// Shares a worker among accounts as deficit round robin does. Each guest queue has an account. All
/// entries of uplinks together have one, which they share in proportion to what arrives.
fn serve_fairly(units: &[Unit], places: &[usize], busy: &mut [f64]) {
    let is_entry = |place: &usize| matches!(units[*place].id.part, Part::Entry(_));
    let (entries, queues): (Vec<usize>, Vec<usize>) =
        places.iter().partition(|place| is_entry(place));
    let mut accounts: Vec<Vec<usize>> = queues.into_iter().map(|place| vec![place]).collect();
    accounts.push(entries);
    let mut accounts: Vec<(f64, Vec<usize>)> = accounts
        .into_iter()
        .filter(|account| !account.is_empty())
        .map(|account| (account.iter().map(|place| busy[*place]).sum(), account))
        .collect();
    accounts.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut left, mut waiting) = (1.0, accounts.len());
    for (wanted, places) in accounts {
        #[allow(clippy::cast_precision_loss, reason = "accounts are few")]
        let fair: f64 = left / waiting as f64;
        let given = wanted.min(fair);
        for place in places {
            busy[place] *= if wanted > 0.0 { given / wanted } else { 0.0 };
        }
        left -= given;
        waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use balance::ItemId;
    use proptest::prelude::*;

    fn unit(vnic: u32, part: Part, home: Option<usize>) -> Unit {
        Unit { id: ItemId { vnic, part }, queue: vnic as usize, home }
    }

    #[test]
    fn a_saturated_worker_serves_fair_shares_to_guests_and_proportions_to_entries() {
        let guests: Vec<Unit> = (0..3).map(|vnic| unit(vnic, Part::Queue(0), None)).collect();
        let one = Machine { workers: 1, nodes: 1 };
        let served = one.serve(&guests, &[0; 3], &[0.1, 0.6, 3.0]);
        let expected = [0.1, 0.45, 0.45];
        let mut off =
            served.useful.iter().zip(expected).map(|(useful, expected)| useful - expected);
        assert!(off.all(|off: f64| off.abs() < 1e-9), "{served:?}");
        let entries = [0, 1].map(|entry| unit(9, Part::Entry(entry), None));
        let served = one.serve(&entries, &[0; 2], &[1.0, 3.0]);
        assert_eq!(served.useful, [0.25, 0.75]);
    }

    #[test]
    fn work_away_from_home_takes_longer() {
        let machine = Machine { workers: 2, nodes: 2 };
        let served = machine.serve(&[unit(0, Part::Queue(0), Some(0))], &[1], &[0.5]);
        assert!((served.busy[0] - 0.65).abs() < 1e-9 && (served.useful[0] - 0.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn no_worker_serves_more_than_its_time_and_none_rests_while_wanted(
            wanted in prop::collection::vec((0.0..2.0f64, 0usize..4, any::<bool>()), 1..30)
        ) {
            let machine = Machine { workers: 4, nodes: 2 };
            let units: Vec<Unit> = wanted.iter().zip(0..).map(|((_, _, is_entry), vnic)| {
                let part = if *is_entry { Part::Entry(0) } else { Part::Queue(0) };
                unit(vnic, part, Some(0))
            }).collect();
            let (loads, placed): (Vec<f64>, Vec<usize>) = wanted.iter().map(|(load, at, _)| (*load, *at)).unzip();
            let served = machine.serve(&units, &placed, &loads);
            for worker in 0..4 {
                let here = |of: &[f64]| -> f64 {
                    of.iter().zip(&placed).filter(|(_, at)| **at == worker).map(|(of, _)| of).sum()
                };
                let stretched = here(&loads) * machine.cost_factor(&units[0], worker);
                prop_assert!((here(&served.busy) - stretched.min(1.0)).abs() < 1e-9);
                prop_assert!((served.workers[worker] - stretched.min(1.0)).abs() < 1e-9);
            }
        }
    }
}
