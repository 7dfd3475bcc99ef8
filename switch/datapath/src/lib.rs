//! The switch: frames from ingress queues to egress queues.
//!
//! [`Switch`] is the control plane's handle. Each worker (worker.rs) takes bursts from the queues
//! it owns and carries every frame through one turn:
//!
//! ```text
//! take -> parse (frame) -> admit, look up (decide, macs) -> steer -> coalesce -> fit (segment) -> deliver -> release
//! ```
//!
//! A worker sees ports and settings through an immutable view (view.rs); a new view arrives by
//! mailbox (mailbox.rs) between turns. Time is an argument everywhere below the worker's loop.

pub mod acl;
mod acl_table;
mod addresses;
mod black_hole;
mod capture;
mod coalesce;
pub mod counters;
mod decide;
mod deliver;
mod filter;
mod filter_table;
mod fit;
mod followed;
mod frame;
pub mod guard;
mod handle;
mod hash;
mod headers;
mod macs;
mod mailbox;
pub mod mark;
mod offload;
pub mod options;
mod outbox;
mod owned;
mod parts;
mod policy;
mod pressure;
mod rate;
mod segment;
pub mod settings;
mod share;
mod state;
pub mod status;
mod steer;
mod steering;
pub mod switch;
mod too_big;
mod turn;
mod view;
mod vlan;
mod wait;
mod weights;
mod work;
mod worker;

pub use acl::{AclAction, AclEnd, AclProtocol, AclRule};
pub use counters::{DropReason, PortCounters, RscException};
pub use guard::{Guards, Prefix};
pub use mark::AclMark;
pub use options::{SwitchError, SwitchOptions, Wait, WorkerOptions};
pub use settings::{
    PathMtu, PortId, PortRole, PortSettings, RateLimit, Rsc, RscPolicy, Rss, Steer, StormLimit,
    Vlan, VlanSet,
};
pub use status::{
    HealthEvent, MacEntry, PortInfo, PortState, QueueInfo, RscFailureReason, RscStatus, RssInfo,
    WorkerInfo,
};
pub use switch::Switch;
pub use switch::rehearsal::{Rehearsal, Snapshot};
