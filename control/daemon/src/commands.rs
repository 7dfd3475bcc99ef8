//! The thread that owns the running switch. Handlers, the poll and signals send it commands.
//!
//! A command is a closure that gets the switch, and its result goes back to the sender. Commands
//! run one at a time, in the order in which they were sent. There are two kinds:
//!
//! - [`run`](Commands::run) is for what is done at once: reads, the poll, a capture's start.
//! - [`change`](Commands::change) is for what may carry out a plan. A plan of a thousand ports
//!   takes a minute, so between two of its steps, and while their devices wait for the kernel, the
//!   thread runs the short commands that wait. A
//!   second change waits until the first one has ended, and reads the configuration only then: two
//!   changes at the same time never lose one another's update.
//!
//! A plan calls [`Running::at_each_step`]'s closure between steps, with the switch. So a change is
//! ordinary code from top to bottom, and needs no state of its own for the middle of a plan. The
//! alternative, a state machine that returns to the thread's loop after each step, would have had
//! to keep what a change does after its plan: a port that cannot be opened is removed again, a
//! changed port returns to its previous settings.
//!
//! What the short commands between two steps find is described in `running::enforce`.
//!
//! A command whose client has disconnected is carried out all the same.

use crate::actor;
use crate::running::Running;
use problem::Problem;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Why a command was not carried out: the daemon is stopping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

impl From<Ended> for Problem {
    fn from(_: Ended) -> Problem {
        Problem::new("the daemon is stopping")
            .wanted("a daemon that runs")
            .remedy("repeat the request when the daemon runs again")
    }
}

/// The way to the thread. Clones lead to the same one.
#[derive(Clone)]
pub(crate) struct Commands(Arc<Queue>);

/// The thread. Dropping it ends the thread and waits for that; the switch is dropped with it.
pub(crate) struct Owner {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Signalled when a command or the end has come.
    news: Condvar,
}

/// What the thread does next.
#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    /// Whether further changes are refused.
    refuses_changes: bool,
    /// Whether the thread ends, so that nothing is carried out any more.
    has_ended: bool,
}

struct Command {
    /// Whether it may carry out a plan.
    is_change: bool,
    work: Box<dyn FnOnce(&mut Running) + Send>,
}

impl Owner {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has no room for a thread.
    pub(crate) fn start(mut running: Running) -> Result<(Owner, Commands), Problem> {
        let queue = Arc::<Queue>::default();
        let (of_thread, of_plan) = (Arc::clone(&queue), Arc::clone(&queue));
        running.at_each_step(Box::new(move |running| of_plan.run_short(running)));
        let thread = std::thread::Builder::new()
            .name("switch".into())
            .spawn(move || of_thread.run_all(&mut running))
            .map_err(|error| {
                Problem::new("the thread that owns the switch cannot be started").seen(error)
            })?;
        let commands = Commands(Arc::clone(&queue));
        Ok((Owner { queue, thread: Some(thread) }, commands))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.queue.end();
        // A panic has been reported by the thread.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Commands {
    /// Sends a short command. It is queued when this returns; the future waits for its result.
    ///
    /// # Errors
    ///
    /// If the thread has ended.
    pub(crate) fn run<T, W>(&self, work: W) -> impl Future<Output = Result<T, Ended>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Running) -> T + Send + 'static,
    {
        self.send(false, work)
    }

