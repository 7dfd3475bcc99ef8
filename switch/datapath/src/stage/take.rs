//! Take: how much a turn may take from its queue, and what the outcome says about the port.

use crate::port::view::Port;
use crate::status::PortState;
use crate::turn::Turn;
use crate::turn::pressure::PAUSE;
use crate::turn::queue::OwnedQueue;
use ports::{BurstLimit, Nanos, PortFault};
use std::sync::atomic::Ordering;

/// How long a queue rests after its device was found down.
const REST: Nanos = Nanos(100_000_000);

/// How often a busy queue's device is asked what it lost.
const LOST_PERIOD: Nanos = Nanos(100_000_000);

impl Turn<'_> {
    /// Returns the burst limit of the queue; `None` if it has to wait for room at its receiver, and
    /// rests until then.
    #[inline]
    pub(crate) fn burst_limit(&self, queue: &mut OwnedQueue) -> Option<BurstLimit> {
        let limit = queue.cost.limit();
        if !self.from.waits {
            return Some(limit);
        }
        let Some(room) = queue.pressure.allowance(self) else {
            queue.resting_until = Some(self.now + PAUSE);
            return None;
        };
        Some(room.min(limit))
    }
}

impl OwnedQueue {
    /// Derives the port's state and the queue's rest from the outcome of a take.
    #[inline]
    pub(crate) fn note(
        &mut self,
        port: &Port,
        fault: Option<&PortFault>,
        now: Nanos,
        taken: usize,
    ) {
        let Some(fault) = fault else {
            // A device may report only once that it is down, so an empty take does not mean that it
            // is up again.
            self.resting_until = None;
            if taken > 0 {
                self.note_taken(port, now);
            }
            return;
        };
        port.shared.note_fault(fault);
        let forever = !matches!(fault, PortFault::Down);
        self.resting_until = Some(if forever { Nanos(u64::MAX) } else { now + REST });
    }

    #[inline]
    fn note_taken(&mut self, port: &Port, now: Nanos) {
        if !port.shared.state.is_up() {
            port.shared.set_state(PortState::Up);
        }
        if now >= self.next_count {
            self.next_count = now + LOST_PERIOD;
            if let Some(lost) = port.shared.lost.get(self.number) {
                lost.store(self.ingress.lost(), Ordering::Relaxed);
            }
        }
    }
}
