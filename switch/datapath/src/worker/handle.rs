//! The control plane's end of a worker, which has its own thread or is stepped by the caller.

use crate::options::Wait;
use crate::port::macs::MacTable;
use crate::worker::Worker;
use crate::worker::command::{Command, NO_PORT, WorkerCounters, WorkerShared};
use crate::worker::mailbox::Mailbox;
use crate::worker::wait::Waiter;
use ports::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::cell::Cell;
use std::io;
use std::sync::atomic::AtomicU16;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a worker's answer may take. A turn takes milliseconds; a host that has no core for a
/// worker in all this time does not serve its ports either.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A worker, on a thread of its own or stepped.
pub(crate) struct Handle {
    pub(crate) shared: Arc<WorkerShared>,
    /// `None`: the thread has it.
    stepped: Option<Box<Worker>>,
    thread: Option<Thread>,
    /// Whether it has not read its commands in time.
    pub(crate) hangs: bool,
    /// When it had read all commands, as far as is known.
    read: Instant,
}

struct Thread {
    handle: JoinHandle<()>,
    /// Disconnected once the worker has ended.
    ended: Receiver<io::Result<()>>,
}

impl Handle {
    /// Makes a worker without a thread, for [`crate::Switch::step`].
    pub(crate) fn stepped(index: usize, macs: Arc<MacTable>) -> Handle {
        let counters = WorkerCounters::default();
        let (mailbox, waker) = (Mailbox::new(), OnceLock::new());
        let turn = AtomicU16::new(NO_PORT);
        let shared = Arc::new(WorkerShared { mailbox, counters, turn, waker });
        let worker = Worker::new(index, shared.clone(), macs);
        Handle {
            shared,
            stepped: Some(Box::new(worker)),
            thread: None,
            hangs: false,
            read: Instant::now(),
        }
    }

    /// Gives the worker a thread, pinned to `cpu` if that is given.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started or pinned.
    pub(crate) fn start(
        mut self,
        cpu: Option<usize>,
        wait: Wait,
        start: Instant,
    ) -> io::Result<Handle> {
        let Some(worker) = self.stepped.take() else { return Ok(self) };
        let waiter = Waiter::new(wait, start)?;
        let _ = self.shared.waker.set(waiter.waker());
        let (pinned, is_pinned) = sync_channel(1);
        let name = format!("worker-{}", worker.index);
        let handle = thread::Builder::new().name(name).spawn(move || {
            let result = cpu.map_or(Ok(()), pin);
            let go = result.is_ok();
            let _ = pinned.send(result);
            if go {
                worker.run(waiter);
            }
        })?;
        is_pinned.recv().map_err(io::Error::other)??;
        self.thread = Some(Thread { handle, ended: is_pinned });
        Ok(self)
    }

    /// Returns a worker without a thread.
    #[cfg(test)]
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.stepped.as_mut().expect("a stepped worker")
    }

    /// Runs one round of a worker without a thread. Returns the frames taken.
    pub(crate) fn step(&mut self, now: Nanos) -> usize {
        let Some(worker) = &mut self.stepped else { return 0 };
        let spent = Cell::new(now);
        let clock = |work| {
            spent.set(spent.get() + Nanos(work));
            spent.get()
        };
        worker.round(now, clock).0
    }

    /// Waits for the end of a worker that was sent [`Command::Stop`], and returns whether it has
    /// ended. A thread that hangs is left to the end of the process; it may still use its queues.
    pub(crate) fn join(&mut self) -> bool {
        let Some(Thread { handle, ended }) = self.thread.take() else { return true };
        let ended = ended.recv_timeout(self.time_left(Instant::now())).err();
        let has_ended = ended != Some(RecvTimeoutError::Timeout);
        has_ended.then(|| handle.join()).is_some()
    }

    /// Returns how long to wait for an answer to what was asked at this time.
    pub(crate) fn time_left(&self, asked: Instant) -> Duration {
        if self.hangs { Duration::ZERO } else { ANSWER_TIMEOUT.saturating_sub(asked.elapsed()) }
    }

    /// Returns whether commands wait for the worker.
    pub(crate) fn has_unread(&self) -> bool {
        self.shared.mailbox.is_waiting()
    }

    /// Returns whether commands have waited for too long. If none wait, posts one for the next
    /// call.
    pub(crate) fn is_late(&mut self, now: Instant) -> bool {
        if !self.has_unread() {
            self.read = now;
            self.post(Command::Answer);
        }
        now.duration_since(self.read) >= ANSWER_TIMEOUT
    }

    /// Posts a command and wakes the worker; a worker without a thread carries it out at once.
    pub(crate) fn post(&mut self, command: Command) {
        self.shared.post(command);
        self.read_commands();
    }

    /// Lets a worker without a thread carry out what other workers have posted.
    pub(crate) fn read_commands(&mut self) {
        if let Some(worker) = &mut self.stepped {
            worker.read_commands(None);
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
