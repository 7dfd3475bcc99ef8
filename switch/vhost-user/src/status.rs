//! The status of a session.

use crate::{Features, Negotiated};
use std::ops::Range;

/// The state of a vNIC.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// No front end is connected.
    #[default]
    Waiting,
    /// A front end is connected, but its guest's driver is not ready.
    Connected,
    /// The guest can send and receive.
    Running,
    /// The guest or its front end broke the protocol. This ends when it starts the ring anew or
    /// reconnects.
    Broken(String),
}

/// A snapshot of a session.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Status {
    /// The state of the vNIC.
    pub state: State,
    /// Whether rings wait for the log that a migration needs.
    pub awaits_log: bool,
    /// Features that were offered.
    pub offered: Features,
    /// Features that the guest acknowledged when it negotiated.
    pub taken: Features,
    /// The current agreement.
    pub negotiated: Negotiated,
    /// Guest memory that is mapped, in bytes.
    pub memory: u64,
    /// Where it is mapped, as addresses of this process: one range for each region.
    pub mapped: Vec<Range<u64>>,
    /// Front ends that have connected since the session was opened.
    pub connections: u64,
    /// The process id of the connected front end, if it connected to our socket. The vNICs of one
    /// guest have the same one.
    pub process: Option<u32>,
    /// Whether the guest sees its link down, or will once it runs.
    pub is_unplugged: bool,
    /// Whether it was told so by a message, with its connection kept.
    pub is_told: bool,
}
