//! Signals to a front end that never block, whatever the front end does with the descriptor.
//!
//! `write` to an eventfd sleeps while its counter is full, unless O_NONBLOCK is set. That flag belongs to the open file
//! description, which the front end shares and can clear at any moment; looking first (`poll`) is a race; `pwritev2` with
//! RWF_NOWAIT is not supported for eventfds (tried up to Linux 6.18), and one cannot be opened anew through `/proc`. But
//! the kernel itself signals an eventfd when asynchronous I/O completes (`IOCB_FLAG_RESFD` of io_submit(2)), and that adds
//! one or leaves a full counter as it is. So a signal is an empty read of an empty file of ours, which completes at once.
//!
//! A signal that the kernel has no room for is owed, and sent by the session's thread; so are those that are too dear
//! ([`Budget`]).
//!
//! User-mode Linux takes its interrupts from a pipe or a socket. A write can be told not to wait for room in those, but still
//! waits while another thread holds their lock and copies. There a thread of its own writes, and is all that waits.

mod aio;
mod budget;
mod pipe;

pub(crate) use aio::prepare;
pub(crate) use budget::Budget;
#[cfg(test)]
pub(crate) use budget::tests::{pay, spend};

use crate::closer::close_aside;
use pipe::PipeWriter;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Threads of a session that may write to pipes at a time, for each of its rings: one, and one that is about to end.
const WRITERS_PER_RING: usize = 2;
/// How long the session's thread waits before it tries a signal again.
const RETRY: Duration = Duration::from_millis(1);

