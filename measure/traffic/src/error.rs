//! Errors of a run that measured nothing. A run that began and was cut short is no error: its
//! report says so.

use rustix::io::Errno;
use std::net::SocketAddr;

/// Why a run could not be carried out. Each message names the thing, the value seen and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// No connection was accepted within the plan's attempts.
    #[error(
        "no receiver at {address} after {attempts} attempts in {seconds} s ({source}): {remedy}"
    )]
    Unreachable {
        /// The receiver's expected address.
        address: SocketAddr,
        /// Number of attempts made.
        attempts: u32,
        /// How long it was tried.
        seconds: u64,
        /// Error of the last attempt.
        source: Errno,
        /// Advice for the user.
        remedy: String,
    },
    /// A socket could not be bound.
    #[error("cannot use {address} on this host ({source}): {remedy}")]
    Bind {
        /// The address of the plan.
        address: SocketAddr,
        /// Error of the kernel.
        source: Errno,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// The data port is open, but the receiver offers neither kind of synchronisation.
    #[error(
        "the receiver at {address} accepts data but synchronises neither as ntttcp-for-linux nor as Windows NTttcp: run both ends with `-ns` (on Linux `-N`)"
    )]
    Unsynchronised {
        /// The receiver's first data port.
        address: SocketAddr,
    },
    /// The receiver serves another sender.
    #[error(
        "the receiver at {address} is busy with another test: wait until it ends, or use another -p"
    )]
    Busy {
        /// The receiver's synchronisation address.
        address: SocketAddr,
    },
    /// The receiver refused this test.
    #[error("the receiver at {address} refused the test: {reason}")]
    Refused {
        /// The receiver's synchronisation address.
        address: SocketAddr,
        /// The receiver's own text, or ours if it gave none.
        reason: String,
    },
    /// The synchronisation connection broke before the test began.
    #[error(
        "lost the receiver at {address} while {during} ({source}): is it an NTttcp receiver? `-ns` or `-N` on both ends runs without synchronisation"
    )]
    SyncLost {
        /// The receiver's synchronisation address.
        address: SocketAddr,
        /// The step during which it broke.
        during: &'static str,
        /// Error of the kernel.
        source: Errno,
    },
    /// The peer answered something that is not part of the protocol.
    #[error(
        "the peer at {address} does not speak NTttcp's synchronisation: {detail}. Check -p, or run both ends with `-ns` or `-N`"
    )]
    Garbled {
        /// The peer's synchronisation address.
        address: SocketAddr,
        /// Description of the message.
        detail: String,
    },
    /// No sender connected within the limit of `--wait`.
    #[error("no sender connected within {seconds} s: start one, or raise --wait (0 waits forever)")]
    NoSender {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The run was stopped before anything was measured.
    #[error("stopped before the measurement began")]
    StoppedEarly,
    /// The plan needs more connections than this process may have files.
    #[error(
        "{wanted} open files are needed and the limit is {limit}: raise it (`ulimit -Hn`, LimitNOFILE) or use fewer connections"
    )]
    TooManyFiles {
        /// Files the plan needs.
        wanted: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A socket option was refused.
    #[error("cannot set {what} to {value} ({source}): {remedy}")]
    Setting {
        /// The option.
        what: &'static str,
        /// The value asked for.
        value: String,
        /// Error of the kernel.
        source: Errno,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// A plan that cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// The system refused an operation that has no variant of its own.
    #[error("cannot {doing}")]
    System {
        /// The refused operation.
        doing: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl TrafficError {
    /// Makes a closure for `map_err`: the system refused an operation that has no variant of its
    /// own.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| TrafficError::System { doing, source: source.into() }
    }
}
