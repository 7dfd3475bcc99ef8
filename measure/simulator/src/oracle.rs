//! The oracle: placement by the whole demand, with moves that cost nothing.

use crate::load::Unit;
use crate::machine::Machine;

/// Returns the better of two placements. Both place the largest unit first, on the least loaded
/// worker: one within the unit's node, the other by load alone.
pub(crate) fn place(machine: &Machine, units: &[Unit], wanted: &[f64]) -> Vec<usize> {
    let [near, level] = [true, false].map(|near| {
        let placed = pack(machine, units, wanted, near);
        (machine.serve(units, &placed, wanted).total(), placed)
    });
    if level.0 > near.0 { level.1 } else { near.1 }
}

/// Places the largest units first, each on the least loaded worker; with `near`, of the unit's node
/// while that has room.
fn pack(machine: &Machine, units: &[Unit], wanted: &[f64], near: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|one, other| wanted[*other].total_cmp(&wanted[*one]));
    let mut loads = vec![0.0; machine.workers];
    let mut placed = vec![0; units.len()];
    for place in order {
        let then = |worker: usize| {
            loads[worker] + wanted[place].min(1.0) * machine.cost_factor(&units[place], worker)
        };
        let rank = |worker: usize| {
            let is_far =
                near && (then(worker) > 1.0 || machine.cost_factor(&units[place], worker) > 1.0);
            (is_far, then(worker))
        };
        let best = (0..machine.workers)
            .map(|worker| (rank(worker), worker))
            .min_by(|one, other| one.0.0.cmp(&other.0.0).then(one.0.1.total_cmp(&other.0.1)));
        let worker = best.map_or(0, |(_, worker)| worker);
        loads[worker] = then(worker);
        placed[place] = worker;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use balance::{ItemId, Part};

    fn served(wanted: &[f64], homes: &[Option<usize>], machine: Machine) -> f64 {
        let units: Vec<Unit> = homes
            .iter()
            .zip(0..)
            .map(|(home, vnic)| Unit {
                id: ItemId { vnic, part: Part::Queue(0) },
                queue: vnic as usize,
                home: *home,
            })
            .collect();
        machine.serve(&units, &place(&machine, &units, wanted), wanted).total()
    }

    #[test]
    fn what_fits_is_served_and_at_home() {
        let machine = Machine { workers: 4, nodes: 2 };
        let homes = [0, 0, 1, 1].map(Some);
        assert!((served(&[1.0; 4], &homes, machine) - 4.0).abs() < 1e-9);
        let two = Machine { workers: 2, nodes: 1 };
        assert!((served(&[0.6, 0.5, 0.5, 0.4], &[None; 4], two) - 2.0).abs() < 1e-9);
        assert!((served(&[5.0], &[None], two) - 1.0).abs() < 1e-9, "a unit has one worker");
    }

    #[test]
    fn what_does_not_fit_at_home_goes_elsewhere() {
        let machine = Machine { workers: 2, nodes: 2 };
        assert!((served(&[0.7, 0.7], &[Some(0); 2], machine) - 1.4).abs() < 1e-9);
    }
}
