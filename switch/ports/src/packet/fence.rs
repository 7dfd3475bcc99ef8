//! Keeps order when flows move from one queue of a group to another: frames that the old queue
//! still holds must not be overtaken.
//!
//! 1. The reader of the new queue stops ([`Fence::hold`]).
//! 2. The entry is stored; from now on frames come to the new queue.
//! 3. Each round notes the place behind the new queue's frames, and then the place behind each old
//!    queue's frames. Once the old queues' readers have delivered up to their places, the new
//!    queue's reader may take up to its own.
//! 4. The first round that begins a grace period after the store is the last.
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
//! **Moves to several queues at once** share the grace period; each has its own old queues and its
//! own rounds. No queue may be an old one of one move and a new one of another
//! ([`batches`](super::batch::batches)): two such queues could wait for each other until the
//! deadline.

use super::gate::Gate;
use crate::lock;
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
    /// Whether the deadline came first: then the new queue may have overtaken frames of the old
    /// ones.
    pub(super) given_up: bool,
}

struct Move {
    to: usize,
    /// When the new queue stops waiting.
    deadline: Instant,
    /// For each old queue, the place that its reader has to pass in this round.
    from: Vec<(usize, u64)>,
    /// Whether the places of this round are noted.
    noted: bool,
    /// Place up to which the new queue may be read after this round.
    open_to: u64,
    /// Whether a grace period has passed since the last store of the batch.
    grace: bool,
    /// The value of `grace` when the round began.
    last: bool,
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
            noted: false,
            open_to: 0,
            grace: false,
            last: false,
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
            moving.from = from.iter().map(|&queue| (queue, 0)).collect();
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
        let is_over = self.outcome.is_some();
        if !is_over && Instant::now() >= self.deadline {
            return self.end(fence, true);
        }
        // A move without old queues has not begun.
        if is_over || self.from.is_empty() || self.noted && !self.has_passed(fence) {
            return;
        }
        if self.noted {
            self.held.get_or_insert_with(|| self.stopped.elapsed());
            if self.last {
                return self.end(fence, false);
            }
            if let Some(gate) = fence.gates.get(self.to) {
                gate.open(Some(self.open_to));
            }
        }
        self.noted = self.note(fence);
    }

    /// Whether the readers of the old queues have passed their places.
    fn has_passed(&self, fence: &Fence) -> bool {
        let mut from = self.from.iter();
        from.all(|(queue, place)| {
            fence.gates.get(*queue).is_none_or(|gate| gate.has_passed(*place))
        })
    }

    /// Begins a round: notes first the place behind the frames of the new queue, then those of the
    /// old ones, in the order that the module explains. Returns `false` if that must wait, because
    /// slots of an old queue are being given back.
    fn note(&mut self, fence: &Fence) -> bool {
        self.last = self.grace;
        self.open_to = fence.filled_end(self.to);
        let is_releasing =
            |(queue, _): &(usize, u64)| fence.gates.get(*queue).is_some_and(Gate::is_releasing);
        if self.from.iter().any(is_releasing) {
            return false;
        }
        self.from.iter_mut().for_each(|(queue, place)| *place = fence.filled_end(*queue));
        true
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
