//! An ingress queue with its worker's state. It holds everything that one turn leaves for the next,
//! so that a queue can move to another worker between turns without leaving anything behind.

use crate::counters::Counter;
use crate::port::view::Port;
use crate::settings::PortId;
use crate::status::PortState;
use crate::turn::pressure::Pressure;
use crate::turn::work::Dearness;
use crate::worker::share::QUANTUM;
use crossbeam_utils::CachePadded;
use ports::{IngressQueue, Nanos, PortFault};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a queue rests after its device was found down.
const REST: Nanos = Nanos(100_000_000);

/// How often a busy queue's device is asked what it lost.
const LOST_PERIOD: Nanos = Nanos(100_000_000);

/// What an ingress queue's turns took. Written by the worker that owns the queue; giving it away
/// orders the writers.
#[derive(Default)]
pub(crate) struct QueueLoad {
    /// Nanoseconds of turns that took frames. In a stepped switch the [work](crate::turn::work) of these
    /// turns.
    pub(crate) busy: Counter,
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
}

/// An ingress queue with its place in the switch.
pub(crate) struct OwnedQueue {
    pub(crate) port: PortId,
    /// Its number at the port.
    pub(crate) number: usize,
    pub(crate) ingress: IngressQueue,
    /// Read by the control plane.
    pub(crate) load: Arc<CachePadded<QueueLoad>>,
    /// Rests until then: its device failed, or its receiver has no room.
    pub(crate) resting_until: Option<Nanos>,
    /// When to read the device's count of lost frames next: reading it may be a system call.
    pub(crate) next_count: Nanos,
    pub(crate) pressure: Pressure,
    /// Limits its bursts.
    pub(crate) dearness: Dearness,
    /// Its descriptor wakes the worker.
    pub(crate) watched: bool,
    /// On its way to another worker: the balance of the account it had. Else one quantum.
    pub(crate) balance: i64,
    /// When a worker last gave it away.
    pub(crate) given_at: Option<Nanos>,
}

impl OwnedQueue {
    pub(crate) fn new(
        port: PortId,
        number: usize,
        ingress: IngressQueue,
        load: Arc<CachePadded<QueueLoad>>,
    ) -> OwnedQueue {
        OwnedQueue {
            port,
            number,
            ingress,
            load,
            resting_until: None,
            next_count: Nanos::default(),
            pressure: Pressure::default(),
            dearness: Dearness::default(),
            watched: false,
            balance: QUANTUM,
            given_at: None,
        }
    }

    pub(crate) fn is_resting(&self, now: Nanos) -> bool {
        self.resting_until.is_some_and(|until| now < until)
    }

    /// Derives the port's state, and the queue's rest, from the outcome of a take.
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
