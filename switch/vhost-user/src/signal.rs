//! Signals to a front end that never block, whatever the front end does with the descriptor.
//!
//! `write` to an eventfd sleeps while its counter is full, unless O_NONBLOCK is set. That flag
//! belongs to the open file description, which the front end shares and can clear at any moment;
//! looking first (`poll`) is a race; `pwritev2` with RWF_NOWAIT is not supported for eventfds
//! (tried up to Linux 6.18), and one cannot be opened anew through `/proc`. But the kernel itself
//! signals an eventfd when asynchronous I/O completes (`IOCB_FLAG_RESFD` of io_submit(2)), and that
//! adds one or leaves a full counter as it is. So a signal is an empty read of an empty file of
//! ours, which completes at once.
//!
//! A signal that the kernel has no room for is left to the session's thread; so are those over the
//! session's [`Budget`].
//!
//! User-mode Linux takes its interrupts from a Unix stream socket (`os_pipe`). The session's thread
//! sends those too, without waiting for room. No other kind of descriptor is accepted: a write to a
//! pipe or a TCP socket can sleep, beyond even SIGKILL, while another process holds the lock and
//! copies from a page that a fault handler of its own withholds.

mod aio;
mod budget;

pub(crate) use aio::prepare;
pub(crate) use budget::Budget;
#[cfg(test)]
pub(crate) use budget::tests::{pay, spend};

use crate::closer::close_aside;
use crate::socket::is_unix_stream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long the session's thread waits before it tries to send a signal again.
const RETRY: Duration = Duration::from_millis(1);

