//! What the stages of a turn share: the turn itself, and the delivery of one of its lists.

pub(crate) mod floods;
pub(crate) mod guests;
pub(crate) mod outbox;
pub(crate) mod pressure;
pub(crate) mod queue;
pub(crate) mod slow;
pub(crate) mod waits;
pub(crate) mod work;

use crate::counters::{DropReason, PortCell, count_drop};
use crate::flow::watch::{Watch, Way};
use crate::frame::Frame;
use crate::frame::parts::Parts;
use crate::port::macs::MacTable;
use crate::port::view::{Owners, Port, View};
use crate::port::weights::Weights;
use crate::settings::{PortId, PortRole};
use crate::turn::outbox::Target;
use ports::{Burst, Locked, Nanos, Offloads, Stopwatch, lock};

/// The context of one turn, which its stages read.
pub(crate) struct Turn<'t> {
    /// The place of the worker, and of its counters.
    pub(crate) worker: usize,
    pub(crate) view: &'t View,
    pub(crate) macs: &'t MacTable,
    pub(crate) owners: &'t Owners,
    /// The port the burst came from.
    pub(crate) from: &'t Port,
    /// The number of its queue there.
    pub(crate) queue: usize,
    pub(crate) now: Nanos,
    /// The time since the turn began.
    pub(crate) stopwatch: Stopwatch,
}

/// The outcome of a turn.
#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) taken: usize,
    pub(crate) work: u64,
    /// Work that is left to a later turn.
    pub(crate) later: u64,
    /// CPU time of a slow take, and of slow deliveries, beyond their work that the sender pays.
    pub(crate) taking: u64,
    /// CPU time of slow deliveries beyond their work that the receivers pay.
    pub(crate) receivers: u64,
}

impl Turn<'_> {
    /// Returns the way of frames that go no further than this port.
    pub(crate) fn way_in(&self) -> Way<'_> {
        let (from, vlan) = (Some(self.from.shared.id), &self.from.settings.vlan);
        Way { from, to: None, vlan }
    }

    /// Returns the senders to an egress queue, if they share it by weights.
    pub(crate) fn weights<'p>(&self, to: &'p Port, at: Target) -> Option<Locked<'p, Weights>> {
        let is_shared = to.is_weighted && self.from.settings.role == PortRole::Vnic;
        to.shared.weights.get(at.queue).filter(|_| is_shared).map(lock)
    }

    /// Returns the burst's port, and the number of its queue.
    pub(crate) fn place(&self) -> (PortId, usize) {
        (self.from.shared.id, self.queue)
    }
}

/// The delivery of one list of frames to one egress queue: what its stages (filter, coalesce, fit,
/// deliver) read, and the parts that they add to.
pub(crate) struct Delivery<'t, 'q> {
    pub(crate) from: &'t Port,
    pub(crate) to: &'t Port,
    /// The egress queue's number at `to`.
    pub(crate) queue: usize,
    pub(crate) now: Nanos,
    pub(crate) burst: &'t Burst<'q>,
    /// The frames of the burst.
    pub(crate) frames: &'t [Frame],
    pub(crate) parts: &'t mut Parts<'q>,
    /// What this worker counts at `to`.
    pub(crate) cell: &'t PortCell,
    /// What this worker counts at `from`.
    pub(crate) from_cell: &'t PortCell,
    /// The offloads that `to` accepts, read once so that the whole list is made for the same ones.
    pub(crate) offloads: Offloads,
}

impl<'t> Delivery<'t, '_> {
    pub(crate) fn exit(&self) -> Exit<'t> {
        Exit { to: self.to, queue: self.queue, now: self.now, cell: self.cell }
    }

    /// Counts a frame that the port does not get, and shows it to the look at flows.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self, frame: &Frame, reason: DropReason, flows: &mut Watch) {
        count_drop(self.cell, reason, 1);
        let dropped = frame.dropped(&self.parts.headers, reason);
        flows.drop_one(dropped, self.way_in(), self.now);
    }

    /// Returns the way of frames as they came in.
    pub(crate) fn way_in(&self) -> Way<'t> {
        Way { vlan: &self.from.settings.vlan, ..self.way_out() }
    }

    /// Returns the way of frames as they leave.
    pub(crate) fn way_out(&self) -> Way<'t> {
        let Delivery { from, to, .. } = self;
        let (from, vlan) = (Some(from.shared.id), &to.settings.vlan);
        Way { from, to: Some(to.shared.id), vlan }
    }
}

/// Where frames leave: an egress queue at this time, and what this worker counts there.
#[derive(Clone, Copy)]
pub(crate) struct Exit<'t> {
    pub(crate) to: &'t Port,
    /// The egress queue's number at `to`.
    pub(crate) queue: usize,
    pub(crate) now: Nanos,
    pub(crate) cell: &'t PortCell,
}

/// What an egress queue took of the list it was given.
#[derive(Clone, Copy, Default)]
pub(crate) struct Delivered {
    pub(crate) frames: usize,
    pub(crate) bytes: u64,
}
