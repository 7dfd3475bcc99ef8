//! State that a payload thread shares with the conductor: counters, sockets and remarks.

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State of one payload thread. Only that thread writes its counters, so a plain load and store is
/// enough.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub(crate) counters: CachePadded<Counters>,
    /// All connections of the thread. They stay here after their end, so that TCP_INFO can still be
    /// read.
    pub(crate) sockets: Mutex<Vec<Arc<OwnedFd>>>,
    /// Connections opened so far; for UDP receivers 1 from the first datagram on.
    pub(crate) opened: AtomicUsize,
    /// Connections that ended, in order or not.
    pub(crate) closed: AtomicUsize,
    /// Connections that broke; [`ThreadState::closed`] counts them too.
    pub(crate) broken: AtomicUsize,
    /// Whether a sender has sent its share, or has no connection left.
    pub(crate) done: AtomicBool,
    /// Whether the thread gave up before the start.
    pub(crate) failed: AtomicBool,
    /// Remarks for the report: the first wrong byte, why a connection broke.
    pub(crate) remarks: Mutex<Vec<String>>,
    /// Times of round trips or requests; `None` until the thread ends.
    pub(crate) times: Mutex<Option<Histogram<u64>>>,
}

/// Payload counters of a thread, since its start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: AtomicU64,
    /// Send or receive calls that moved something; for UDP, datagrams.
    pub(crate) calls: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) verified: AtomicU64,
}

/// Remarks kept for each thread; the first few are enough for a person.
const REMARKS_MAX: usize = 4;

impl ThreadState {
    /// Registers a new connection.
    pub(crate) fn open(&self, socket: OwnedFd) -> Arc<OwnedFd> {
        let socket = Arc::new(socket);
        lock(&self.sockets).push(socket.clone());
        self.opened.fetch_add(1, Ordering::Release);
        socket
    }

    pub(crate) fn close(&self, error: Option<&str>) {
        if let Some(error) = error {
            self.broken.fetch_add(1, Ordering::Release);
            self.counters.add_error();
            self.remark(format!("a connection broke: {error}"));
        }
        self.closed.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn remark(&self, text: String) {
        let mut remarks = lock(&self.remarks);
        if remarks.len() < REMARKS_MAX && !remarks.contains(&text) {
            remarks.push(text);
        }
    }
}

impl Counters {
    /// Counts one call that moved `bytes`.
    pub(crate) fn add(&self, bytes: usize) {
        bump(&self.bytes, bytes as u64);
        bump(&self.calls, 1);
    }

    pub(crate) fn add_error(&self) {
        bump(&self.errors, 1);
    }

    pub(crate) fn add_verified(&self, bytes: usize) {
        bump(&self.verified, bytes as u64);
    }
}

/// Adds without a locked instruction: each counter has one writer.
fn bump(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
