//! The options of a switch, and its errors.

use crate::settings::PortId;

/// What a worker does when there is nothing to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Polls on: lowest latency, a whole core.
    Always,
    /// Polls a little longer, in an exchange of requests and answers for up to 100 µs, then sleeps
    /// until something arrives.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Never,
}

/// The options of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerOptions {
    /// The core it is pinned to; `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
}

/// The options of the whole switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchOptions {
    /// The workers, at least one.
    pub workers: Vec<WorkerOptions>,
    /// What workers do when there is nothing to take.
    pub wait: Wait,
    /// Most learned addresses.
    pub mac_entries: usize,
    /// Seconds after which a silent address is forgotten.
    pub mac_ageing_s: u32,
}

impl Default for SwitchOptions {
    fn default() -> SwitchOptions {
        SwitchOptions {
            workers: vec![WorkerOptions::default()],
            wait: Wait::Adaptive,
            mac_entries: 8192,
            mac_ageing_s: 300,
        }
    }
}

/// The errors of a change to the switch.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The name is taken.
    #[error("a port named {0:?} exists: choose another name or remove that port first")]
    NameInUse(String),
    /// No such port.
    #[error("no port with the number {}", .0.0)]
    NoSuchPort(PortId),
    /// No such queue.
    #[error("port {} has {queues} queues, from 0, and no queue {queue}", .port.0)]
    NoSuchQueue {
        /// The port.
        port: PortId,
        /// What was asked for.
        queue: usize,
        /// How many it has.
        queues: usize,
    },
    /// No such entry of an indirection table.
    #[error("an indirection table has the entries 0 to 127, and no entry {0}")]
    NoSuchEntry(usize),
    /// No such worker.
    #[error("the switch has {workers} workers, from 0, and no worker {worker}")]
    NoSuchWorker {
        /// What was asked for.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// The worker's thread has ended.
    #[error("worker {0} does not answer")]
    WorkerEnded(usize),
    /// The worker takes too long.
    #[error("worker {worker} does not answer; its last turn was of {port}")]
    WorkerHangs {
        /// Its place.
        worker: usize,
        /// The port of its last turn, for people.
        port: String,
    },
    /// The tables are full.
    #[error("the switch has {0} ports, which is all it can have: remove one first")]
    TooManyPorts(usize),
    /// A worker could not be started or pinned.
    #[error("starting worker {worker} on core {cpu:?}: {source}")]
    Worker {
        /// Its place.
        worker: usize,
        /// Where it should run.
        cpu: Option<usize>,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}
