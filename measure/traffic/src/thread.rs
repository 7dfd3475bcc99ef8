//! What a payload thread shares with the conductor: its counters, sockets and remarks.

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thread's part. Only that thread writes its counters, so a plain load and store is enough.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub(crate) counters: CachePadded<Counters>,
    /// Every connection of the thread; they stay here after their end, so that TCP's books of them
    /// can still be read.
    pub(crate) sockets: Mutex<Vec<Arc<OwnedFd>>>,
    /// Connections there ever were; for UDP receivers 1 from the first datagram on.
    pub(crate) opened: AtomicUsize,
    /// Connections that ended, in order or not.
    pub(crate) closed: AtomicUsize,
    /// Of those, the ones that broke.
    pub(crate) broken: AtomicUsize,
    /// A sender that has sent all it should, or has no connection left.
    pub(crate) done: AtomicBool,
    /// A thread that gave up before the start.
    pub(crate) failed: AtomicBool,
    /// What a person should know: the first byte that was wrong, why a connection broke.
    pub(crate) remarks: Mutex<Vec<String>>,
    /// Of round trips, or of requests.
    pub(crate) times: Mutex<Option<Histogram<u64>>>,
}

/// What a thread counts, from its start on.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: AtomicU64,
    /// Send or receive calls that moved something; for UDP, datagrams.
    pub(crate) calls: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) verified: AtomicU64,
}

/// A thread's remarks are for people: the first few say it all.
const REMARKS_MAX: usize = 4;

impl ThreadState {
    /// Takes a connection into the books.
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
    /// One call moved so many bytes.
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
