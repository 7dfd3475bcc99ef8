//! Uses fewer workers when load falls, and moves items back to the node of their memory.

use crate::moves::Reason;
use crate::scene::Scene;

/// Distance of the load at which items are brought home, above that at which all nodes coalesce to
/// one worker, so that the two do not alternate.
const APART: f64 = 1.2;

/// Items below this are not worth a move home.
const WORTH: f64 = 0.01;

/// Items below this are not worth waking a worker at home for.
const WORTH_A_WORKER: f64 = 0.05;

/// Brings items home, the largest first.
pub(crate) fn bring_home(scene: &mut Scene<'_>) {
    if total(scene) <= APART * scene.settings.low {
        return;
    }
    let strays = scene.items.iter().enumerate().filter(|(_, item)| {
        item.active && item.movable && item.peak >= WORTH && scene.is_remote(item, item.worker)
    });
    let mut places: Vec<usize> = strays.map(|(place, _)| place).collect();
    scene.sort_descending(&mut places, |item| item.peak);
    for place in places {
        if let Some(to) = room_at_home(scene, place)
            && !scene.shift(place, to, Reason::Home, scene.settings.fill)
        {
            return;
        }
    }
}

/// Returns the least loaded worker in use at the item's home, or an unused one.
fn room_at_home(scene: &Scene<'_>, place: usize) -> Option<usize> {
    let item = &scene.items[place];
    let then = |worker: usize| {
        let load = &scene.loads[worker];
        load.now.max(load.peak) + item.peak.max(item.load) * scene.stretch(item, worker)
    };
    let is_usable = |worker: &usize| item.reach.has(*worker) && !scene.workers[*worker].excluded;
    let home = (0..scene.workers.len())
        .filter(|worker| !scene.is_remote(item, *worker) && is_usable(worker));
    let in_use = home
        .filter(|worker| !scene.is_unused(*worker) && then(*worker) <= scene.settings.fill)
        .min_by(|one, other| then(*one).total_cmp(&then(*other)));
    let unused = || {
        scene
            .unused(item)
            .filter(|worker| item.peak >= WORTH_A_WORKER && !scene.is_remote(item, *worker))
    };
    in_use.or_else(unused)
}

fn total(scene: &Scene<'_>) -> f64 {
    scene.loads.iter().map(|load| load.peak).sum()
}

/// Empties workers while their items fit beside others'. Nodes share a worker only when one carries
/// them all.
pub(crate) fn coalesce(scene: &mut Scene<'_>) {
    let workers = 0..scene.workers.len();
    if total(scene) * scene.settings.remote <= scene.settings.low {
        return empty(scene, &workers.collect::<Vec<_>>());
    }
    let mut nodes: Vec<usize> = scene.workers.iter().map(|worker| worker.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        let of_node = |worker: &usize| scene.workers[*worker].node == node;
        empty(scene, &workers.clone().filter(of_node).collect::<Vec<_>>());
    }
}

/// Items that have to move for a worker to be unused.
#[derive(Clone, Default)]
struct Contents {
    movable: Vec<usize>,
    /// Whether some of the items may not move.
    is_held: bool,
}

/// Empties the least loaded worker first; of equal ones that with the highest number, so that the
/// first stays.
fn empty(scene: &mut Scene<'_>, group: &[usize]) {
    let mut contents = contents(scene);
    let holds =
        |worker: &usize| scene.loads[*worker].active > 0 || !contents[*worker].movable.is_empty();
    let mut in_use: Vec<usize> = group.iter().copied().filter(holds).collect();
    in_use.sort_by(|one, other| {
        let (of_one, of_other) = (&scene.loads[*one], &scene.loads[*other]);
        let by_use = (of_one.active > 0).cmp(&(of_other.active > 0));
        by_use.then(of_one.peak.total_cmp(&of_other.peak)).then(other.cmp(one))
    });
    for place in 0..in_use.len() {
        let (victim, receivers) = (in_use[place], &in_use[place + 1..]);
        if contents[victim].is_held {
            continue;
        }
        let Some(moves) = fit(scene, &contents[victim].movable, receivers) else { continue };
        for (item, to) in moves {
            if !scene.shift(item, to, Reason::Coalesce, scene.settings.low) {
                return;
            }
            contents[to].is_held = true;
        }
    }
}

fn contents(scene: &Scene<'_>) -> Vec<Contents> {
    let mut contents = vec![Contents::default(); scene.workers.len()];
    for (place, item) in scene.items.iter().enumerate() {
        let contents = &mut contents[item.worker];
        if item.movable {
            contents.movable.push(place);
        } else {
            contents.is_held |= item.active;
        }
    }
    for contents in &mut contents {
        scene.sort_descending(&mut contents.movable, |item| item.peak);
    }
    contents
}

/// Finds a place for each item on the most loaded receiver that stays below the threshold. Returns
/// `None` if not all fit.
fn fit(scene: &Scene<'_>, items: &[usize], receivers: &[usize]) -> Option<Vec<(usize, usize)>> {
    let usable = receivers.iter().filter(|worker| !scene.workers[**worker].excluded);
    let mut peaks: Vec<(usize, f64)> =
        usable.map(|worker| (*worker, scene.loads[*worker].peak)).collect();
    let mut moves = Vec::with_capacity(items.len());
    for place in items {
        let item = &scene.items[*place];
        let then = |(worker, peak): &(usize, f64)| peak + item.peak * scene.stretch(item, *worker);
        let best = peaks
            .iter_mut()
            .filter(|target| item.reach.has(target.0) && then(target) <= scene.settings.low)
            .max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)))?;
        best.1 = then(best);
        moves.push((*place, best.0));
    }
    Some(moves)
}
