//! Opens the devices that a port's configuration names, and keeps their descriptors for the next
//! process.
//!
//! The daemon sees an [`Opener`], which opens a port's device, and for each open port a [`Watch`],
//! which says how the device is. [`HostDevices`] opens the devices of this host: it is the only
//! code that knows the kinds of devices (`tap`, `veth`, `packet`, `xdp`, `team`, `vhost`). Tests have an
//! opener of their own, so that they run the whole control plane on memory ports. Descriptors that
//! outlive the process are in an opener's [`store`].

pub mod accounts;
mod contract;
mod guest;
mod host;
mod link;
mod own_mac;
mod packet;
mod resume;
pub mod store;
mod tap;
mod team;
mod veth;
mod vhost;
mod xdp;

pub use contract::{Condition, DeviceState, OpenError, Opened, Opener, Watch};
pub use host::HostDevices;
pub use team::{team_algorithm, team_fail_back};
