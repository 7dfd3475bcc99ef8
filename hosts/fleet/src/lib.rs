//! A fleet: the desired state of many hosts' switches, kept in etcd, rolled out in steps, and
//! applied by an agent on each host.
//!
//! People write a [`model`] as TOML files. [`configuration`] turns the model and a host into that
//! host's configuration, in the types of crate `control`; [`preview`] shows as one plan per host
//! what a new model would change. The [`store`] keeps numbered revisions of the model in etcd,
//! which [`etcd`] reaches through its HTTP gateway. An [`Apply`] makes a revision and moves the
//! hosts to it step by step. A [`CheckMtu`] has the hosts probe the paths between them, and a
//! [`Validate`] has two of them run an experiment of the lab. [`certificates`] and [`bootstrap`]
//! set up users and their rights. The [`agent`] runs on each host: it applies the host's part
//! through the daemon's API and writes a status.
//!
//! The daemon knows nothing of etcd. Losing etcd or an agent changes no traffic.

pub mod agent;
mod apply;
pub mod bootstrap;
pub mod certificates;
pub mod configuration;
mod difference;
pub mod etcd;
mod gate;
mod migrating;
pub mod model;
mod moving;
mod mtu;
mod name;
mod owners;
pub mod page;
mod place;
mod plan;
mod preview;
mod request_lease;
mod rollout;
mod secret;
mod shortened;
mod stages;
mod status;
pub mod store;
mod time;
mod validate;

pub use apply::{Applied, Apply, back};
pub use difference::{Change, difference};
pub use migrating::migrate_port;
pub use moving::move_port;
pub use mtu::CheckMtu;
pub use name::Name;
pub use place::{Place, place};
pub use plan::{HostPlan, Unfit};
pub use preview::{Preview, preview};
pub use status::{FleetStatus, HostStatus, Move, Observer, Stage};
pub use time::{ago, now};
pub use validate::Validate;
