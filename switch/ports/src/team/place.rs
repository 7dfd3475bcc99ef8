//! The place of a member: where its queues are put, by the control plane, and used, by workers.
//!
//! A port's queues are given to the workers once, when it is opened. So a team has a queue pair for
//! each of its places from the start, and a member that comes or goes puts queues into one, or
//! takes them out. The number of a queue is that of its place for as long as the port is open; the
//! queue of a place without a member, or with one that is down, is empty.

use crate::{EgressQueue, IngressQueue, lock};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

pub(super) struct Slot {
    /// Workers deliver side by side; it is taken out when none does.
    egress: RwLock<Option<EgressQueue>>,
    /// The ingress queue, or none, that the worker is to use from its next turn on.
    next: Mutex<Option<Option<IngressQueue>>>,
    /// Whether there is a `next`. Changed under its lock, as `wake` is: it is readable just while
    /// this is so.
    is_due: AtomicBool,
    /// Queues that the worker uses no more, to be closed by another thread: that may take long.
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

    /// Puts the queues of a member in place of those that are there.
    pub(super) fn put(&self, queues: Option<(IngressQueue, EgressQueue)>) {
        let (ingress, egress) = queues.unzip();
        let mut place = self.egress.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, egress);
        drop(place);
        let mut next = lock(&self.next);
        let unused = next.replace(ingress);
        self.is_due.store(true, Ordering::Relaxed);
        // A counter that is full is readable.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        drop(next);
        // Closed under no lock: the kernel may take its time.
        drop((unused, old));
    }

    /// The member's egress queue.
    pub(super) fn egress(&self) -> RwLockReadGuard<'_, Option<EgressQueue>> {
        self.egress.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other queues were put here since [`Slot::pick_up`].
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// What the worker is to use from now on, if that is something else.
    pub(super) fn pick_up(&self) -> Option<Option<IngressQueue>> {
        let mut next = lock(&self.next);
        self.is_due.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        next.take()
    }

    /// The worker uses this queue no more.
    pub(super) fn retire(&self, queue: IngressQueue) {
        lock(&self.retired).push(queue);
    }

    /// Closes what the worker uses no more.
    pub(super) fn close_retired(&self) {
        let retired = std::mem::take(&mut *lock(&self.retired));
        drop(retired);
    }
}
