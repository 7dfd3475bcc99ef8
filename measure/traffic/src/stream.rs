//! A connection of a sending thread, for bulk data and for round trips.

use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// One connection of a sending thread.
pub(crate) struct Stream {
    pub(crate) socket: Arc<OwnedFd>,
    /// Number of the connection in the whole run; verified payload carries it.
    pub(crate) number: u64,
    /// Bytes sent so far.
    pub(crate) sent: u64,
    /// When the current request began, where requests are timed.
    pub(crate) since: Option<Instant>,
    /// Whether the connection is intact.
    pub(crate) alive: bool,
}
