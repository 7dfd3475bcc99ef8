//! A guest in this process: the partner of the tests and benches of `virtqueue`, `vhost-user` and
//! the data path. Not part of the switch.
//!
//! * [`driver`] is the driver side of a ring of either format. It shares no code with the device
//!   side in `virtqueue`, so a mistake about the specification shows as a disagreement of the two.
//! * [`Guest`] is a running guest: the front end of a vhost-user session (by the `vhost` crate,
//!   which is not ours), and a driver for each of its rings.
//! * [`Replay`] is a guest too, with a front end of ours that sends what another one sends: the
//!   [`FrontEnd`] that it is named for, as its sources have it.
//!
//! If a guest has put its own rings outside its memory, this crate panics, because the test is
//! wrong.
#![allow(clippy::expect_used, reason = "a guest that fails is a failed test")]

mod arrival;
pub mod driver;
mod front_end;
mod guest;
mod guest_ring;
mod replay;
mod shared;
mod wire;

/// Feature bits that change what a guest does (virtio 1.2, section 6, and the vhost-user
/// specification).
mod feature {
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const RING_PACKED: u64 = 1 << 34;
    pub(crate) const HASH_REPORT: u64 = 1 << 57;
}

pub use arrival::Arrival;
pub use front_end::FrontEnd;
pub use guest::{Guest, GuestError};
pub use replay::Replay;
