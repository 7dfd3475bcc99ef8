//! A round of a worker: one turn for each of its queues that may have one.

use crate::turn::{Turn, work};
use crate::worker::{Worker, share};
use ports::Nanos;
use std::sync::atomic::Ordering;

/// Work of looks at empty queues after which a stopwatch is started anew: their time is no queue's.
const STALE: u64 = 40 * work::OF_LOOK;

impl Worker {
    /// Runs one turn for each queue that is neither resting nor in debt, see [`share::round`].
    /// Returns the frames taken and the clock after the last turn that took any.
    ///
    /// `clock` is read after each turn that took frames, and is told the work since it was last
    /// read.
    pub(crate) fn round(&mut self, now: Nanos, clock: impl Fn(u64) -> Nanos) -> (usize, Nanos) {
        let version = self.macs.owners_version();
        if version != self.owners_version {
            self.owners_version = version;
            self.owners.read(&self.view);
        }
        let watch = self.kernel_time.watch(now);
        let Worker { index, shared, macs, view, owners, queues, accounts, scratch, .. } = self;
        let (mut end, mut looks, mut busy) = (now, 0, 0);
        if scratch.deliverer.paces() {
            // The senders' turns have paid for it.
            (scratch.deliverer.stopwatch, scratch.deliverer.sender) = (watch.since(now), None);
            end = clock(scratch.deliverer.release(view, *index, now));
        }
        let (mut stopwatch, mut stale) = (watch.since(end), 0);
        let (taken, rounds) = share::round(accounts, queues, |queue| match view.port(queue.port) {
            Some(from) if !queue.is_resting(now) => {
                let number = queue.number;
                shared.turn.store(queue.port.0, Ordering::Relaxed);
                if stale >= STALE {
                    (stopwatch, stale) = (stopwatch.restarted(), 0);
                }
                let turn = Turn {
                    worker: *index,
                    view,
                    macs,
                    owners,
                    from,
                    queue: number,
                    now,
                    stopwatch,
                };
                let carried = turn.carry_out(queue, scratch);
                if carried.taken == 0 {
                    (looks, stale) = (looks + work::OF_LOOK, stale + work::OF_LOOK);
                    return (0, work::OF_LOOK);
                }
                // The looks at empty queues since the last such turn are not charged to this queue.
                let looked = Nanos(std::mem::take(&mut looks));
                let start = std::mem::replace(&mut end, clock(looked.0 + carried.work));
                let took = end.since(start).since(looked);
                queue.load.busy.add(took.0);
                busy += took.0;
                let charge = turn.charge(&carried, took, &mut scratch.deliverer.slow);
                let excess = charge.saturating_sub(carried.work + carried.later);
                scratch.floods.end_turn(queue.port, excess);
                (stopwatch, stale) = (watch.since(end), 0);
                (carried.taken, charge)
            }
            _ => (0, 0),
        });
        scratch.deliverer.slow.pass(rounds, taken == 0, now);
        shared.counters.busy.add(busy);
        (taken, end)
    }
}
