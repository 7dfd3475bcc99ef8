//! The commands of the control plane to a worker, and the state that both share.

use crate::counters::Counter;
use crate::flow::FlowTable;
use crate::port::view::View;
use crate::settings::PortId;
use crate::turn::queue::OwnedQueue;
use crate::worker::mailbox::Mailbox;
use crate::worker::wait::Waker;
use ports::Nanos;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU16;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

/// A command to a worker, which carries it out between turns and replies.
pub(crate) enum Command {
    /// Use this view from now on.
    View(Arc<View>, SyncSender<()>),
    /// Own these queues from now on. The reply is how long no worker polled the last of them.
    Own(Vec<OwnedQueue>, SyncSender<Nanos>),
    /// Give back the queues of these ports.
    GiveBack(Arc<BTreeSet<PortId>>, SyncSender<Vec<OwnedQueue>>),
    /// Give a port's queue of this number to another worker, which replies.
    Pass(PortId, usize, Arc<WorkerShared>, SyncSender<Nanos>),
    /// Add up flows in this table from now on, or in none, and give back the one before.
    Flows(Option<FlowTable>, SyncSender<Option<FlowTable>>),
    /// Liveness probe: reading it proves that the worker responds.
    Answer,
    /// End the thread.
    Stop,
}

/// The counters of a worker.
#[derive(Default)]
pub(crate) struct WorkerCounters {
    /// Rounds that took frames.
    pub(crate) busy_rounds: Counter,
    /// Rounds that took none.
    pub(crate) idle_rounds: Counter,
    /// Times the worker slept.
    pub(crate) sleeps: Counter,
    /// Frames taken.
    pub(crate) frames: Counter,
    /// Nanoseconds in turns that took frames, see
    /// [`QueueLoad::busy`](crate::turn::queue::QueueLoad::busy).
    pub(crate) busy: Counter,
    /// Nanoseconds for which it wanted to run and had no processor.
    pub(crate) waited: Counter,
}

/// A number that no port has.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// The part of a worker that the control plane and the other workers use.
pub(crate) struct WorkerShared {
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) counters: WorkerCounters,
    /// The port of the last turn, or [`NO_PORT`]. A worker that does not answer is busy with it.
    pub(crate) turn: AtomicU16,
    /// Set once the worker has a thread.
    pub(crate) waker: OnceLock<Waker>,
}

impl WorkerShared {
    /// Posts a command and wakes the worker's thread, if it has one.
    pub(crate) fn post(&self, command: Command) {
        self.mailbox.post(command);
        self.waker.get().into_iter().for_each(Waker::wake);
    }
}
