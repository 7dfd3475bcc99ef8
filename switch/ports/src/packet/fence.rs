//! Keeps order when flows move from one queue of a group to another: frames that the old queue
//! still holds must not be overtaken.
//!
//! 1. The reader of the new queue stops ([`Fence::hold`]).
//! 2. The entry is stored; from now on frames come to the new queue.
//! 3. Each round notes the place behind the new queue's frames, and then the place behind each old
//!    queue's frames. Once the old queues' readers have delivered up to their places, the new
//!    queue's reader may take up to its own.
//! 4. A grace period after the store, the places behind the old queues' frames are noted once more:
//!    the move ends when the readers have delivered up to these, whatever the round.
//!
//! **Why rounds.** On another processor the program may have read the old entry while its frame is
//! not in a slot yet. Only a grace period (`membarrier`, some 10 ms) rules out such frames, and
//! that is too long to hold a queue. But a flow's frames come one after the other: once the new
//! queue has one, all earlier ones are in their slots. So a frame of the new queue may be taken
//! once the frames are taken that the old queues had *after* it was seen, and a round waits only
//! for readers.
//! The held queue's own reader runs the rounds, and ends the move at its deadline, so neither waits
//! for the thread that asked for the move.
//!
//! **A hold loses no frame.** A move is begun only if the new queue's ring has room for what waits
//! in it and in the old queues ([`Fence::fits`]): a sender with a window sends a frame for each that
//! is delivered. If the ring of a held queue fills up nevertheless, its reader continues at once. A
//! frame that is overtaken costs its flow less than one that is dropped, and a full ring also drops
//! those of flows that do not move.
//!
//! **Moves to several queues at once** share the grace period; each has its own old queues and its
//! own rounds. No queue may be an old one of one move and a new one of another
//! ([`batches`](super::batch::batches)): two such queues could wait for each other until the
//! deadline.

use super::gate::Gate;
use crate::lock;
use std::collections::HashSet;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// The queues of a group, and the moves under way.
pub(super) struct Fence {
    gates: Vec<Gate>,
    /// Most frames that the kernel can be writing to slots at once.
    processors: usize,
    /// One move for each new queue, in the order in which the queues were held.
    moves: Mutex<Vec<Move>>,
}

/// Result of a move for its new queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Frames that waited: all that arrived from the stop to the end of the last round.
    pub(super) held_frames: u64,
    /// Time from the stop to the end of the first round, after which the queue was read again.
    pub(super) held: Duration,
    /// Whether the deadline or a nearly full ring came first: then the new queue may have overtaken
    /// frames of the old ones.
    pub(super) given_up: bool,
}

/// For each old queue, the place that its reader has to pass.
type Places = Vec<(usize, u64)>;

struct Move {
    to: usize,
    /// When the new queue stops waiting.
    deadline: Instant,
    /// The old queues; empty until the move has begun.
    from: Vec<usize>,
    /// The places of this round, once noted.
    round: Option<Places>,
    /// Place up to which the new queue may be read after this round.
    open_to: u64,
    /// Whether a grace period has passed since the last store of the batch.
    grace: bool,
    /// The places noted after the grace period.
    end: Option<Places>,
    /// Places that the new queue's reader had taken when it stopped.
    taken: u64,
    stopped: Instant,
    held: Option<Duration>,
    outcome: Option<Outcome>,
}

impl Fence {
    /// Creates a fence between queues, on a host with this many processors.
    pub(super) fn new(gates: Vec<Gate>, processors: usize) -> Fence {
        Fence { gates, processors, moves: Mutex::new(Vec::new()) }
    }

    /// Returns a queue's gate, for its reader.
    pub(super) fn gate(&self, queue: usize) -> Option<&Gate> {
        self.gates.get(queue)
    }

    /// Stops the reader of a queue until the first round of [`Fence::begin`] is over, or the
    /// deadline has come. The caller holds the queues of one batch at a time. In force once
    /// [`Fence::is_stopped`] returns `true`.
    pub(super) fn hold(&self, to: usize, deadline: Instant) {
        let stopped = Instant::now();
        lock(&self.moves).push(Move {
            to,
            deadline,
            from: Vec::new(),
            round: None,
            open_to: 0,
            grace: false,
            end: None,
            taken: self.gates.get(to).map_or(0, Gate::hold),
            stopped,
            held: None,
            outcome: None,
        });
    }

    /// Whether a held queue's reader has stopped, so that entries may name the queue.
    pub(super) fn is_stopped(&self, to: usize) -> bool {
        self.gates.get(to).is_none_or(Gate::is_stopped)
    }

