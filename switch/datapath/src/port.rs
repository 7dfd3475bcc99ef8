//! The state of the ports, which the stages read: what the control plane has set, what of it is
//! compiled for the stages, and what a port remembers from one turn to the next.
//!
//! [`view`] is the snapshot that holds all of it for one turn.

pub(crate) mod acl;
pub(crate) mod bucket;
pub(crate) mod capture;
pub(crate) mod carry;
pub(crate) mod filter_table;
pub(crate) mod followed;
pub(crate) mod macs;
pub(crate) mod pacer;
pub(crate) mod policy;
pub(crate) mod rate;
pub(crate) mod state;
pub(crate) mod steering;
pub(crate) mod view;
pub(crate) mod weights;
