//! The balancer: its memory between measurements, and the decision.

use crate::coalesce::{bring_home, coalesce};
use crate::measurement::{Item, ItemId, Measurement, Mode, Worker};
use crate::moves::Move;
use crate::relief::relieve;
use crate::scene::{Candidate, Load, Scene, Share};
use crate::settings::Settings;
use std::collections::HashMap;
use std::time::Duration;

/// Number of parts of [`Settings::settle`]. The highest load of each is kept; when a part is over,
/// the oldest is dropped.
const PARTS: usize = 4;

/// Time over which an item's usual load is averaged.
const USUAL: Duration = Duration::from_millis(200);

/// Time over which the most that an item used is forgotten.
const FADES: Duration = Duration::from_secs(5);

/// How long the growth of items that were moved first is applied to those that stayed.
const TELLS: Duration = Duration::from_millis(100);

/// Assumed demand of a saturated worker's items, as a multiple of what they got, while it is not
/// known.
const GUESS: f64 = 1.25;

/// Decides which items move. One for a switch; the same measurements give the same moves, in
/// whatever order items come.
#[derive(Debug)]
pub struct Balancer {
    settings: Settings,
    items: HashMap<ItemId, Known>,
    workers: Vec<History>,
    /// Number of moves that the rate limit allows now.
    saved: f64,
    /// When the last measurement was made.
    last: Option<Duration>,
    /// The number of the part of the settling time for which peaks are being recorded.
    part: u64,
    /// When coalescing was last considered.
    coalesced: Duration,
    /// vNICs whose last moves lost frames.
    losses: HashMap<u32, Loss>,
}

/// What moves that lost frames cost a vNIC.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// How often its rest has been doubled.
    doublings: u32,
    /// None of its items moves before this.
    until: Duration,
}

/// Most doublings of the rest after lossy moves: with a rest of one second about a minute.
const DOUBLINGS: u32 = 6;

/// Facts remembered about an item.
#[derive(Debug, Default)]
struct Known {
    /// Its load in the last interval.
    busy: f64,
    /// Its load averaged over [`USUAL`].
    usual: f64,
    /// The most it used while its worker was not saturated; fades over [`FADES`].
    free: f64,
    busy_at: Option<Duration>,
    moved: Option<Departure>,
}

/// The last move of an item.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Duration,
    from: usize,
    to: usize,
    /// Its load before, if its worker was saturated.
    squeezed: Option<f64>,
}

/// Facts remembered about a worker.
#[derive(Clone, Debug, Default)]
struct History {
    peaks: Peaks,
    /// Those of the shares for which it waited for its processor.
    waits: Peaks,
    smooth: f64,
    saturated_for: u32,
}

/// The highest values of the parts of [`Settings::settle`].
#[derive(Clone, Copy, Debug, Default)]
struct Peaks([f64; PARTS]);

impl Peaks {
    fn highest(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    fn note(&mut self, slot: usize, value: f64) {
        self.0[slot] = self.0[slot].max(value);
    }
}

impl Balancer {
    /// Returns a balancer that has seen nothing yet.
    pub fn new(settings: Settings) -> Balancer {
        Balancer {
            settings,
            items: HashMap::new(),
            workers: Vec::new(),
            saved: f64::from(settings.moves_a_second),
            last: None,
            part: 0,
            coalesced: Duration::ZERO,
            losses: HashMap::new(),
        }
    }

    /// Returns the moves that the measurement asks for, to be carried out in this order.
    pub fn decide(&mut self, measured: &Measurement<'_>) -> Vec<Move> {
        let exists = |item: &&Item| item.worker < measured.workers.len();
        let mut items: Vec<&Item> = measured.items.iter().filter(exists).collect();
        // Sums of floats depend on their order. A caller that keeps an order pays one look for
        // this.
        items.sort_by_key(|item| item.id);
        let elapsed = self.pass(measured.at);
        self.note(measured, &items, elapsed);
        let mut scene = self.scene(measured, &items);
        relieve(&mut scene);
        if measured.at.saturating_sub(self.coalesced) >= self.settings.settle / 16 {
            self.coalesced = measured.at;
            bring_home(&mut scene);
            coalesce(&mut scene);
        }
        let (moves, shares) = (scene.moves, scene.shares);
        self.remember(&moves, &shares, measured.at);
        moves
    }

