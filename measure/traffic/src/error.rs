//! Why a run could not be carried out. A run that began and was cut short is no error: it has a
//! report that says so.

use rustix::io::Errno;
use std::net::SocketAddr;

/// See the module. Each message names the thing, the value seen and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// Nobody accepted a connection within the attempts of the plan.
    #[error(
        "no receiver at {address} after {attempts} attempts ({source}): start the receiver first, and check its address, port and firewall"
    )]
    Unreachable {
        /// Where the receiver should be.
        address: SocketAddr,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt met.
        source: Errno,
    },
    /// A socket could not be bound.
    #[error("cannot use {address} on this host ({source}): {remedy}")]
    Bind {
        /// The address of the plan.
        address: SocketAddr,
        /// What the kernel said.
        source: Errno,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The data port is open, and neither kind of synchronisation is to be had.
    #[error(
        "the receiver at {address} accepts data but synchronises neither as ntttcp-for-linux nor as Windows NTttcp: run both ends with `-ns` (on Linux `-N`)"
    )]
    Unsynchronised {
        /// Its first data port.
        address: SocketAddr,
    },
    /// The receiver serves another sender.
    #[error(
        "the receiver at {address} is busy with another test: wait until it ends, or use another -p"
    )]
    Busy {
        /// Its synchronisation address.
        address: SocketAddr,
    },
    /// The receiver will not run this test.
    #[error("the receiver at {address} refused the test: {reason}")]
    Refused {
        /// Its synchronisation address.
        address: SocketAddr,
        /// In its own words, or ours where it gave none.
        reason: String,
    },
    /// The synchronisation connection broke before the test began.
    #[error(
        "lost the receiver at {address} while {during} ({source}): is it an NTttcp receiver? `-ns` or `-N` on both ends runs without synchronisation"
    )]
    SyncLost {
        /// Its synchronisation address.
        address: SocketAddr,
        /// What was being done.
        during: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// The peer answered something that is not part of the protocol.
    #[error(
        "the peer at {address} does not speak NTttcp's synchronisation: {detail}. Check -p, or run both ends with `-ns` or `-N`"
    )]
    Garbled {
        /// Its synchronisation address.
        address: SocketAddr,
        /// What was wrong.
        detail: String,
    },
    /// No sender within the limit of `--wait`.
    #[error("no sender connected within {seconds} s: start one, or raise --wait (0 waits forever)")]
    NobodyCame {
        /// The limit.
        seconds: u64,
    },
    /// The run was stopped before anything was measured.
    #[error("stopped before the measurement began")]
    StoppedEarly,
    /// More connections than this process may have files.
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
        /// What the kernel said.
        source: Errno,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A plan that cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// Anything else the system refused.
    #[error("cannot {doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What went wrong below.
        source: std::io::Error,
    },
}

impl TrafficError {
    /// For `map_err`: the system refused something that has no case of its own.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| TrafficError::System { doing, source: source.into() }
    }
}