    /// Sends a command that may carry out a plan. It is queued when this returns; the future waits
    /// for its result.
    ///
    /// # Errors
    ///
    /// If the daemon is stopping.
    pub(crate) fn change<T, W>(&self, work: W) -> impl Future<Output = Result<T, Ended>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Running) -> T + Send + 'static,
    {
        self.send(true, work)
    }

    /// Refuses further changes, and drops those that have not begun. The future waits until no plan
    /// is in work.
    pub(crate) fn finish_changes(&self) -> impl Future<Output = ()> + use<> {
        let (done, has_finished) = oneshot::channel();
        let work = Box::new(move |_: &mut Running| {
            // The daemon may have stopped waiting.
            let _ = done.send(());
        });
        {
            let mut waiting = self.0.lock();
            waiting.commands.retain(|command| !command.is_change);
            // As a change it waits for the plan in work.
            waiting.commands.push_back(Command { is_change: true, work });
            waiting.refuses_changes = true;
        }
        self.0.news.notify_one();
        // Without its thread there is no plan either.
        async move { drop(has_finished.await) }
    }

    fn send<T, W>(
        &self,
        is_change: bool,
        work: W,
    ) -> impl Future<Output = Result<T, Ended>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Running) -> T + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let client = actor::current();
        let work = move |running: &mut Running| {
            let result = actor::acting_now(client, || work(running));
            // Its sender may have given up.
            let _ = done.send(result);
        };
        self.0.push(Command { is_change, work: Box::new(work) });
        async move { result.await.map_err(|_| Ended) }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command, or drops it, by which its sender learns that it is refused.
    fn push(&self, command: Command) {
        let mut waiting = self.lock();
        let is_refused = waiting.has_ended || command.is_change && waiting.refuses_changes;
        if !is_refused {
            waiting.commands.push_back(command);
            self.news.notify_one();
        }
    }

    /// Carries out commands until the end.
    fn run_all(&self, running: &mut Running) {
        let _ended = EndsWithThread(self);
        while let Some(command) = self.next() {
            (command.work)(running);
        }
    }

    /// Waits for the next command; `None` at the end.
    fn next(&self) -> Option<Command> {
        let is_idle = |waiting: &mut Waiting| !waiting.has_ended && waiting.commands.is_empty();
        let waiting = self.news.wait_while(self.lock(), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.has_ended { None } else { waiting.commands.pop_front() }
    }

    /// Carries out the short commands that wait now, and leaves the changes. What comes meanwhile
    /// waits for the next step, so that reads without pause do not stop a plan.
    fn run_short(&self, running: &mut Running) {
        let short: Vec<Command> = {
            let mut waiting = self.lock();
            let all = std::mem::take(&mut waiting.commands);
            let (changes, short) = all.into_iter().partition(|command| command.is_change);
            waiting.commands = changes;
            Vec::from(short as VecDeque<Command>)
        };
        for command in short {
            (command.work)(running);
        }
    }

    fn end(&self) {
        let dropped = {
            let mut waiting = self.lock();
            waiting.has_ended = true;
            std::mem::take(&mut waiting.commands)
        };
        self.news.notify_one();
        drop(dropped);
    }
}

/// Drops the waiting commands when the thread ends, also by a panic: no sender waits for ever.
struct EndsWithThread<'q>(&'q Queue);

impl Drop for EndsWithThread<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use std::sync::mpsc;
    use std::time::Instant;
    use test_devices::MemoryDevices;

    fn start() -> (Owner, Commands) {
        let config = Config::from_toml("t", "[[port]]\nname='a'\ntap='t'").unwrap();
        let running = Running::start(config, Box::<MemoryDevices>::default(), Instant::now());
        Owner::start(running.unwrap()).unwrap()
    }

    fn wait<T>(command: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(command)
    }

    /// What the thread does next is decided by the test: it waits in a command until told to go on.
    #[test]
    fn between_two_steps_short_commands_are_carried_out_and_changes_wait() {
        let (_owner, commands) = start();
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let done = Arc::clone(&done);
            move || done.lock().unwrap().push(what)
        };
        let (go, goes) = mpsc::channel::<()>();
        let (first, second) = (note("change, step 1"), note("change, step 2"));
        let change = commands.change(move |running| {
            first();
            goes.recv().unwrap();
            running.pause();
            second();
        });
        let other = note("other change");
        let other = commands.change(move |_| other());
        let read = note("read");
        let read = commands.run(move |_| read());
        go.send(()).unwrap();
        let all = async { (change.await.is_ok(), other.await.is_ok(), read.await.is_ok()) };
        assert_eq!(wait(all), (true, true, true));
        let wanted = ["change, step 1", "read", "change, step 2", "other change"];
        assert_eq!(*done.lock().unwrap(), wanted);
    }

    #[test]
    fn a_command_acts_for_the_client_that_sent_it() {
        let (_owner, commands) = start();
        let send = async || commands.run(|_| actor::current()).await.unwrap();
        let told = async { (actor::acting("user 7".to_owned(), send()).await, send().await) };
        assert_eq!(wait(told), ("user 7".to_owned(), "the file".to_owned()));
    }

    #[test]
    fn at_the_end_changes_are_refused_first_and_then_everything_and_no_sender_waits_for_ever() {
        let (owner, commands) = start();
        let (go, goes) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel::<()>();
        let in_work = commands.change(move |_| {
            began.send(()).unwrap();
            goes.recv().unwrap();
        });
        begins.recv().unwrap();
        let begun = commands.run(|_| ());
        let waits = commands.change(|_| ());
        let finished = commands.finish_changes();
        let late = commands.change(|_| ());
        assert!(wait(late).is_err());
        go.send(()).unwrap();
        let all = async { (in_work.await.is_ok(), begun.await.is_ok(), finished.await) };
        assert_eq!(wait(all), (true, true, ()));
        assert!(wait(waits).is_err());
        assert!(wait(commands.run(|_| ())).is_ok(), "reads are answered until the end");
        drop(owner);
        assert!(wait(commands.run(|_| ())).is_err());
    }
}
