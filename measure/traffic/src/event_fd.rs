//! An eventfd that threads wait for together with sockets, and epoll sets.

use crate::TrafficError;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An eventfd that wakes waiting threads; readable until cleared.
#[derive(Debug)]
pub(crate) struct EventFd {
    signalled: AtomicBool,
    fd: OwnedFd,
}

impl EventFd {
    pub(crate) fn new() -> Result<EventFd, TrafficError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(TrafficError::system("make an event descriptor"))?;
        Ok(EventFd { signalled: AtomicBool::new(false), fd })
    }

    pub(crate) fn signal(&self) {
        self.signalled.store(true, Ordering::Release);
        // Fails only if the counter is full (2^64 - 2), and then the descriptor is readable.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Whether it was ever signalled. Pairs with the store in [`EventFd::signal`]: what was written
    /// before that store is visible after this load.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until the next signal.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // Fails only if there was no signal since the last time.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// Waits for a signal, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        wait_readable(&[self.fd.as_fd()], limit);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until a descriptor is readable, at most for `limit`. A signal handler may end the wait
/// early; all callers loop.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let _ = poll(&mut fds, Some(&limit));
}

/// Makes an epoll set of descriptors, each with the number that its events carry.
///
/// # Errors
/// Fails if the kernel refuses the set or a descriptor.
pub(crate) fn epoll_set<'f>(
    all: impl IntoIterator<Item = (BorrowedFd<'f>, u64, EventFlags)>,
) -> Result<OwnedFd, TrafficError> {
    let set = || {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        for (fd, number, events) in all {
            epoll::add(&set, fd, EventData::new_u64(number), events)?;
        }
        Ok::<_, Errno>(set)
    };
    set().map_err(TrafficError::system("watch sockets"))
}

/// Waits for events of an epoll set, which replace those in `events`; `limit` as in `epoll_wait`.
///
/// # Errors
/// Fails if the kernel refuses to wait; a signal handler is no failure.
pub(crate) fn wait_for_events(
    set: &OwnedFd,
    events: &mut Vec<Event>,
    limit: Option<&Timespec>,
) -> Result<(), TrafficError> {
    events.clear();
    match epoll::wait(set, spare_capacity(events), limit) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(TrafficError::system("wait for sockets")(error)),
    }
}
