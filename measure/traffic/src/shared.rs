//! State that the payload threads and the conductor share: the threads' states and the events of a
//! run.

use crate::TrafficError;
use crate::event_fd::EventFd;
use crate::measure::TcpInfo;
use crate::plan::Plan;
use crate::progress::Wait;
use crate::thread::{ThreadState, lock};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

/// State shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) threads: Vec<ThreadState>,
    /// Most bits a second that all sending threads together may send; 0 is no limit. It may change
    /// while they send.
    pub(crate) bandwidth: AtomicU64,
    /// Signalled when senders may start.
    pub(crate) begin: EventFd,
    /// Signalled when all threads are to end.
    pub(crate) stop: EventFd,
    /// Wakes the conductor when a thread's state has changed.
    pub(crate) wake: EventFd,
    /// Connections that were opened before the threads started, by peer.
    pub(crate) early_connections: Mutex<Vec<(SocketAddr, OwnedFd)>>,
    /// What one of the threads waits for, until the conductor has reported it.
    waiting: Mutex<Option<Wait>>,
    /// Whether the measured interval is on: only then round trips count.
    pub(crate) measuring: AtomicBool,
}

/// The join handle of a payload thread.
pub(crate) type Handle = JoinHandle<Result<(), TrafficError>>;

/// Starts a thread for each of the parts: a target to send to, or a port to receive from.
pub(crate) fn start<P: Send + 'static>(
    plan: &Arc<Plan>,
    shared: &Arc<Shared>,
    parts: Vec<P>,
    body: fn(&Plan, &Shared, &ThreadState, P) -> Result<(), TrafficError>,
) -> Vec<Handle> {
    let start = |(place, part)| {
        let (plan, shared) = (plan.clone(), shared.clone());
        spawn(move || match shared.threads.get(place) {
            Some(thread) => body(&plan, &shared, thread, part),
            None => Ok(()),
        })
    };
    parts.into_iter().enumerate().map(start).collect()
}

/// Waits for threads to end.
///
/// # Errors
/// The first error of any thread, or the first other than [`TrafficError::StoppedEarly`] if there
/// is one.
pub(crate) fn join(threads: impl IntoIterator<Item = Handle>) -> Result<(), TrafficError> {
    let mut result = Ok(());
    for thread in threads {
        let panicked = |_| Err(TrafficError::Plan("a thread panicked: this is a bug".into()));
        let ended = thread.join().unwrap_or_else(panicked);
        // Being stopped says little if another thread failed.
        if matches!(result, Ok(()) | Err(TrafficError::StoppedEarly)) && ended.is_err() {
            result = ended;
        }
    }
    result
}

impl Shared {
    pub(crate) fn new(plan: &Plan, threads: usize) -> Result<Shared, TrafficError> {
        Ok(Shared {
            threads: (0..threads).map(|_| ThreadState::default()).collect(),
            bandwidth: AtomicU64::new(plan.bandwidth_bits_per_s.unwrap_or(0)),
            begin: EventFd::new()?,
            stop: EventFd::new()?,
            wake: EventFd::new()?,
            early_connections: Mutex::default(),
            waiting: Mutex::default(),
            measuring: AtomicBool::new(false),
        })
    }

    /// Takes the connection to `peer` that was opened before the threads, if there is one.
    pub(crate) fn take_early_connection(&self, peer: SocketAddr) -> Option<OwnedFd> {
        let mut connections = lock(&self.early_connections);
        let place = connections.iter().position(|(address, _)| *address == peer)?;
        Some(connections.swap_remove(place).1)
    }

    /// Notes what a thread waits for.
    pub(crate) fn note_wait(&self, wait: Wait) {
        *lock(&self.waiting) = Some(wait);
    }

    /// Takes what a thread waits for, if that was noted since the last call.
    pub(crate) fn take_wait(&self) -> Option<Wait> {
        lock(&self.waiting).take()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.counters.bytes.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn opened(&self) -> usize {
        self.threads.iter().map(|thread| thread.opened.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn closed(&self) -> usize {
        self.threads.iter().map(|thread| thread.closed.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn broken(&self) -> usize {
        self.threads.iter().map(|thread| thread.broken.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn all_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.done.load(Ordering::Acquire))
    }

    /// Adds a remark that belongs to no single thread.
    pub(crate) fn remark(&self, text: String) {
        if let Some(thread) = self.threads.first() {
            thread.remark(text);
        }
    }

    /// Returns the bytes that closed connections have not delivered, and the number of these
    /// connections.
    pub(crate) fn undelivered(&self) -> (u64, usize) {
        let mut sum = (0, 0);
        for thread in &self.threads {
            for socket in lock(&thread.sockets).iter() {
                // A socket other than TCP has nothing to deliver.
                let bytes = TcpInfo::undelivered(socket).unwrap_or(0);
                sum = (sum.0 + bytes, sum.1 + usize::from(bytes > 0));
            }
        }
        sum
    }

    pub(crate) fn any_failed(&self) -> bool {
        self.threads.iter().any(|thread| thread.failed.load(Ordering::Acquire))
    }
}
