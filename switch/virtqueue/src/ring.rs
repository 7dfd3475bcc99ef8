//! What a queue does with a ring, whatever its format.

use crate::chain::{Chain, Walk, Want};
use crate::{QueueFault, RingAddresses, SetupError};
use guestmem::{DirtyLog, GuestMemory};
use std::sync::Arc;

/// Limits of one take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Chains at most.
    pub chains: usize,
    /// Bytes after which no further chain is taken.
    pub bytes: usize,
}

/// A ring format: what [`Queue`](crate::Queue) does with the ring's memory.
pub(crate) trait Ring {
    /// Walks available chains, as far as the limit allows.
    fn take(&mut self, walk: &mut Walk, limit: Limit, want: Want) -> Result<(), QueueFault>;
    /// Publishes the oldest chains as used. Returns whether to notify the driver.
    fn give_back(&mut self, chains: &[Chain]) -> bool;
    /// Finds the ring in other memory, and steps back to the oldest chain that was not given back.
    fn remap(&mut self, memory: &Arc<GuestMemory>, rings: RingAddresses) -> Result<(), SetupError>;
    /// See [`Queue::arm`](crate::Queue::arm).
    fn arm(&mut self) -> bool;
    /// See [`Queue::disarm`](crate::Queue::disarm).
    fn disarm(&mut self);
    /// See [`Queue::base`](crate::Queue::base).
    fn base(&self) -> u32;
    /// Marks all that the device writes of the ring: one before us may have written it and not
    /// lived to mark it.
    fn log_start(&self, log: &DirtyLog);
    /// Marks what giving back these chains at that base has written.
    fn log_used(&self, log: &DirtyLog, base: u32, chains: &[Chain]);
    /// Marks what [`Ring::arm`] and [`Ring::disarm`] write.
    fn log_wish(&self, log: &DirtyLog);
}
