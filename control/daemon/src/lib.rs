//! The control plane: turns the configuration that an operator wants into the switch's state.
//!
//! A strict TOML file or an API request is read into a [`config::Config`]. [`plan`] compares it
//! with the running configuration and returns the steps between the two; [`running`] carries them
//! out on the switch. The [`daemon`] does this on one tokio thread, and serves a REST [`api`] on a
//! Unix socket and optionally a web page (`web`). [`client`] is the API's other side, used by the
//! command line and the lab. Nothing here runs per frame.

mod accounts;
mod actor;
pub mod api;
pub mod body;
pub mod client;
pub mod config;
pub mod daemon;
mod descriptors;
pub mod devices;
mod event_log;
mod guest;
pub mod handover;
pub mod health;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod migration;
mod numa;
pub mod plan;
mod problem;
pub mod recent;
pub mod reference;
mod replacement;
pub mod running;
mod sandbox;
pub mod site;
pub mod state;
pub mod token;
mod topology;
mod trace;
mod web;

pub use problem::Problem;
pub use replacement::Replacement;

#[cfg(test)]
mod generate;
