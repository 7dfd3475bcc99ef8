//! Commands from the control plane to a worker, which reads them between turns.
//!
//! A worker reads one flag after each turn. The control plane sets it when it posts a command, and then
//! wakes the worker. A command that must be acknowledged carries a reply channel.

#[cfg(loom)]
use loom::sync::{Mutex, atomic::AtomicBool, atomic::Ordering};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, atomic::AtomicBool, atomic::Ordering};

/// Commands for one worker.
pub(crate) struct Mailbox<Command> {
    waiting: AtomicBool,
    commands: Mutex<Vec<Command>>,
}

impl<Command> Mailbox<Command> {
    pub(crate) fn new() -> Mailbox<Command> {
        Mailbox { waiting: AtomicBool::new(false), commands: Mutex::new(Vec::new()) }
    }

    /// Adds a command. The caller wakes the worker afterwards.
    pub(crate) fn post(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        // Pairs with the swap in `collect`: a worker that sees the flag finds the command.
        self.waiting.store(true, Ordering::Release);
    }

    /// Whether a command is pending. A worker calls this after arming its wake-up, before it
    /// sleeps.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes all commands, oldest first.
    pub(crate) fn collect(&self) -> Vec<Command> {
        // Cleared before the list is emptied: a command posted after that sets it again.
        self.waiting.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::worker::mailbox::Mailbox;

    #[test]
    fn commands_come_in_order_and_once() {
        let mailbox = Mailbox::new();
        assert!(!mailbox.is_waiting());
        mailbox.post(1);
        mailbox.post(2);
        assert!(mailbox.is_waiting());
        assert_eq!(mailbox.collect(), [1, 2]);
        assert!(!mailbox.is_waiting());
        assert!(mailbox.collect().is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use crate::worker::mailbox::Mailbox;
    use loom::cell::Cell;
    use loom::sync::{Arc, Mutex};

    /// The frames taken so far: loom fails where two threads use it and nothing orders them.
    type Queue = Box<Cell<u32>>;

    enum Command {
        Pass(Arc<Mailbox<Command>>),
        Own(Queue),
    }

    /// A model of a worker (worker/queues.rs): it reads commands between turns, and a turn takes
    /// and delivers.
    struct Worker {
        mailbox: Arc<Mailbox<Command>>,
        egress: Arc<Mutex<Vec<u32>>>,
        queues: Vec<Queue>,
    }

    impl Worker {
        fn round(&mut self) {
            if self.mailbox.is_waiting() {
                for command in self.mailbox.collect() {
                    match command {
                        Command::Pass(to) => {
                            self.queues.drain(..).for_each(|queue| to.post(Command::Own(queue)));
                        }
                        Command::Own(queue) => self.queues.push(queue),
                    }
                }
            }
            for queue in &self.queues {
                let taken = queue.get();
                queue.set(taken + 1);
                self.egress.lock().unwrap().push(taken);
            }
        }
    }

    #[test]
    fn a_queue_passed_on_has_one_owner_and_its_frames_stay_in_order() {
        loom::model(|| {
            let mailboxes = [0, 1].map(|_| Arc::new(Mailbox::new()));
            let egress = Arc::new(Mutex::new(Vec::new()));
            let worker = |at: usize, queues| Worker {
                mailbox: mailboxes[at].clone(),
                egress: egress.clone(),
                queues,
            };
            let mut old = worker(0, vec![Box::new(Cell::new(0))]);
            let mut new = worker(1, vec![]);
            let old = loom::thread::spawn(move || {
                old.round();
                while !old.queues.is_empty() {
                    loom::thread::yield_now();
                    if old.mailbox.is_waiting() {
                        old.round();
                    }
                }
            });
            let new = loom::thread::spawn(move || {
                while new.queues.is_empty() {
                    new.round();
                    loom::thread::yield_now();
                }
            });
            mailboxes[0].post(Command::Pass(mailboxes[1].clone()));
            old.join().unwrap();
            new.join().unwrap();
            let frames = egress.lock().unwrap().clone();
            assert!(frames == [0] || frames == [0, 1], "{frames:?}");
        });
    }

    #[test]
    fn no_command_is_lost_and_none_comes_twice() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new());
            let senders: Vec<_> = [1, 2]
                .map(|command| {
                    let mailbox = mailbox.clone();
                    loom::thread::spawn(move || mailbox.post(command))
                })
                .into();
            let mut read = Vec::new();
            if mailbox.is_waiting() {
                read.extend(mailbox.collect());
            }
            for sender in senders {
                sender.join().unwrap();
            }
            // Whatever was not read yet must still be announced.
            if mailbox.is_waiting() {
                read.extend(mailbox.collect());
            }
            read.sort_unstable();
            assert_eq!(read, [1, 2]);
        });
    }
}
