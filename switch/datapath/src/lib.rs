//! The switch: carries frames from ingress queues to egress queues.
//!
//! Four roles, each a module of its own that uses only those above it:
//!
//! - **port** (port.rs): what the switch knows about a port. A view (port/view.rs) is the immutable
//!   snapshot of all ports that a worker uses for a turn.
//! - **turn** (turn.rs): one burst of one ingress queue, and what its stages pass to each other.
//! - **stage** (stage.rs): the steps of a turn, in their order.
//! - **worker** (worker.rs): a thread, the ingress queues that it owns, and the rounds in which it
//!   gives each of them a turn.
//!
//! [`Switch`] is the control plane's handle: it makes views of the ports' [`settings`], and sends
//! them to the workers.
//!
//! The life of a frame, in one turn:
//!
//! ```text
//! take     a burst from an ingress queue; payload stays in the source's buffers
//! read     each frame's headers into private bytes, parsed once    (frame.rs)
//! filter   what the port may not send; mark the rest
//! decide   whether it may enter, and by which port it leaves       (port/macs.rs)
//! steer    which of that port's egress queues; into its list       (turn/outbox.rs)
//!          then, for each egress queue's list:
//! filter   what the port may not receive
//! coalesce segments of one flow to a train
//! fit      tags, segmentation and checksums to what the port takes
//! deliver  in one call; then the burst is released to its source
//! ```
//!
//! Time is an argument everywhere below the worker's loop.

pub mod counters;
mod flow;
mod frame;
pub mod options;
mod port;
pub mod settings;
mod stage;
pub mod status;
pub mod switch;
mod turn;
mod worker;

pub use counters::{DropReason, PortCounters, RscException};
pub use flow::{FIRST as FLOWS_EXACT, Flow, FlowCounts, ONE_IN as FLOWS_ONE_IN, SeenFlow};
pub use options::{SwitchError, SwitchOptions, Wait, WorkerOptions};
pub use port::carry::Slow;
pub use settings::acl::{AclAction, AclEnd, AclProtocol, AclRule};
pub use settings::guard::Guards;
pub use settings::mark::AclMark;
pub use settings::{
    PathMtu, PortId, PortRole, PortSettings, RateLimit, Rsc, RscPolicy, Rss, Steer, StormLimit,
    Vlan,
};
pub use status::{
    GuestRss, HealthEvent, MacEntry, PortInfo, PortState, QueueInfo, RscFailureReason, RscStatus,
    RssInfo, Waits, WorkerInfo,
};
pub use switch::kernel_path::CarriedFlow;
pub use switch::rehearsal::{Rehearsal, Snapshot};
pub use switch::{NewPort, Switch};
pub use wire::{Prefix, VlanSet};
