//! Overloaded workers give items away, before they saturate if their load grows slowly enough.

use crate::moves::Reason;
use crate::scene::{Candidate, Scene};

/// Smaller items are not worth a move for room, only to end saturation.
const SMALL: f64 = 0.01;

/// What is left beside an item that takes a worker alone and is not worth moving the item for.
const CRUMBS: f64 = 0.15;

/// All overloaded workers, the most loaded one first.
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

/// What the items of a saturated worker want is unknown. Small items together worth one worker's
/// share of what all workers have go to one unused worker, which even so they cannot saturate;
/// items above that go to one each, in every interval twice as many. What they use there tells what
/// the others want.
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

/// Moves one item ahead to `target` or an unused worker, unless it is its worker's last; whether it
/// did.
fn ahead(scene: &mut Scene<'_>, source: usize, place: usize, target: Option<usize>) -> bool {
    let item = &scene.items[place];
    let target = target.filter(|worker| item.reach.has(*worker));
    let Some(to) = target.or_else(|| scene.unused(item)) else { return false };
    let threshold = scene.settings.saturated;
    scene.loads[source].active > 1 && scene.shift(place, to, Reason::Probe, threshold)
}

/// Gives away the largest items first, so that few move, until the rest fits.
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
        if item.load < SMALL && is_vain && !is_excluded {
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

/// The item that has the worker to itself but for crumbs: it is they that move.
fn lone(scene: &Scene<'_>, source: usize, places: &[usize]) -> Option<usize> {
    let first = *places.first()?;
    let load = scene.items[first].load;
    let is_lone = load > scene.settings.fill && scene.loads[source].now - load <= CRUMBS;
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