    /// Charges moves of a vNIC's items with what they lost. After moves that lost frames none of
    /// its items moves for a time that doubles each time, up to 64 times [`Settings::rest`]; each
    /// move without loss halves it again. Returns how long its items rest.
    pub fn charge(&mut self, vnic: u32, has_lost: bool, at: Duration) -> Duration {
        let doublings = self.losses.get(&vnic).map_or(0, |loss| loss.doublings);
        let doublings =
            if has_lost { (doublings + 1).min(DOUBLINGS) } else { doublings.saturating_sub(1) };
        if doublings == 0 {
            self.losses.remove(&vnic);
            return self.settings.rest;
        }
        let rest = self.settings.rest * (1 << doublings);
        self.losses.insert(vnic, Loss { doublings, until: at + rest });
        rest
    }

    /// Lets time pass, in which peaks age and moves are saved up.
    fn pass(&mut self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.last.unwrap_or(now));
        let limit = f64::from(self.settings.moves_a_second);
        self.saved = (self.saved + elapsed.as_secs_f64() * limit).min(limit);
        if self.last.is_none() {
            // Nothing has been idle for long as far as we know.
            self.coalesced = now + self.settings.settle;
        }
        self.last = Some(now);
        let part = self.settings.settle.as_nanos().max(PARTS as u128) / PARTS as u128;
        let part = u64::try_from(now.as_nanos() / part).unwrap_or(u64::MAX);
        for part in (self.part + 1..=part).take(PARTS) {
            for worker in &mut self.workers {
                (worker.peaks.0[slot(part)], worker.waits.0[slot(part)]) = (0.0, 0.0);
            }
        }
        self.part = part;
        elapsed
    }

    /// Takes the measured loads down.
    fn note(&mut self, measured: &Measurement<'_>, items: &[&Item], elapsed: Duration) {
        let Settings { saturated, settle, rest, .. } = self.settings;
        self.workers.resize(measured.workers.len(), History::default());
        for (history, worker) in self.workers.iter_mut().zip(measured.workers) {
            let busy = share(worker.busy);
            history.smooth = f64::midpoint(history.smooth, busy);
            let is_saturated = busy >= saturated;
            history.saturated_for = if is_saturated { history.saturated_for + 1 } else { 0 };
            history.peaks.note(slot(self.part), busy);
            history.waits.note(slot(self.part), share(worker.waited));
        }
        let weight = |over: Duration| elapsed.as_secs_f64() / (elapsed + over).as_secs_f64();
        let (usual, fades) = (weight(USUAL), weight(FADES));
        for item in items {
            let busy = share(item.busy);
            let new = Known { usual: busy, ..Known::default() };
            let known = self.items.entry(item.id).or_insert(new);
            known.busy = busy;
            known.usual += (busy - known.usual) * usual;
            known.free -= known.free * fades;
            if self.workers[item.worker].saturated_for == 0 {
                known.free = known.free.max(busy);
            }
            if busy > 0.0 {
                known.busy_at = Some(measured.at);
            }
        }
        let now = measured.at;
        self.items.retain(|_, known| {
            let moved = known.moved.map(|moved| moved.at);
            is_within(known.busy_at, now, settle) || is_within(moved, now, rest)
        });
        // A vNIC that has been quiet for as long again starts anew.
        let forgotten = |loss: &Loss| loss.until + rest * (1 << loss.doublings);
        self.losses.retain(|_, loss| now < forgotten(loss));
    }

