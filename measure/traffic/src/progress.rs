//! Progress events of a run, for its caller.

use std::net::{IpAddr, SocketAddr};

/// What happens while a run is under way, for whoever shows it. Rates come twice a second.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The receiver listens; this is its first data port.
    Listening(SocketAddr),
    /// So many connections are open (sender) or the first one is (receiver).
    Connected(usize),
    /// Data came to the receiver before any synchronisation: a sender that has none, or Windows
    /// NTttcp, whose comes next.
    Unsynchronised,
    /// The receiver takes data and not ntttcp-for-linux's synchronisation: Windows NTttcp's is
    /// tried.
    Tokens(IpAddr),
    /// The receiver waits for more senders.
    AwaitingOthers,
    /// Traffic flows and does not count yet.
    WarmUp,
    /// Traffic flows and counts.
    Measuring,
    /// What the application moved since the last time.
    Rate {
        /// Bytes per second.
        bytes_per_s: f64,
    },
    /// Traffic flows and counts no more.
    CoolDown,
}