/// Why a descriptor cannot be used for signals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignalError {
    #[error("{seen:?} was given for signals; {wanted} is supported")]
    Kind { seen: String, wanted: &'static str },
    #[error("a descriptor for signals: {0}")]
    Io(#[from] io::Error),
}

const EVENTFD: &str = "anon_inode:[eventfd]";

/// Returns the kernel's name of an open file. It never asks the file system, which might not
/// answer.
fn name(fd: BorrowedFd<'_>) -> io::Result<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Checks that a descriptor is an eventfd: only those can be polled and signalled without asking
/// another process.
pub(crate) fn expect_eventfd(fd: BorrowedFd<'_>) -> Result<(), SignalError> {
    let seen = name(fd)?;
    if seen == EVENTFD { Ok(()) } else { Err(SignalError::Kind { seen, wanted: "an eventfd" }) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eventfd,
    Socket,
}

/// A descriptor of the front end that is signalled, for a ring's interrupts or errors.
#[derive(Debug)]
pub(crate) struct Signal {
    fd: OwnedFd,
    kind: Kind,
    /// Whether the session's thread has to send a signal.
    owed: AtomicBool,
    budget: Arc<Budget>,
}

impl Signal {
    /// Wraps an eventfd or a Unix stream socket; `budget` is that of the session. Fails for any
    /// other kind of file.
    pub(crate) fn new(fd: OwnedFd, budget: &Arc<Budget>) -> Result<Signal, SignalError> {
        let seen = name(fd.as_fd())?;
        let kind = if seen == EVENTFD {
            Kind::Eventfd
        } else if is_unix_stream(&fd).unwrap_or(false) {
            Kind::Socket
        } else {
            close_aside(fd);
            return Err(SignalError::Kind { seen, wanted: "an eventfd or a Unix stream socket" });
        };
        Ok(Signal { fd, kind, owed: AtomicBool::new(false), budget: budget.clone() })
    }

    /// Sends a signal, or leaves it to the session's thread. Signals that were not read yet may
    /// merge into one.
    #[inline]
    pub(crate) fn raise(&self) {
        if self.kind == Kind::Socket || self.budget.is_spent() || !self.send() {
            self.owe();
        }
    }

    /// Duplicates the descriptor, for the process that serves the session next.
    pub(crate) fn try_clone_file(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Sends a signal. Returns `false` if it has to be tried again.
    fn send(&self) -> bool {
        match self.kind {
            Kind::Eventfd => self.budget.charge(|| aio::signal(self.fd.as_fd())),
            Kind::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = send(&self.fd, &1u64.to_ne_bytes(), flags);
                // A full socket is readable already, and a closed one has no reader.
                !matches!(sent, Err(Errno::NOMEM | Errno::NOBUFS))
            }
        }
    }

    #[cold]
    fn owe(&self) {
        // Pairs with the swap in `settle`: a signal that becomes owed after that swap is sent by
        // the next call.
        if !self.owed.swap(true, Ordering::AcqRel) {
            self.budget.note_owed();
        }
    }

    /// Sends the owed signal, if there is one. Called only by the session's thread, which is the
    /// one that may wait for the front end.
    pub(crate) fn settle(&self) {
        if self.owed.swap(false, Ordering::AcqRel) && !self.send() {
            thread::sleep(RETRY);
            self.owe();
        }
    }
}

/// Lets a test look at what its thread holds when a signal's descriptor is closed.
#[cfg(test)]
impl Drop for Signal {
    fn drop(&mut self) {
        tests::AT_CLOSE.with_borrow_mut(|look| look.iter_mut().for_each(|look| look()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    thread_local! {
        /// Called before this thread closes an eventfd.
        pub(crate) static AT_CLOSE: RefCell<Option<Box<dyn FnMut()>>> = RefCell::default();
    }

    /// Returns a blocking eventfd of a front end.
    fn event(count: u64) -> (Signal, OwnedFd) {
        prepare().unwrap();
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        if count > 0 {
            rustix::io::write(&ours, &count.to_ne_bytes()).unwrap();
        }
        let theirs = ours.try_clone().unwrap();
        (Signal::new(ours, &budget()).unwrap(), theirs)
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
        let many = 10 * aio::COMPLETIONS as u64;
        let raise = |_| {
            pay(&signal.budget);
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
        rustix::io::read(budget.owed_fd(), &mut [0; 8]).is_ok()
    }

    /// One that found no room among the completions twice was lost.
    #[test]
    fn a_signal_that_was_not_sent_is_owed() {
        let (signal, theirs) = event(0);
        signal.owe();
        assert!(is_rung(&signal.budget));
        signal.settle();
        signal.settle();
        assert_eq!(count(&theirs), 1);
        assert!(!is_rung(&signal.budget));
    }

    /// The signalling thread wakes all waiters of an eventfd, and a front end may have thousands of
    /// them.
    #[test]
    fn dear_signals_are_left_to_the_session() {
        let (signal, theirs) = event(0);
        spend(&signal.budget);
        signal.raise();
        signal.raise();
        assert!(is_rung(&signal.budget));
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

    /// What `os_pipe` of user-mode Linux makes.
    #[test]
    fn a_socket_is_signalled_by_the_sessions_thread() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let signal = Signal::new(ours.into(), &budget()).unwrap();
        theirs.set_nonblocking(true).unwrap();
        signal.raise();
        signal.raise();
        let mut bytes = [0; 8];
        assert!(theirs.read(&mut bytes).is_err(), "nothing that only others may wait for");
        assert!(is_rung(&signal.budget));
        signal.settle();
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        assert!(theirs.read(&mut bytes).is_err(), "both are one");
    }

    /// A plain write sleeps for ever here, and the test with it.
    #[test]
    fn a_full_blocking_socket_does_not_stop_the_sessions_thread() {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let mut shared = ours.try_clone().unwrap();
        let signal = Signal::new(ours.into(), &budget()).unwrap();
        shared.set_nonblocking(true).unwrap();
        while shared.write(&[0; 4096]).is_ok() {}
        shared.set_nonblocking(false).unwrap();
        signal.raise();
        assert!(is_rung(&signal.budget));
        signal.settle();
        assert!(!is_rung(&signal.budget), "nothing is owed to one that is readable already");
        drop(theirs);
    }

    /// A write to a pipe or to a socket of another kind may sleep where nothing ends it.
    #[test]
    fn nothing_else_is_taken() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(expect_eventfd(file.as_fd()).is_err());
        let writer = rustix::pipe::pipe().unwrap().1;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let datagram = UnixDatagram::unbound().unwrap();
        let others: [(&str, OwnedFd); 4] = [
            ("memfd:x", file),
            ("pipe:[", writer),
            ("socket:[", tcp.into()),
            ("socket:[", datagram.into()),
        ];
        for (seen, fd) in others {
            let error = Signal::new(fd, &budget()).unwrap_err().to_string();
            let wanted = "an eventfd or a Unix stream socket";
            assert!(error.contains(seen) && error.contains(wanted), "{error}");
        }
    }
}
