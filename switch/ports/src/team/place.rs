//! The place of a member: the control plane puts the member's queues there, and workers use them.
//!
//! The workers get a port's queues once, when it is opened. So a team has a queue pair for each of
//! its places from the start; a member puts its queues into one when it comes, and takes them out
//! when it leaves. A queue has the number of its place for as long as the port is open. The queue
//! of a place is empty if the place has no member or a down one.

use crate::{EgressQueue, IngressQueue, lock};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

pub(super) struct Slot {
    /// The member's egress queue. Workers deliver in parallel; it is taken out when none does.
    egress: RwLock<Option<EgressQueue>>,
    /// The ingress queue, or none, that the worker uses from its next turn on.
    next: Mutex<Option<Option<IngressQueue>>>,
    /// Whether there is a `next`. Changed under the lock of `next`, like `wake`, which is readable
    /// exactly while this is set.
    is_due: AtomicBool,
    /// Queues that the worker no longer uses. Another thread closes them, which may take long.
    retired: Mutex<Vec<IngressQueue>>,
    /// Wakes the worker.
    pub(super) wake: OwnedFd,
}

impl Slot {
    pub(super) fn new() -> io::Result<Slot> {
        Ok(Slot {
            egress: RwLock::default(),
            next: Mutex::default(),
            is_due: AtomicBool::new(false),
            retired: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Replaces the queues with those of a member.
    pub(super) fn put(&self, queues: Option<(IngressQueue, EgressQueue)>) {
        let (ingress, egress) = queues.unzip();
        let mut place = self.egress.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, egress);
        drop(place);
        let mut next = lock(&self.next);
        let unused = next.replace(ingress);
        self.is_due.store(true, Ordering::Relaxed);
        // The write fails only at a full counter, which is readable anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        drop(next);
        // Closed under no lock: the kernel may take long.
        drop((unused, old));
    }

    /// Locks and returns the member's egress queue.
    pub(super) fn egress(&self) -> RwLockReadGuard<'_, Option<EgressQueue>> {
        self.egress.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other queues were put here since the last [`Slot::pick_up`].
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Returns the queue to use from now on, if it has changed.
    pub(super) fn pick_up(&self) -> Option<Option<IngressQueue>> {
        let mut next = lock(&self.next);
        self.is_due.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        next.take()
    }

    /// Takes a queue that the worker no longer uses.
    pub(super) fn retire(&self, queue: IngressQueue) {
        lock(&self.retired).push(queue);
    }

    /// Closes the queues that the worker no longer uses.
    pub(super) fn close_retired(&self) {
        let retired = std::mem::take(&mut *lock(&self.retired));
        drop(retired);
    }
}
