//! Proves by probes how large a packet each path between hosts carries, and names what limits it.
//!
//! Each host runs a [`Responder`]. A checker, `millrace mtu check`, connects to all of them
//! ([`session`]) and has each send probes to its peers: UDP datagrams with don't-fragment at the
//! MTU and at the MTU + 1 (`probe`). A responder acknowledges with a few bytes what arrived whole,
//! so one order proves one direction. [`plan`] says which pairs are probed, [`probing`] does it for
//! a host and searches for what a failing direction does carry, [`check`] for all, and [`judge`]
//! makes findings of the observations: which hop, which values, which remedy. `judge` and `plan`
//! are pure; only `socket` and `interface` speak to the kernel.
//!
//! The messages have a fixed length in both directions ([`frame`]), so no responder answers with
//! more bytes than it got.

pub mod check;
pub mod frame;
mod interface;
pub mod judge;
pub mod local;
pub mod picture;
pub mod plan;
mod probe;
pub mod probing;
mod rate;
pub mod report;
mod responder;
pub mod session;
mod socket;

pub use interface::{Address, addresses, device_mtu};
pub use responder::{Options, Responder};
