//! A worker: one thread, and the ingress queues that it owns.
//!
//! [`Worker::run`] carries out the commands of the control plane (worker/queues.rs), then runs a
//! round (worker/round.rs), in which each queue has one turn (stage.rs). An empty round may end in
//! sleep (worker/wait.rs).

pub(crate) mod command;
pub(crate) mod handle;
mod kernel_time;
pub(crate) mod mailbox;
mod queues;
mod round;
pub(crate) mod share;
pub(crate) mod wait;

use crate::port::macs::MacTable;
use crate::port::view::{Owners, View};
use crate::stage::Scratch;
use crate::turn::queue::OwnedQueue;
use crate::worker::command::WorkerShared;
use crate::worker::kernel_time::KernelTime;
use crate::worker::share::{Account, Place};
use crate::worker::wait::Waiter;
use ports::Clock;
use std::sync::Arc;

/// One thread of the switch, and the queues it polls.
pub(crate) struct Worker {
    pub(crate) index: usize,
    shared: Arc<WorkerShared>,
    macs: Arc<MacTable>,
    view: Arc<View>,
    owners: Owners,
    /// [`MacTable::owners_version`] when `owners` was read.
    owners_version: u64,
    queues: Vec<OwnedQueue>,
    accounts: Vec<Account>,
    /// Where the next round begins.
    place: Place,
    scratch: Scratch,
    kernel_time: KernelTime,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<WorkerShared>, macs: Arc<MacTable>) -> Worker {
        let scratch = Scratch::new(index);
        let (view, owners, queues, accounts) = Default::default();
        Worker {
            index,
            shared,
            macs,
            view,
            owners,
            owners_version: 0,
            queues,
            accounts,
            place: Place::START,
            scratch,
            kernel_time: KernelTime::still(),
        }
    }

    /// Polls until it reads [`Command::Stop`](command::Command::Stop).
    pub(crate) fn run(mut self, mut waiter: Waiter) {
        let mut now = waiter.now();
        self.kernel_time = KernelTime::new(Clock::KERNEL, now);
        loop {
            if self.shared.mailbox.is_waiting() {
                if !self.read_commands(Some(&waiter)) {
                    self.scratch.deliverer.flush(&self.view, self.index, waiter.now());
                    return;
                }
                now = waiter.now();
            }
            let (taken, end) = self.round(now, |_| waiter.now());
            let counters = &self.shared.counters;
            if taken > 0 {
                counters.busy_rounds.add(1);
                counters.frames.add(taken as u64);
                waiter.busy(now, taken);
                now = end;
            } else {
                counters.idle_rounds.add(1);
                let shared = &self.shared;
                let next_look = self.scratch.deliverer.next_look();
                if waiter.idle(&mut self.queues, (now, next_look), || shared.mailbox.is_waiting()) {
                    counters.sleeps.add(1);
                    self.kernel_time.has_slept();
                }
                now = waiter.now();
            }
        }
    }
}
