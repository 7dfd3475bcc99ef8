//! The control plane: what an operator wants becomes what the switch does.
//!
//! A strict TOML file or an API request is read into a [`config::Config`]; [`plan`] compares it with what runs and gives
//! the few steps between the two; [`running`] carries them out on the switch. The [`daemon`] does this on one tokio thread
//! and serves a REST [`api`] on a Unix socket, and a page for people (`web`) where that is wanted; [`client`] is its other side, used by the command line and by the lab.
//! Nothing here is ever called per frame.

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
pub mod memory;
mod metrics;
pub mod migration;
mod numa;
pub mod plan;
mod problem;
pub mod reference;
mod replacement;
pub mod running;
mod sandbox;
pub mod state;
pub mod token;
mod topology;
mod trace;
mod web;

pub use problem::Problem;
pub use replacement::Replacement;

#[cfg(test)]
mod generate;
