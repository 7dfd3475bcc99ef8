//! Progress events of a run, for its caller.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A receiver that a sender tries to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The receiver's address and port.
    pub address: SocketAddr,
    /// Whether nothing answers, as behind a firewall that drops; otherwise the port is refused.
    pub is_silent: bool,
    /// Time since the first attempt.
    pub elapsed: Duration,
}

/// A progress event. [`Progress::Rate`] comes twice a second.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The receiver listens; this is its first data port.
    Listening(SocketAddr),
    /// A sender has no connection to this receiver yet. Reported once a second.
    Waiting(Wait),
    /// The number of open connections at a sender; at a receiver, the first one is open.
    Connected(usize),
    /// Data reached the receiver before any synchronisation. The sender has none, or is Windows
    /// NTttcp, which synchronises later.
    Unsynchronised,
    /// The receiver takes data but not ntttcp-for-linux's synchronisation: Windows NTttcp's is
    /// tried.
    Tokens(IpAddr),
    /// The receiver waits for more senders.
    AwaitingOthers,
    /// Traffic flows and is not yet measured.
    WarmUp,
    /// Traffic flows and is measured.
    Measuring,
    /// Throughput of the application since the last event.
    Rate {
        /// Bytes per second.
        bytes_per_s: f64,
    },
    /// Traffic flows and is no longer measured.
    CoolDown,
}
