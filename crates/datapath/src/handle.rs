//! The control plane's end of a worker, which has a thread of its own or is stepped by the caller.

use crate::macs::MacTable;
use crate::mailbox::Mailbox;
use crate::options::Wait;
use crate::wait::{Waiter, Waker};
use crate::worker::{Letter, Worker, WorkerCounters, WorkerShared};
use ports::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A worker, on a thread of its own or stepped.
pub(crate) struct Handle {
    pub(crate) shared: Arc<WorkerShared>,
    runs: Runs,
}

enum Runs {
    /// On a thread.
    Thread { waker: Waker, thread: Option<JoinHandle<()>> },
    /// Only when [`Switch::step`] is called.
    Stepped(Box<Worker>),
}

impl Handle {
    /// A worker without a thread, for [`Switch::step`].
    pub(crate) fn stepped(index: usize, macs: Arc<MacTable>) -> Handle {
        let counters = WorkerCounters::default();
        let shared = Arc::new(WorkerShared { mailbox: Mailbox::new(), counters });
        let worker = Worker::new(index, shared.clone(), macs);
        Handle { shared, runs: Runs::Stepped(Box::new(worker)) }
    }

    /// Gives the worker a thread, pinned to `cpu` if that is given.
    pub(crate) fn start(
        self,
        cpu: Option<usize>,
        wait: Wait,
        start: Instant,
    ) -> io::Result<Handle> {
        let Runs::Stepped(worker) = self.runs else { return Ok(self) };
        let waiter = Waiter::new(wait, start)?;
        let waker = waiter.waker();
        let (pinned, is_pinned) = sync_channel(1);
        let name = format!("worker-{}", worker.index);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let result = cpu.map_or(Ok(()), pin);
            let go = result.is_ok();
            let _ = pinned.send(result);
            if go {
                worker.run(waiter);
            }
        })?;
        is_pinned.recv().map_err(io::Error::other)??;
        Ok(Handle { shared: self.shared, runs: Runs::Thread { waker, thread: Some(thread) } })
    }

    /// One round of a worker without a thread; the frames taken.
    pub(crate) fn step(&mut self, now: Nanos) -> usize {
        match &mut self.runs {
            Runs::Stepped(worker) => worker.round(now),
            Runs::Thread { .. } => 0,
        }
    }

    /// Waits for the end of a worker that was sent [`Letter::Stop`].
    pub(crate) fn join(&mut self) {
        if let Runs::Thread { thread, .. } = &mut self.runs
            && let Some(thread) = thread.take()
        {
            let _ = thread.join();
        }
    }

    /// Posts a letter and wakes the worker; a worker without a thread reads it at once.
    pub(crate) fn post(&mut self, letter: Letter) {
        self.shared.mailbox.post(letter);
        match &mut self.runs {
            Runs::Thread { waker, .. } => waker.wake(),
            Runs::Stepped(worker) => {
                worker.read_mail(None);
            }
        }
    }
}

/// Binds the calling thread to one core.
fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
