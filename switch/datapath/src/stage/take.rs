//! Take: how much a turn may take from its queue, and what the outcome says about the port.

use crate::port::view::Port;
use crate::turn::pressure::PAUSE;
use crate::turn::queue::OwnedQueue;
use crate::turn::slow::{self, Part, SlowPorts};
use crate::turn::{Carried, Turn};
use ports::{Burst, BurstLimit, Nanos, PortFault, lock};
use std::sync::atomic::Ordering;

/// How long a queue rests after its device was found down, and at most for its port's rate.
const REST: Nanos = Nanos(100_000_000);

/// How often a busy queue's device is asked what it lost.
const LOST_PERIOD: Nanos = Nanos(100_000_000);

impl Turn<'_> {
    /// Returns the burst limit of the queue; `None` if it has to wait for the end of its port's rest,
    /// for tokens of its port's rate or for room at its receiver, and rests until then.
    #[inline]
    pub(crate) fn burst_limit(
        &self,
        queue: &mut OwnedQueue,
        slow: &SlowPorts,
    ) -> Option<BurstLimit> {
        if let Some(until) = slow.end_of_rest(self.from.shared.id, self.now) {
            queue.resting_until = Some(until);
            queue.pressure.leave(self, None);
            return None;
        }
        let mut limit = queue.cost.limit();
        if let Some(rate) = &self.from.rate {
            let allowed = lock(rate).allowance(self.queue, self.from.shared.lost.len(), self.now);
            match allowed {
                Ok(bytes) => limit.bytes = limit.bytes.min(bytes),
                Err(wait) => {
                    // The rate may change, or the device fail, before a long debt is paid.
                    queue.resting_until = Some(self.now + wait.min(REST));
                    // The port sends nothing now: it must not hold others' shares of an uplink.
                    queue.pressure.leave(self, None);
                    return None;
                }
            }
        }
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

impl Turn<'_> {
    /// Returns the CPU time of a take that was slow for its work, and watches its port.
    #[inline]
    pub(crate) fn time_of_taking(&self, burst: &Burst<'_>, work: u64, slow: &mut SlowPorts) -> u64 {
        let (frames, bytes) = (burst.taken(), burst.bytes() as u64);
        let part = Part { work, frames, bytes };
        if !slow.measures(part, self.now) {
            return 0;
        }
        let Some(time) = part.excess(&self.stopwatch) else { return 0 };
        if burst.has_faulted() {
            slow.rest(self.from.shared.id, time, self.now);
        } else {
            slow.watch(self.from.shared.id, 0, self.now);
        }
        time
    }

    /// Returns what the port is charged for a turn that took so long. Alerts the worker if it worked
    /// for longer than anybody pays.
    #[inline]
    pub(crate) fn charge(&self, carried: &Carried, took: Nanos, slow_ports: &mut SlowPorts) -> u64 {
        let charge = slow::charge(carried, took);
        if charge.left_over && self.stopwatch.used_beyond(charge.known).is_some() {
            slow_ports.alert(self.now);
        }
        charge.total
    }

    /// Charges the port's rate for a burst.
    #[inline]
    pub(crate) fn pay_rate(&self, bytes: usize) {
        if let Some(rate) = &self.from.rate {
            lock(rate).pay(self.queue, bytes);
        }
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
            port.come_up();
        }
        if now >= self.next_count {
            self.next_count = now + LOST_PERIOD;
            if let Some(lost) = port.shared.lost.get(self.number) {
                lost.store(self.ingress.lost(), Ordering::Relaxed);
            }
        }
    }
}
