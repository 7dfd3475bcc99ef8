//! An ingress queue with everything that one of its turns leaves for the next. So a queue can move
//! to another worker between turns without leaving anything behind.

use crate::counters::Counter;
use crate::settings::PortId;
use crate::turn::pressure::Pressure;
use crate::turn::waits::WaitCells;
use crate::turn::work::{CostEstimate, QUANTUM};
use crossbeam_utils::CachePadded;
use ports::{IngressQueue, Nanos};
use std::sync::Arc;

/// What an ingress queue's turns took. The worker that owns the queue writes it; giving the queue
/// away orders the writers.
#[derive(Default)]
pub(crate) struct QueueLoad {
    /// Nanoseconds of turns that took frames. In a stepped switch the [work](crate::turn::work) of
    /// these turns.
    pub(crate) busy: Counter,
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
    pub(crate) waits: WaitCells,
}

/// Whether a queue's descriptor is among those that a worker sleeps over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It is not.
    None,
    /// It is, and wakes the worker.
    On,
    /// It is, and does not wake the worker.
    Muted,
}

/// An ingress queue with its place in the switch.
pub(crate) struct OwnedQueue {
    pub(crate) port: PortId,
    /// Its number at the port.
    pub(crate) number: usize,
    pub(crate) ingress: IngressQueue,
    /// Read by the control plane.
    pub(crate) load: Arc<CachePadded<QueueLoad>>,
    /// The end of the queue's rest. It rests if its device failed, its port is above its rate, or
    /// its receiver has no room.
    pub(crate) resting_until: Option<Nanos>,
    /// When to read the device's count of lost frames next; reading it may be a system call.
    pub(crate) next_count: Nanos,
    pub(crate) pressure: Pressure,
    /// Limits its bursts.
    pub(crate) cost: CostEstimate,
    /// Whether its descriptor wakes the worker.
    pub(crate) watch: Watch,
    /// The balance of its account while it is on its way to another worker, else one quantum.
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
            cost: CostEstimate::default(),
            watch: Watch::None,
            balance: QUANTUM,
            given_at: None,
        }
    }

    pub(crate) fn is_resting(&self, now: Nanos) -> bool {
        self.resting_until.is_some_and(|until| now < until)
    }
}
