//! Flows: who talks to whom. A worker looks at some of the frames that it delivers and drops, and
//! adds them up in a table, which the control plane takes once a second.
//!
//! Which frames are looked at says [`sampler`]: the first ones of each millisecond, and of the
//! others one in [`ONE_IN`]. The stages call [`watch`] once for each list that they deliver and for
//! frames that they drop. Nothing here is in the view: a switch that was never asked has no tables.

mod key;
mod sampler;
mod sequence;
mod table;
pub(crate) mod watch;

use crate::counters::DropReason;
use crate::settings::PortId;
use std::net::IpAddr;
use wire::Mac;

pub(crate) use key::Key;
pub use sampler::{FIRST, ONE_IN};
pub(crate) use table::FlowTable;

/// What frames of one flow have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// The port they came from; `None` if they had waited for the rate of the other port.
    pub from: Option<PortId>,
    /// The port they left by or were to leave by; `None` if they were dropped before that was
    /// decided, or if they are for a group.
    pub to: Option<PortId>,
    /// Their VLAN inside the switch; of a frame that was not admitted, that of its tag.
    pub vlan: u16,
    /// The source address.
    pub source_mac: Mac,
    /// The destination address.
    pub destination_mac: Mac,
    /// The EtherType behind the tags.
    pub ethertype: u16,
    /// The source and destination of IP and ARP.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The IP protocol.
    pub protocol: Option<u8>,
    /// The source and destination port of TCP and UDP.
    pub ports: Option<(u16, u16)>,
}

/// What is known of a flow. All but `sampled` is scaled up to the frames that were not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Frames as they were to leave; a train is one.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their segments: of a frame that is no train, one.
    pub segments: u64,
    /// Of TCP, frames with bytes that an earlier frame had: sent again, or overtaken.
    pub resent: u64,
    /// Frames that were looked at.
    pub sampled: u64,
}

impl FlowCounts {
    /// Returns what was added since an earlier reading; all of it if counting has begun anew.
    #[must_use]
    pub fn since(&self, earlier: &FlowCounts) -> FlowCounts {
        if self.frames < earlier.frames || self.bytes < earlier.bytes {
            return *self;
        }
        FlowCounts {
            frames: self.frames - earlier.frames,
            bytes: self.bytes - earlier.bytes,
            segments: self.segments.saturating_sub(earlier.segments),
            resent: self.resent.saturating_sub(earlier.resent),
            sampled: self.sampled.saturating_sub(earlier.sampled),
        }
    }

    /// Adds others.
    pub fn add(&mut self, more: &FlowCounts) {
        self.frames = self.frames.saturating_add(more.frames);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.segments = self.segments.saturating_add(more.segments);
        self.resent = self.resent.saturating_add(more.resent);
        self.sampled = self.sampled.saturating_add(more.sampled);
    }
}

/// A flow of a worker's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenFlow {
    /// The flow.
    pub flow: Flow,
    /// Why its frames were dropped; `None` for those that were to be delivered.
    pub dropped: Option<DropReason>,
    /// What was seen of it since the table was taken last.
    pub counts: FlowCounts,
}