    /// Begins the first round of a held queue. The caller has stored the entries that now name this
    /// queue and named others before.
    pub(super) fn begin(&self, to: usize, from: &[usize]) {
        // Pairs with no store of this process: the entries must be visible to the kernel before the
        // first slot is read.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        for moving in lock(&self.moves).iter_mut().filter(|moving| moving.to == to) {
            from.clone_into(&mut moving.from);
            moving.advance(self);
        }
    }

    /// Notes that a grace period has passed since the last store.
    pub(super) fn grace_is_over(&self) {
        lock(&self.moves).iter_mut().for_each(|moving| moving.grace = true);
    }

    /// Ends rounds that are complete, begins the next ones, and ends moves that are due. Called by
    /// a held queue's reader; never waits.
    pub(super) fn advance(&self) {
        let mut moves = match self.moves.try_lock() {
            Ok(moves) => moves,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        moves.iter_mut().for_each(|moving| moving.advance(self));
    }

    /// Returns which of these moves (old and new queue) can begin now, the first ones first: those
    /// for which the new queue's ring has room for all that waits in it and in its old queues. From
    /// a ring that is nearly full one may go to one that is at most half full: it would never have
    /// less, as under a flood of senders without a window.
    pub(super) fn fits(&self, moves: impl Iterator<Item = (usize, usize)>) -> Vec<bool> {
        let moves: Vec<_> = moves.collect();
        let named: HashSet<usize> = moves.iter().flat_map(|&(from, to)| [from, to]).collect();
        let waiting = |(queue, gate): (usize, &Gate)| {
            if named.contains(&queue) { gate.waiting(self.processors) } else { 0 }
        };
        let waiting: Vec<u64> = self.gates.iter().enumerate().map(waiting).collect();
        let room = |(gate, waiting): (&Gate, &u64)| gate.most().saturating_sub(*waiting);
        let mut rooms: Vec<u64> = self.gates.iter().zip(&waiting).map(room).collect();
        let mut fitting = HashSet::new();
        let fits = |(from, to): (usize, usize)| {
            let (Some(room), Some(&more)) = (rooms.get_mut(to), waiting.get(from)) else {
                return true;
            };
            let most = self.gates.get(to).map_or(0, Gate::most);
            let relieves = more >= most && 2 * *room >= most;
            let fits = fitting.contains(&(from, to)) || more < *room || relieves;
            if fits && fitting.insert((from, to)) {
                *room = room.saturating_sub(more);
            }
            fits
        };
        moves.into_iter().map(fits).collect()
    }

    /// Whether the readers of old queues have passed these places.
    fn have_passed(&self, places: &Places) -> bool {
        let mut places = places.iter();
        places
            .all(|(queue, place)| self.gates.get(*queue).is_none_or(|gate| gate.has_passed(*place)))
    }

    fn filled_end(&self, queue: usize) -> u64 {
        self.gates.get(queue).map_or(0, |gate| gate.filled_end(self.processors))
    }

    /// Returns the outcome for each new queue, in the order in which the queues were held, once all
    /// moves are over.
    pub(super) fn outcomes(&self) -> Option<Vec<Outcome>> {
        let mut moves = lock(&self.moves);
        let outcomes = moves.iter().map(|moving| moving.outcome).collect::<Option<_>>()?;
        moves.clear();
        Some(outcomes)
    }
}

impl Move {
    fn advance(&mut self, fence: &Fence) {
        if self.outcome.is_some() {
            return;
        }
        let is_full = fence.gates.get(self.to).is_some_and(Gate::is_nearly_full);
        if is_full || Instant::now() >= self.deadline {
            return self.end(fence, true);
        }
        // A move without old queues has not begun.
        if self.from.is_empty() {
            return;
        }
        if self.grace && self.end.is_none() {
            self.end = self.note(fence);
        }
        if self.end.as_ref().is_some_and(|places| fence.have_passed(places)) {
            return self.end(fence, false);
        }
        if self.round.as_ref().is_some_and(|places| fence.have_passed(places)) {
            self.round = None;
            self.held.get_or_insert_with(|| self.stopped.elapsed());
            if let Some(gate) = fence.gates.get(self.to) {
                gate.open(Some(self.open_to));
            }
        }
        if self.round.is_none() {
            // First the place behind the frames of the new queue, then those of the old ones, in
            // the order that the module explains.
            self.open_to = fence.filled_end(self.to);
            self.round = self.note(fence);
        }
    }

    /// Notes the places behind the frames of the old queues. `None` if that must wait, because
    /// slots of an old queue are being given back.
    fn note(&self, fence: &Fence) -> Option<Places> {
        let is_releasing = |queue: &usize| fence.gates.get(*queue).is_some_and(Gate::is_releasing);
        if self.from.iter().any(is_releasing) {
            return None;
        }
        Some(self.from.iter().map(|&queue| (queue, fence.filled_end(queue))).collect())
    }

    fn end(&mut self, fence: &Fence, given_up: bool) {
        let held = *self.held.get_or_insert_with(|| self.stopped.elapsed());
        let held_frames = fence.filled_end(self.to).saturating_sub(self.taken);
        self.outcome = Some(Outcome { held_frames, held, given_up });
        if let Some(gate) = fence.gates.get(self.to) {
            gate.open(None);
        }
    }
}

#[cfg(test)]
mod tests;
