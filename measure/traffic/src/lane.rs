//! What a lane and the conductor share: counters, sockets, and the three signals of a run.

use crate::TrafficError;
use crate::bell::Bell;
use crate::measure::TcpInfo;
use crate::plan::Plan;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};

/// All lanes of a run and what everybody waits for.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) lanes: Vec<Lane>,
    /// Most that all senders together send, in bits a second; 0 is no limit. It may change while
    /// they send.
    pub(crate) bandwidth: AtomicU64,
    /// Senders start when it is raised.
    pub(crate) begin: Bell,
    /// Everybody ends when it is raised.
    pub(crate) stop: Bell,
    /// A lane has news for the conductor.
    pub(crate) bell: Bell,
    /// Connections that were opened before the lanes, by their peers.
    pub(crate) kept: Mutex<Vec<(SocketAddr, OwnedFd)>>,
    /// The measured interval: round trips count only now.
    pub(crate) measuring: AtomicBool,
}

/// One thread's part. Only that thread writes its counters, so a plain load and store is enough.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) counters: CachePadded<Counters>,
    /// Every connection of the lane; they stay here after their end, so that TCP's books of them
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

/// A lane's thread.
pub(crate) type Thread = JoinHandle<Result<(), TrafficError>>;

/// Starts a lane of the stage for each of the parts: a target to send to, or a port to receive
/// from.
pub(crate) fn start<P: Send + 'static>(
    plan: &Arc<Plan>,
    stage: &Arc<Stage>,
    parts: Vec<P>,
    life: fn(&Plan, &Stage, &Lane, P) -> Result<(), TrafficError>,
) -> Vec<Thread> {
    let start = |(place, part)| {
        let (plan, stage) = (plan.clone(), stage.clone());
        spawn(move || match stage.lanes.get(place) {
            Some(lane) => life(&plan, &stage, lane, part),
            None => Ok(()),
        })
    };
    parts.into_iter().enumerate().map(start).collect()
}

/// Waits for lanes to end; the first error of any.
pub(crate) fn join(lanes: impl IntoIterator<Item = Thread>) -> Result<(), TrafficError> {
    let mut result = Ok(());
    for lane in lanes {
        let panicked = |_| Err(TrafficError::Plan("a thread panicked: this is a bug".into()));
        let ended = lane.join().unwrap_or_else(panicked);
        // That one was stopped says nothing where another one failed.
        if matches!(result, Ok(()) | Err(TrafficError::StoppedEarly)) && ended.is_err() {
            result = ended;
        }
    }
    result
}

/// What a lane counts, from its start on.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: AtomicU64,
    /// Send or receive calls that moved something; for UDP, datagrams.
    pub(crate) calls: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) verified: AtomicU64,
}

/// A lane's remarks are for people: the first few say it all.
const REMARKS_MAX: usize = 4;

impl Stage {
    pub(crate) fn new(plan: &Plan, lanes: usize) -> Result<Stage, TrafficError> {
        Ok(Stage {
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            bandwidth: AtomicU64::new(plan.bandwidth_bits_per_s.unwrap_or(0)),
            begin: Bell::new()?,
            stop: Bell::new()?,
            bell: Bell::new()?,
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
        self.lanes.iter().map(|lane| lane.counters.bytes.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn opened(&self) -> usize {
        self.lanes.iter().map(|lane| lane.opened.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn closed(&self) -> usize {
        self.lanes.iter().map(|lane| lane.closed.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn broken(&self) -> usize {
        self.lanes.iter().map(|lane| lane.broken.load(Ordering::Acquire)).sum()
    }

    pub(crate) fn all_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.done.load(Ordering::Acquire))
    }

    /// Something a person should know that is no single lane's.
    pub(crate) fn remark(&self, text: String) {
        if let Some(lane) = self.lanes.first() {
            lane.remark(text);
        }
    }

    /// Bytes that connections which were shut down have not delivered, and how many connections
    /// these are.
    pub(crate) fn undelivered(&self) -> (u64, usize) {
        let mut sum = (0, 0);
        for lane in &self.lanes {
            for socket in lock(&lane.sockets).iter() {
                // A socket that is no TCP socket has nothing to deliver.
                let bytes = TcpInfo::undelivered(socket).unwrap_or(0);
                sum = (sum.0 + bytes, sum.1 + usize::from(bytes > 0));
            }
        }
        sum
    }

    pub(crate) fn any_failed(&self) -> bool {
        self.lanes.iter().any(|lane| lane.failed.load(Ordering::Acquire))
    }
}

impl Lane {
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
