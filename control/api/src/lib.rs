//! The REST API as both ends see it: the bodies that travel, and a blocking client.
//!
//! The daemon serves the API (its handlers are in the daemon's crate). The command line, the
//! fleet's agent, the CNI plugin and the lab use the [`client`].

pub mod body;
pub mod client;