/// Why a descriptor is not taken for signals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignalError {
    #[error("{seen:?} was given for signals; {wanted} is supported")]
    Kind { seen: String, wanted: &'static str },
    #[error("{writers} threads already wait for pipes of this front end: read from them")]
    Writers { writers: usize },
    #[error("a descriptor for signals: {0}")]
    Io(#[from] io::Error),
}

const EVENTFD: &str = "anon_inode:[eventfd]";

/// What the kernel calls an open file: never asks the file system, which may not answer.
fn name(fd: BorrowedFd<'_>) -> io::Result<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Whether a descriptor is an eventfd: only that can be polled and signalled without asking another process.
pub(crate) fn expect_eventfd(fd: BorrowedFd<'_>) -> Result<(), SignalError> {
    let seen = name(fd)?;
    if seen == EVENTFD { Ok(()) } else { Err(SignalError::Kind { seen, wanted: "an eventfd" }) }
}

/// A descriptor of the front end by which it is told of something.
#[derive(Debug)]
pub(crate) enum Signal {
    Event(Event),
    Pipe(PipeWriter),
}

impl Signal {
    /// Takes an eventfd, a pipe or a socket; `budget` is that of the session, which has `rings` rings.
    pub(crate) fn new(
        fd: OwnedFd,
        budget: &Arc<Budget>,
        rings: usize,
    ) -> Result<Signal, SignalError> {
        let seen = name(fd.as_fd())?;
        if seen == EVENTFD {
            let (owed, budget) = (AtomicBool::new(false), budget.clone());
            return Ok(Signal::Event(Event { fd, owed, budget }));
        }
        if !seen.starts_with("pipe:[") && !seen.starts_with("socket:[") {
            close_aside(fd);
            return Err(SignalError::Kind { seen, wanted: "an eventfd, a pipe or a socket" });
        }
        let writers = Arc::strong_count(&budget.writers) - 1;
        if writers >= rings * WRITERS_PER_RING {
            close_aside(fd);
            return Err(SignalError::Writers { writers });
        }
        Ok(PipeWriter::start(fd, budget.writers.clone()).map(Signal::Pipe)?)
    }

    /// Signals. One that is pending already stays one.
    #[inline]
    pub(crate) fn raise(&self) {
        match self {
            Signal::Event(event) => event.raise(),
            Signal::Pipe(writer) => writer.ring_bell(),
        }
    }

    /// Another descriptor of the same, for the process that comes next.
    pub(crate) fn try_clone_file(&self) -> io::Result<OwnedFd> {
        match self {
            Signal::Event(event) => event.fd.try_clone(),
            Signal::Pipe(writer) => writer.try_clone_pipe(),
        }
    }

    /// Sends what is owed. Called by the session's thread, which alone may wait for what the front end does.
    pub(crate) fn settle(&self) {
        if let Signal::Event(event) = self {
            event.settle();
        }
    }
}

/// An eventfd.
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
    /// The session's thread is to send a signal.
    owed: AtomicBool,
    budget: Arc<Budget>,
}

impl Event {
    #[inline]
    fn raise(&self) {
        if self.budget.is_spent() || !self.send() {
            self.owe();
        }
    }

    fn send(&self) -> bool {
        self.budget.charge(|| aio::signal(self.fd.as_fd()))
    }

    #[cold]
    fn owe(&self) {
        // Pairs with the swap in `settle`: a signal that is owed after that is sent by another one.
        if !self.owed.swap(true, Ordering::AcqRel) {
            self.budget.ring_bell();
        }
    }

    fn settle(&self) {
        if self.owed.swap(false, Ordering::AcqRel) && !self.send() {
            thread::sleep(RETRY);
            self.owe();
        }
    }
}

/// Lets a test look at what its thread holds when an eventfd is closed.
#[cfg(test)]
impl Drop for Event {
    fn drop(&mut self) {
        tests::AT_CLOSE.with_borrow_mut(|look| look.iter_mut().for_each(|look| look()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
    use rustix::io::{Errno, ReadWriteFlags, pwritev2};
    use rustix::pipe::pipe;
    use std::cell::RefCell;
    use std::io::{IoSlice, Read};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    thread_local! {
        /// Called before this thread closes an eventfd.
        pub(crate) static AT_CLOSE: RefCell<Option<Box<dyn FnMut()>>> = RefCell::default();
    }

    /// A blocking eventfd of a front end.
    fn event(count: u64) -> (Signal, OwnedFd) {
        prepare().unwrap();
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        if count > 0 {
            rustix::io::write(&ours, &count.to_ne_bytes()).unwrap();
        }
        let theirs = ours.try_clone().unwrap();
        (Signal::new(ours, &budget(), 2).unwrap(), theirs)
    }

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new().unwrap())
    }

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn signals_are_counted_many_more_than_completions() {
        let (signal, theirs) = event(0);
        let Signal::Event(event) = &signal else { return };
        let many = 10 * aio::COMPLETIONS as u64;
        let raise = |_| {
            pay(&event.budget);
            signal.raise();
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..many).for_each(raise));
            }
        });
        assert_eq!(count(&theirs), 2 * many);
    }

    fn is_rung(budget: &Budget) -> bool {
        rustix::io::read(budget.bell(), &mut [0; 8]).is_ok()
    }

    /// One that found no room among the completions twice was lost.
    #[test]
    fn a_signal_that_was_not_sent_is_owed() {
        let (signal, theirs) = event(0);
        let Signal::Event(event) = &signal else { return };
        event.owe();
        assert!(is_rung(&event.budget));
        signal.settle();
        signal.settle();
        assert_eq!(count(&theirs), 1);
        assert!(!is_rung(&event.budget));
    }

    /// Whoever signals wakes all that wait for an eventfd, and a front end may have thousands of them.
    #[test]
    fn dear_signals_are_left_to_the_session() {
        let (signal, theirs) = event(0);
        let Signal::Event(event) = &signal else { return };
        spend(&event.budget);
        signal.raise();
        signal.raise();
        assert!(is_rung(&event.budget));
        // The session's thread sends both as one.
        signal.settle();
        assert_eq!(count(&theirs), 1);
    }

    /// A plain write sleeps for ever here, and the test with it.
    #[test]
    fn a_full_blocking_eventfd_does_not_stop_the_one_that_signals() {
        let (signal, theirs) = event(u64::MAX - 1);
        for _ in 0..3 {
            signal.raise();
        }
        assert!(count(&theirs) >= u64::MAX - 1);
        signal.raise();
        assert_eq!(count(&theirs), 1);
    }

    #[test]
    fn a_full_pipe_does_not_stop_the_one_that_signals() {
        let (reader, writer) = pipe().unwrap();
        let budget = budget();
        let theirs = writer.try_clone().unwrap();
        let signal = Signal::new(writer, &budget, 1).unwrap();
        signal.raise();
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(8));
        // Full, and blocking again.
        while rustix::io::write(&theirs, &[0; 4096]).is_ok() {}
        fcntl_setfl(&theirs, OFlags::WRONLY).unwrap();
        for _ in 0..100 {
            signal.raise();
        }
        // The thread ends with the reader, or before, where a write to a pipe can be told not to wait.
        let byte = [IoSlice::new(&[0])];
        let seen = pwritev2(&theirs, &byte, u64::MAX, ReadWriteFlags::NOWAIT);
        let reader = (seen != Err(Errno::OPNOTSUPP)).then_some(reader);
        drop(signal);
        expect_no_writer(&budget);
        drop(reader);
    }

    fn expect_no_writer(budget: &Budget) {
        let end = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&budget.writers) > 1 {
            assert!(Instant::now() < end, "the writer of a pipe has not ended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The writer stayed for as long as the front end kept its end open.
    #[test]
    fn a_full_socket_does_not_hold_its_writer() {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let (budget, shared) = (budget(), ours.try_clone().unwrap());
        let signal = Signal::new(ours.into(), &budget, 1).unwrap();
        // Full, and blocking again.
        while rustix::io::write(&shared, &[0; 4096]).is_ok() {}
        shared.set_nonblocking(false).unwrap();
        signal.raise();
        thread::sleep(Duration::from_millis(10));
        drop(signal);
        expect_no_writer(&budget);
        drop(theirs);
    }

    /// What `os_pipe` of user-mode Linux makes.
    #[test]
    fn a_socket_is_signalled_too() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let signal = Signal::new(ours.into(), &budget(), 1).unwrap();
        signal.raise();
        let mut bytes = [0; 8];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
    }

    #[test]
    fn writers_that_wait_are_limited() {
        let budget = budget();
        let signals: Vec<_> = (0..WRITERS_PER_RING)
            .map(|_| Signal::new(pipe().unwrap().1, &budget, 1).unwrap())
            .collect();
        let error = Signal::new(pipe().unwrap().1, &budget, 1).unwrap_err().to_string();
        assert!(error.starts_with("2 threads already wait"), "{error}");
        drop(signals);
    }

    #[test]
    fn nothing_else_is_taken() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(expect_eventfd(file.as_fd()).is_err());
        let error = Signal::new(file, &budget(), 2).unwrap_err().to_string();
        assert!(
            error.contains("memfd:x") && error.contains("an eventfd, a pipe or a socket"),
            "{error}"
        );
    }
}
