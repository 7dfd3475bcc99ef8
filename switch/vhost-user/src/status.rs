//! What people are told about a session.

use crate::{Features, Negotiated};
use std::ops::Range;

/// How a vNIC is doing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// No front end is connected.
    #[default]
    Waiting,
    /// A front end is connected, its guest's driver is not ready.
    Connected,
    /// The guest can send and receive.
    Running,
    /// The guest or its front end did what it may not. Over when it starts the ring anew or
    /// reconnects.
    Broken(String),
}

/// A session as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Status {
    /// How it is doing.
    pub state: State,
    /// Rings wait for the log that a migration needs.
    pub awaits_log: bool,
    /// What was offered.
    pub offered: Features,
    /// What the guest took when it negotiated.
    pub taken: Features,
    /// What holds now.
    pub negotiated: Negotiated,
    /// Bytes of guest memory that are mapped.
    pub memory: u64,
    /// Where: addresses of this process, a range for each region.
    pub mapped: Vec<Range<u64>>,
    /// Front ends that have connected since the session was opened.
    pub connections: u64,
    /// The process of the one that is connected, where it has connected to us: vNICs of one guest
    /// have one.
    pub process: Option<u32>,
    /// The guest is to see its link down, or sees it.
    pub is_unplugged: bool,
}
