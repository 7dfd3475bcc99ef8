//! The daemon: makes the switch what its configuration says.
//!
//! [`config::plan`] compares the wanted [`config::Config`] with the running one and returns the
//! steps between the two; [`running`] carries them out on the switch. One thread owns the running
//! switch and takes commands (`commands`). Another runs tokio: the [`server`] polls, handles
//! signals and serves the REST API ([`handlers`]) on a Unix socket and optionally a web page
//! (`web`), all of them by commands. The API's bodies and its client are in [`api`]. Nothing here
//! runs per frame.

mod actor;
mod api_socket;
mod commands;
mod connections;
mod descriptors;
mod event_log;
mod flows;
mod guest;
pub mod handlers;
mod handover;
pub mod health;
mod history;
pub mod log;
pub mod metrics;
pub mod migration;
mod numa;
mod own_host;
mod page_keys;
mod peer;
mod peer_groups;
mod preflight;
mod private_tmp;
pub mod recent;
pub mod reference;
mod replacement;
pub mod running;
mod sandbox;
pub mod server;
mod settings;
mod shared;
pub mod site;
mod source;
pub mod state;
mod topology;
mod trace;
mod web;

pub use replacement::Replacement;
