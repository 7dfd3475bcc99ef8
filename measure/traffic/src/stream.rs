//! A connection of a sending thread, for bulk data and for round trips.

use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// One connection of a sending thread.
pub(crate) struct Stream {
    pub(crate) socket: Arc<OwnedFd>,
    /// The number in the whole run, which the payload carries where it is verified.
    pub(crate) number: u64,
    /// Bytes sent so far.
    pub(crate) sent: u64,
    /// When the request under way was made, where requests are timed.
    pub(crate) since: Option<Instant>,
    /// False once the connection broke.
    pub(crate) alive: bool,
}
