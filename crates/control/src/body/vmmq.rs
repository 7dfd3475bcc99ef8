//! Dynamic VMMQ: what moved, and the figures that caused it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One move. Loads are shares of one worker; above 1: more than a worker has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmmqMoveBody {
    /// When, in seconds since the daemon started.
    pub at_s: f64,
    /// The port.
    pub port: String,
    /// What moved, as in `queue 0`.
    pub item: String,
    /// Its worker before.
    pub from: usize,
    /// Its worker since.
    pub to: usize,
    /// `expand`, `probe`, `relieve`, `isolate`, `home`, `coalesce` or `leave`.
    pub reason: String,
    /// The threshold that caused it.
    pub threshold: f64,
    /// What the item was expected to take on `to`.
    pub load: f64,
    /// Load of `from` before the move, and expected after it.
    pub from_load: [f64; 2],
    /// Load of `to` before the move, and expected after it.
    pub to_load: [f64; 2],
    /// The same as a sentence.
    pub text: String,
}
