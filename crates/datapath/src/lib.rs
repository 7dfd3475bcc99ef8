//! The switch: frames from ingress queues to egress queues, one [`turn`](worker) at a time.
pub mod counters;
pub mod settings;
pub mod status;
pub mod switch;

pub use counters::{DropReason, PortCounters, RscException};
pub use settings::{PortId, PortSettings, RateLimit, Role, Rsc, RscPolicy, Vlan, VlanSet};
pub use status::{
    HealthEvent, MacEntry, PortInfo, PortState, RscFailureReason, RscStatus, WorkerInfo,
};
pub use switch::{Switch, SwitchError, SwitchOptions, Wait, WorkerOptions};
