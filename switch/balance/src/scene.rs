//! The state of one decision: the expected loads after the moves that are decided so far.

use crate::measurement::{ItemId, Part, Reach, Worker};
use crate::moves::{Move, Reason};
use crate::settings::Settings;

/// An item that may matter in this decision: active, or idle and dynamic.
pub(crate) struct Candidate {
    pub(crate) id: ItemId,
    /// Its worker after the moves so far.
    pub(crate) worker: usize,
    pub(crate) home: Option<usize>,
    pub(crate) reach: Reach,
    /// Whether it had work within [`Settings::settle`].
    pub(crate) active: bool,
    /// Whether it may move: it is dynamic, and has rested since its last move.
    pub(crate) movable: bool,
    /// Measured share of its worker in the last interval.
    pub(crate) measured: f64,
    /// Load that it is expected to want there now.
    pub(crate) load: f64,
    /// Its share of its worker's peak.
    pub(crate) peak: f64,
    /// The most that it used recently while its worker was not saturated.
    pub(crate) free: f64,
}

/// Measured and expected load of a worker, after the moves so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Load {
    /// The load that its items are expected to want now.
    pub(crate) now: f64,
    /// Highest load of the last [`Settings::settle`].
    pub(crate) peak: f64,
    /// The sum of the most that its items used recently, each for itself.
    pub(crate) lately: f64,
    /// Number of active items.
    pub(crate) active: usize,
    /// Whether it is above its threshold and should give items away.
    pub(crate) pressed: bool,
    /// Whether other programs had its processor lately for longer than [`Settings::shared`].
    pub(crate) is_shared: bool,
    /// Number of consecutive intervals in which it was saturated.
    pub(crate) saturated_for: u32,
    /// The factor by which the items of a saturated worker want more than was measured, once that
    /// is known.
    pub(crate) growth: Option<f64>,
}

/// The part of its source's peak that a move transfers.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// The part, 0 to 1.
    pub(crate) of_source: f64,
    /// The factor by which it grows on the target.
    pub(crate) stretch: f64,
}

pub(crate) struct Scene<'m> {
    pub(crate) settings: Settings,
    pub(crate) workers: &'m [Worker],
    pub(crate) loads: Vec<Load>,
    pub(crate) items: Vec<Candidate>,
    /// For each worker, the first one on the same core.
    pub(crate) cores: Vec<usize>,
    pub(crate) moves: Vec<Move>,
    /// The peak shares of `moves`, in the same order.
    pub(crate) shares: Vec<Share>,
    /// Number of moves that the rate limit still allows.
    pub(crate) left: usize,
}

/// The rank of a target, the lowest first: tier, load in steps, recent use of its items, number.
type Rank = (u8, f64, f64, usize);

/// Loads within one step rank equally, because the expected demand of the items matters more.
const STEP: f64 = 0.1;

