//! A bell that threads wait for together with sockets, and epoll sets.

use crate::TrafficError;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rung by some threads, heard by others: its descriptor is readable from a ring until it is
/// cleared.
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
        // A full counter (2^64 - 2) is the only way to fail, and it is readable then.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Whether it was ever rung. Pairs with the store in [`EventFd::ring`]: what was written before is
    /// seen after.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    /// Makes the descriptor wait for the next ring.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // Nothing signalled since the last time is the only way to fail.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// Waits until it rings, or for so long.
    pub(crate) fn wait(&self, limit: Duration) {
        wait_readable(&[self.fd.as_fd()], limit);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until one of the descriptors is readable, or for so long. A signal ends the wait early,
/// which every caller's loop takes.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let _ = poll(&mut fds, Some(&limit));
}

/// An epoll set of some descriptors, each with the number that its events carry.
pub(crate) fn watch<'f>(
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
pub(crate) fn wait(
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
