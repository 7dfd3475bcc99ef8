//! Proves by probes how large a packet each path between hosts carries, and names the hop that
//! limits it.
//!
//! Each host runs a [`Responder`]. A checker, `millrace mtu check`, connects to all of them
//! ([`session`]) and makes each send probes to its peers: UDP datagrams with don't-fragment at the
//! MTU and at the MTU + 1 (`probe`). A responder acknowledges each probe that arrived whole with a
//! few bytes, so one order proves one direction. [`networks`] sorts the hosts by where their
//! addresses are attached ([`attachment`]), and [`plan`] chooses the pairs to probe. [`probing`]
//! probes for one host, and searches for the largest size that a failing direction carries;
//! [`check`] does so for all hosts. [`judge`] makes findings of the observations: which hop, which
//! values, which remedy. `judge`, `networks` and `plan` do no I/O; only `socket`, `interface` and
//! `netlink` call the kernel.
//!
//! The messages have a fixed length in both directions ([`frame`]), so no responder answers with
//! more bytes than it got.

pub mod attachment;
pub mod check;
pub mod frame;
mod interface;
pub mod judge;
pub mod local;
mod netlink;
pub mod networks;
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
