//! Traces what the switch would do with frames, and why: `POST /v1/trace`.
//!
//! A copy of the switch ([`datapath::Snapshot`]) processes the frames with the data path's own
//! code. This module reads a frame from words ([`expression`], [`frame`]), and explains what the
//! copy counted, learned and delivered as steps ([`explain`]).

mod explain;
mod expression;
mod frame;
mod reasons;
mod seen;
mod words;

use api::body::TraceBody;
use config::PortConfig;
use datapath::{PortId, Snapshot};
pub(crate) use expression::{Expression, MOST_BYTES, MOST_FRAMES};
pub(crate) use frame::Addresses;
use ports::memory::MemoryFrame;
use std::collections::BTreeMap;

/// The inputs of a trace.
pub(crate) struct Prepared {
    pub(crate) from: PortId,
    /// The configurations of the open ports.
    pub(crate) configs: BTreeMap<PortId, PortConfig>,
    pub(crate) frames: Vec<MemoryFrame>,
    /// Number of frames of each turn.
    pub(crate) turns: Vec<usize>,
    pub(crate) snapshot: Snapshot,
    /// What was assumed about the frames.
    pub(crate) notes: Vec<String>,
}

impl Prepared {
    /// Runs the trace on the copy of the switch. Takes milliseconds if the switch has many ports.
    pub(crate) fn run(self) -> TraceBody {
        let Prepared { from, configs, frames, turns, snapshot, notes } = self;
        let mut rehearsal = snapshot.rehearse();
        let port = configs.get(&from).map(|config| config.name.to_string()).unwrap_or_default();
        let mut rest = frames.as_slice();
        let mut turn = |count: usize| {
            let (frames, later) = rest.split_at(count.min(rest.len()));
            rest = later;
            explain::turn(&mut rehearsal, from, &configs, frames)
        };
        TraceBody { port, notes, turns: turns.into_iter().map(&mut turn).collect() }
    }
}
