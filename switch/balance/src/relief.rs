//! Overloaded workers give items away, before they saturate if their load grows slowly enough.

use crate::moves::Reason;
use crate::scene::{Candidate, Scene};

/// Load below which an item is moved only to end saturation, not to make room.
const NEGLIGIBLE_LOAD: f64 = 0.01;

/// Largest load of a worker's other items at which its largest item counts as alone there, and
/// stays.
const MAX_LOAD_BESIDE_LONE: f64 = 0.15;

/// Relieves all overloaded workers, the most loaded one first.
pub(crate) fn relieve(scene: &mut Scene<'_>) {
    let pressed = |worker: &usize| scene.loads[*worker].pressed;
    let mut sources: Vec<usize> = (0..scene.loads.len()).filter(pressed).collect();
    let load = |worker: usize| scene.loads[worker].now;
    sources.sort_by(|one, other| load(*other).total_cmp(&load(*one)));
    for source in sources {
        let load = scene.loads[source];
        let places = scene.movable(source);
        let is_unknown = load.saturated_for > 0 && load.growth.is_none();
        if is_unknown && !scene.workers[source].excluded {
            probe(scene, source, &places);
        } else {
            spread(scene, source, &places);
        }
    }
}

/// Moves some items of a saturated worker to unused ones, because the demand of its items is not
/// known. Small items that together are worth one worker's share of what all workers have go to one
/// unused worker, which they cannot saturate even so. Larger items go to one worker each, twice as
/// many in each interval. Their use there shows the demand of the others.
fn probe(scene: &mut Scene<'_>, source: usize, places: &[usize]) {
    let usable = scene.workers.iter().filter(|worker| !worker.excluded).count();
    #[allow(clippy::cast_precision_loss, reason = "workers are few")]
    let share = 1.0 / usable as f64;
    let is_large = |place: &&usize| scene.items[**place].measured > share;
    let large: Vec<usize> = places.iter().filter(is_large).copied().collect();
    let small = &places[large.len()..];
    let doubled = 1 << (scene.loads[source].saturated_for - 1).min(16);
    let mut moved = false;
    for place in large.into_iter().take(doubled) {
        moved |= ahead(scene, source, place, None);
    }
    let (mut target, mut sum) = (None, 0.0);
    for place in small {
        sum += scene.items[*place].measured;
        if sum > share {
            break;
        }
        target = target.or_else(|| scene.unused(&scene.items[*place]));
        moved |= ahead(scene, source, *place, target);
    }
    if !moved {
        spread(scene, source, places);
    }
}

/// Moves one item to `target` or an unused worker, to be measured there, unless it is its worker's
/// last. Returns whether it moved.
fn ahead(scene: &mut Scene<'_>, source: usize, place: usize, target: Option<usize>) -> bool {
    let item = &scene.items[place];
    let target = target.filter(|worker| item.reach.has(*worker));
    let Some(to) = target.or_else(|| scene.unused(item)) else { return false };
    let threshold = scene.settings.saturated;
    scene.loads[source].active > 1 && scene.shift(place, to, Reason::Probe, threshold)
}

/// Moves the largest items away first, so that few move, until the rest fits.
fn spread(scene: &mut Scene<'_>, source: usize, places: &[usize]) {
    let is_excluded = scene.workers[source].excluded;
    let keep = if is_excluded { -1.0 } else { scene.settings.fill };
    let stays = if is_excluded { None } else { lone(scene, source, places) };
    let sum: f64 = places.iter().map(|place| scene.items[*place].load).sum();
    let is_hopeless = scene.loads[source].now - sum > scene.settings.high && stays.is_none();
    for place in places {
        let load = scene.loads[source];
        if load.now <= keep || (load.active <= 1 && !is_excluded) {
            return;
        }
        let item = &scene.items[*place];
        let is_vain = is_hopeless || load.now <= scene.settings.high;
        if item.load < NEGLIGIBLE_LOAD && is_vain && !is_excluded {
            return;
        }
        if Some(*place) == stays {
            continue;
        }
        let Some(to) = scene.target(item) else { continue };
        let reason = reason(scene, item, to);
        if !scene.shift(*place, to, reason, scene.settings.high) {
            return;
        }
    }
}

/// Returns the item that has the worker almost to itself; it stays, and the small others move.
fn lone(scene: &Scene<'_>, source: usize, places: &[usize]) -> Option<usize> {
    let first = *places.first()?;
    let load = scene.items[first].load;
    let is_lone =
        load > scene.settings.fill && scene.loads[source].now - load <= MAX_LOAD_BESIDE_LONE;
    is_lone.then_some(first)
}

fn reason(scene: &Scene<'_>, item: &Candidate, to: usize) -> Reason {
    let source = scene.loads[item.worker].now;
    match () {
        () if scene.workers[item.worker].excluded => Reason::Leave,
        () if scene.is_unused(to) && item.load > source / 2.0 => Reason::Isolate,
        () if scene.is_unused(to) => Reason::Expand,
        () => Reason::Relieve,
    }
}
