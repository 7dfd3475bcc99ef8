//! What a thread and the conductor share: counters, sockets, and the three signals of a run.

use crate::TrafficError;
use crate::event_fd::EventFd;
use crate::measure::TcpInfo;
use crate::plan::Plan;
use crate::thread::{ThreadState, lock};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

/// All threads of a run and what everybody waits for.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) threads: Vec<ThreadState>,
    /// Most that all senders together send, in bits a second; 0 is no limit. It may change while
    /// they send.
    pub(crate) bandwidth: AtomicU64,
    /// Senders start when it is raised.
    pub(crate) begin: EventFd,
    /// Everybody ends when it is raised.
    pub(crate) stop: EventFd,
    /// A thread has news for the conductor.
    pub(crate) wake: EventFd,
    /// Connections that were opened before the threads, by their peers.
    pub(crate) kept: Mutex<Vec<(SocketAddr, OwnedFd)>>,
    /// The measured interval: round trips count only now.
    pub(crate) measuring: AtomicBool,
}

/// A thread's thread.
pub(crate) type Handle = JoinHandle<Result<(), TrafficError>>;

/// Starts a thread of the shared for each of the parts: a target to send to, or a port to receive
/// from.
pub(crate) fn start<P: Send + 'static>(
    plan: &Arc<Plan>,
    shared: &Arc<Shared>,
    parts: Vec<P>,
    life: fn(&Plan, &Shared, &ThreadState, P) -> Result<(), TrafficError>,
) -> Vec<Handle> {
    let start = |(place, part)| {
        let (plan, shared) = (plan.clone(), shared.clone());
        spawn(move || match shared.threads.get(place) {
            Some(thread) => life(&plan, &shared, thread, part),
            None => Ok(()),
        })
    };
    parts.into_iter().enumerate().map(start).collect()
}

/// Waits for threads to end; the first error of any.
pub(crate) fn join(threads: impl IntoIterator<Item = Handle>) -> Result<(), TrafficError> {
    let mut result = Ok(());
    for thread in threads {
        let panicked = |_| Err(TrafficError::Plan("a thread panicked: this is a bug".into()));
        let ended = thread.join().unwrap_or_else(panicked);
        // That one was stopped says nothing where another one failed.
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
            kept: Mutex::default(),
            measuring: AtomicBool::new(false),
        })
    }

    /// A connection to `peer` that is there already.
    pub(crate) fn take_kept(&self, peer: SocketAddr) -> Option<OwnedFd> {
        let mut kept = lock(&self.kept);
        let place = kept.iter().position(|(address, _)| *address == peer)?;
        Some(kept.swap_remove(place).1)
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

    /// Something a person should know that is no single thread's.
    pub(crate) fn remark(&self, text: String) {
        if let Some(thread) = self.threads.first() {
            thread.remark(text);
        }
    }

    /// Bytes that connections which were shut down have not delivered, and how many connections
    /// these are.
    pub(crate) fn undelivered(&self) -> (u64, usize) {
        let mut sum = (0, 0);
        for thread in &self.threads {
            for socket in lock(&thread.sockets).iter() {
                // A socket that is no TCP socket has nothing to deliver.
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
