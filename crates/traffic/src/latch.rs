//! Two small things threads wait on together with sockets: a latch that stays raised, and a bell that is rung and cleared.

use crate::TrafficError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Raised once, seen by any number of threads; its descriptor stays readable from then on.
#[derive(Debug)]
pub(crate) struct Latch {
    raised: AtomicBool,
    fd: OwnedFd,
}

impl Latch {
    pub(crate) fn new() -> Result<Latch, TrafficError> {
        Ok(Latch { raised: AtomicBool::new(false), fd: event()? })
    }

    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        ring(&self.fd);
    }

    /// Pairs with the store in [`Latch::raise`]: what was written before is seen after.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Waits until it is raised, or for so long.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        wait_readable(&[self.fd.as_fd()], limit);
    }
}

impl AsFd for Latch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Rung by the lanes, heard by the conductor.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, TrafficError> {
        Ok(Bell { fd: event()? })
    }

    pub(crate) fn ring(&self) {
        ring(&self.fd);
    }

    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // Nothing rung since the last time is the only way to fail.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until one of the descriptors is readable, or for so long. A signal ends the wait early, which every caller's loop
/// takes.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) {
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit =
        limit.map(|limit| Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
    let _ = poll(&mut fds, limit.as_ref());
}

fn event() -> Result<OwnedFd, TrafficError> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(TrafficError::system("make an event descriptor"))
}

fn ring(fd: &OwnedFd) {
    // A full counter (2^64 - 2) is the only way to fail, and it is readable then.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}