    fn scene<'m>(&self, measured: &Measurement<'m>, items: &[&Item]) -> Scene<'m> {
        let mut loads = self.loads(measured.workers);
        self.note_growth(&mut loads, measured, items);
        // Static items may be sums of many flows, which says nothing about what one flow can get.
        let mut largest = vec![0.0; loads.len()];
        for item in items.iter().filter(|item| item.mode == Mode::Dynamic) {
            largest[item.worker] = share(item.busy).max(largest[item.worker]);
        }
        let mut usual = vec![0.0; loads.len()];
        let mut idle = measured.workers.iter().map(|worker| share(worker.busy)).collect::<Vec<_>>();
        let mut candidates = Vec::with_capacity(items.len());
        for item in items {
            let (load, largest) = (&loads[item.worker], largest[item.worker]);
            let candidate = self.candidate(item, load, largest, measured.at);
            if !candidate.active && !candidate.movable {
                continue;
            }
            usual[item.worker] += candidate.peak;
            idle[item.worker] -= candidate.measured;
            loads[item.worker].now += candidate.load;
            loads[item.worker].lately += candidate.free;
            loads[item.worker].active += usize::from(candidate.active);
            candidates.push(candidate);
        }
        for candidate in &mut candidates {
            let usual = usual[candidate.worker].max(f64::MIN_POSITIVE);
            candidate.peak *= loads[candidate.worker].peak / usual;
        }
        for (load, (worker, other)) in loads.iter_mut().zip(measured.workers.iter().zip(idle)) {
            load.now += other.max(0.0);
            load.pressed |= worker.excluded && load.active > 0;
        }
        let same = |worker: &Worker| {
            measured.workers.iter().position(|other| other.core == worker.core).unwrap_or(0)
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to u32::MAX")]
        let left = self.saved as usize;
        Scene {
            settings: self.settings,
            workers: measured.workers,
            loads,
            items: candidates,
            cores: measured.workers.iter().map(same).collect(),
            moves: Vec::new(),
            shares: Vec::new(),
            left,
        }
    }

    fn loads(&self, workers: &[Worker]) -> Vec<Load> {
        let Settings { high, saturated, shared, .. } = self.settings;
        let load = |(history, worker): (&History, &Worker)| Load {
            peak: history.peaks.highest(),
            pressed: worker.busy >= saturated || worker.busy > high && history.smooth > high,
            saturated_for: history.saturated_for,
            is_shared: history.waits.highest() > shared,
            ..Load::default()
        };
        self.workers.iter().zip(workers).map(load).collect()
    }

    /// Computes for each worker by which factor items grew after they left it, while it was
    /// saturated, for one that is not.
    fn note_growth(&self, loads: &mut [Load], measured: &Measurement<'_>, items: &[&Item]) {
        let mut sums = vec![(0.0, 0.0); loads.len()];
        for item in items {
            let moved = self.items.get(&item.id).and_then(|known| known.moved);
            if let Some(Departure { at, from, to, squeezed: Some(before) }) = moved
                && item.worker == to
                && is_within(Some(at), measured.at, TELLS)
                && loads[to].saturated_for == 0
                && let Some((then, now)) = sums.get_mut(from)
            {
                *then += before;
                *now += share(item.busy);
            }
        }
        for (load, (then, now)) in loads.iter_mut().zip(sums) {
            load.growth = (then > 0.0).then(|| (now / then).max(1.0));
        }
    }

    fn candidate(&self, item: &Item, load: &Load, largest: f64, now: Duration) -> Candidate {
        let known = self.items.get(&item.id);
        let moved = known.and_then(|known| known.moved);
        let is_charged = self.losses.get(&item.id.vnic).is_some_and(|loss| now < loss.until);
        let rests = is_charged
            || moved.is_some_and(|moved| now.saturating_sub(moved.at) < self.settings.rest);
        let busy_at = known.and_then(|known| known.busy_at);
        let measured = share(item.busy);
        let wanted = match (load.saturated_for, load.growth) {
            (0, _) => measured,
            (_, Some(growth)) => measured * growth,
            // Not squeezed if others get more: then it wants little more. Otherwise it wants at
            // least what it used while its worker was not saturated.
            _ if 2.0 * measured < largest => measured * GUESS,
            _ => known.map_or(0.0, |known| known.free).max(measured * GUESS),
        };
        Candidate {
            id: item.id,
            worker: item.worker,
            home: item.home,
            reach: item.reach,
            active: is_within(busy_at, now, self.settings.settle),
            movable: item.mode == Mode::Dynamic && !rests,
            measured,
            load: wanted.min(measured.max(1.0)),
            peak: known.map_or(0.0, |known| known.usual),
            free: known.map_or(0.0, |known| known.free),
        }
    }

    /// Records the moves: the items rest, and their shares of the peaks move with them.
    fn remember(&mut self, moves: &[Move], peaks: &[Share], at: Duration) {
        self.saved -= f64::from(u32::try_from(moves.len()).unwrap_or(u32::MAX));
        for (moved, peak) in moves.iter().zip(peaks) {
            let Move { item, from, to, .. } = *moved;
            let known = self.items.entry(item).or_default();
            let squeezed = (self.workers[from].saturated_for > 0).then_some(known.busy);
            known.moved = Some(Departure { at, from, to, squeezed });
            for part in 0..PARTS {
                let gone = self.workers[from].peaks.0[part] * peak.of_source;
                self.workers[from].peaks.0[part] -= gone;
                self.workers[to].peaks.0[part] += gone * peak.stretch;
            }
        }
    }
}

fn is_within(at: Option<Duration>, now: Duration, time: Duration) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) <= time)
}

/// Returns the index at which the peak of a part is stored.
fn slot(part: u64) -> usize {
    usize::try_from(part % PARTS as u64).unwrap_or(0)
}

/// Returns a measured share, limited to possible values.
fn share(busy: f64) -> f64 {
    if busy.is_finite() { busy.clamp(0.0, 1.0) } else { 0.0 }
}
