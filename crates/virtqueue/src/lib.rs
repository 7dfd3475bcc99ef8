//! Virtqueues by burst: the device side of split rings (virtio 1.2, section 2.7) and packed rings (section 2.8), and a
//! [driver] side for in-process guests and tests.
//!
//! A [`Queue`] is built from a guest's memory and a [`Setup`], and is used by one worker at a time. It is an enum that a
//! port matches once per burst; what it holds is a [`Virtqueue`] of either format, with the same verbs:
//!
//! * **Ingress** (a guest's transmit queue): [`Virtqueue::take`] walks what has been made available,
//!   [`Virtqueue::taken`] lists the pieces of each chain, [`Virtqueue::complete`] gives them back in one publish.
//! * **Egress** (a guest's receive queue): [`Virtqueue::reserve`] finds room for one frame, several buffers where
//!   they are mergeable; the caller copies the frame; [`Virtqueue::publish`] hands over all of them at once.
//! * **Requests** (a control queue): [`Virtqueue::take_request`] and [`Virtqueue::answer`].
//!
//! Buffers are used in the order in which the driver made them available, so IN_ORDER costs nothing, and the used position is
//! all that a successor needs to resume ([`Virtqueue::base`]).
//!
//! **Cost.** Per burst: one read of the driver's index (split), one publish, one fence, one decision about notification.
//! Per frame of one descriptor, in instructions (`benches/instructions.rs`): see the table there. A packed ring touches
//! one line of ring memory for four frames, a split ring three lines (descriptors, available, used) for four, 32
//! and eight frames. There is no division, and no bounds check that a mask or an invariant makes needless. The first
//! line of each buffer is prefetched while the burst is still being walked.
//!
//! **Trust.** What a guest wrote is copied once, checked, then used. What it may not do is a [`QueueFault`], which stops
//! the queue for good; nothing here panics on it. Unsafe is confined to
//! `shared`, which turns checked places into slices of atomics.

mod chain;
mod descriptor;
pub mod driver;
mod event;
mod fault;
mod list;
mod packed;
mod packed_area;
mod piece;
mod prefetch;
mod queue;
mod setup;
mod shared;
mod split;
mod split_area;
mod virtqueue;

pub use fault::QueueFault;
pub use packed::Packed;
pub use piece::Piece;
pub use queue::Queue;
pub use setup::{Features, Rings, Setup, SetupError};
pub use split::Split;
pub use virtqueue::{Limit, Request, Reservation, Ring, Room, Virtqueue};