impl Scene<'_> {
    /// Returns the active items of a worker that may move, by falling load. Equal ones are in the
    /// order of their ids, so that the caller's order does not matter.
    pub(crate) fn movable(&self, worker: usize) -> Vec<usize> {
        let items = self.items.iter().enumerate();
        let mut places: Vec<usize> = items
            .filter(|(_, item)| item.worker == worker && item.active && item.movable)
            .map(|(place, _)| place)
            .collect();
        self.sort_descending(&mut places, |item| item.load);
        places
    }

    pub(crate) fn sort_descending(&self, places: &mut [usize], load: impl Fn(&Candidate) -> f64) {
        places.sort_unstable_by(|one, other| {
            let (one, other) = (&self.items[*one], &self.items[*other]);
            load(other).total_cmp(&load(one)).then(one.id.cmp(&other.id))
        });
    }

    pub(crate) fn is_remote(&self, item: &Candidate, worker: usize) -> bool {
        item.home.is_some_and(|home| home != self.workers[worker].node)
    }

    /// Returns the factor by which an item's work grows if it moves to `to`.
    pub(crate) fn stretch(&self, item: &Candidate, to: usize) -> f64 {
        let cost = |worker| if self.is_remote(item, worker) { self.settings.remote } else { 1.0 };
        cost(to) / cost(item.worker)
    }

    pub(crate) fn is_unused(&self, worker: usize) -> bool {
        self.loads[worker].active == 0 && !self.workers[worker].excluded
    }

    fn is_whole_core(&self, worker: usize) -> bool {
        let same = |other: &usize| self.cores[*other] == self.cores[worker] && *other != worker;
        !(0..self.workers.len()).filter(same).any(|other| self.loads[other].active > 0)
    }

    /// Returns the best unused worker for an item: its own node first, whole cores before siblings
    /// of workers in use.
    pub(crate) fn unused(&self, item: &Candidate) -> Option<usize> {
        let unused = (0..self.workers.len()).filter(|worker| {
            *worker != item.worker && self.is_unused(*worker) && item.reach.has(*worker)
        });
        unused.min_by_key(|worker| self.unused_rank(item, *worker))
    }

    fn unused_rank(&self, item: &Candidate, worker: usize) -> u8 {
        match (self.is_whole_core(worker), self.is_remote(item, worker)) {
            (true, false) => 1,
            (true, true) => 3,
            (false, false) => 4,
            (false, true) => 5,
        }
    }

    /// Returns the best worker for an item of an overloaded one, if it is better than the item's
    /// own.
    pub(crate) fn target(&self, item: &Candidate) -> Option<usize> {
        let ranks = (0..self.workers.len()).filter_map(|worker| self.rank(item, worker));
        ranks.min_by(better).map(|(.., worker)| worker)
    }

    fn rank(&self, item: &Candidate, worker: usize) -> Option<Rank> {
        if worker == item.worker || self.workers[worker].excluded || !item.reach.has(worker) {
            return None;
        }
        if self.is_unused(worker) {
            return Some((self.unused_rank(item, worker), 0.0, 0.0, worker));
        }
        let Settings { fill, high, margin, .. } = self.settings;
        let Load { now, peak, is_shared, .. } = self.loads[worker];
        // What a shared processor has to spare at one moment another program may have at the next.
        let now = if is_shared { now.max(peak) } else { now };
        let then = now + item.load * self.stretch(item, worker);
        let remote = self.is_remote(item, worker);
        let source = &self.loads[item.worker];
        // A guess must not saturate the target, which would then guess as much and send the item
        // back.
        let is_guess = source.saturated_for > 0 && source.growth.is_none();
        let is_left = self.workers[item.worker].excluded;
        let is_gain =
            then + margin <= source.now && (!is_guess || then < self.settings.saturated) || is_left;
        // Frames can be lost while an entry moves, which is not worth a target without room. Two full
        // workers whose processors others share would give each other items for ever.
        let needs_room = (is_shared || matches!(item.id.part, Part::Entry(_))) && !is_left;
        let tier = match then {
            _ if then <= fill && !remote => 0,
            _ if then <= fill => 2,
            _ if !is_gain => return None,
            _ if then <= high && !remote => 6,
            _ if then <= high => 7,
            _ if needs_room => return None,
            _ => 8,
        };
        Some((tier, (then / STEP).floor(), self.loads[worker].lately, worker))
    }

    /// Moves an item. Returns `false` if the rate allows no more moves.
    pub(crate) fn shift(
        &mut self,
        place: usize,
        to: usize,
        reason: Reason,
        threshold: f64,
    ) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let item = &self.items[place];
        let (from, stretch, active) = (item.worker, self.stretch(item, to), item.active);
        let (load, peak) = (item.load * stretch, item.peak * stretch);
        let old = (self.loads[from], self.loads[to]);
        let of_source = if old.0.peak > 0.0 { (item.peak / old.0.peak).min(1.0) } else { 0.0 };
        self.shares.push(Share { of_source, stretch });
        let source = &mut self.loads[from];
        source.now = (source.now - item.load).max(0.0);
        source.peak = (source.peak - item.peak).max(0.0);
        source.active -= usize::from(active);
        source.lately -= item.free;
        let target = &mut self.loads[to];
        target.now += load;
        target.peak += peak;
        target.active += usize::from(active);
        target.lately += item.free;
        let new = (self.loads[from], self.loads[to]);
        let by_peak = matches!(reason, Reason::Coalesce | Reason::Home);
        let figure = |load: &Load| if by_peak { load.peak } else { load.now };
        self.moves.push(Move {
            item: item.id,
            from,
            to,
            reason,
            threshold,
            load: if by_peak { peak } else { load },
            from_load: (figure(&old.0), figure(&new.0)),
            to_load: (figure(&old.1), figure(&new.1)),
        });
        let item = &mut self.items[place];
        (item.worker, item.load, item.peak, item.movable) = (to, load, peak, false);
        true
    }
}

fn better(one: &Rank, other: &Rank) -> std::cmp::Ordering {
    let (by_tier, by_load) = (one.0.cmp(&other.0), one.1.total_cmp(&other.1));
    by_tier.then(by_load).then(one.2.total_cmp(&other.2)).then(one.3.cmp(&other.3))
}
