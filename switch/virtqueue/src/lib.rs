//! Virtqueues by burst: the device side of split rings (virtio 1.2, section 2.7) and packed rings
//! (section 2.8).
//!
//! A [`Queue`] is built from a guest's memory and a [`Setup`], and is used by one worker at a time.
//! Its ring is of either format, and its verbs are the same:
//!
//! * **Ingress** (a guest's transmit queue): [`Queue::take`] walks what has been made available,
//!   [`Queue::taken`] lists the elements of each chain, [`Queue::complete`] gives them back in one
//!   publish.
//! * **Egress** (a guest's receive queue): [`Queue::reserve`] finds room for one frame, several
//!   buffers where they are mergeable; the caller copies the frame; [`Queue::publish`] hands over
//!   all of them at once.
//! * **Control chains** (a control queue): [`Queue::take_control`] and [`Queue::answer`].
//!
//! Buffers are used in the order in which the driver made them available, so IN_ORDER costs
//! nothing, and the used position is all that a successor needs to resume ([`Queue::base`]).
//!
//! **Cost.** Per burst: one read of the driver's index (split), one publish, one fence, one
//! decision about notification. Instructions a frame, of one descriptor, in a burst of 256
//! (`cargo bench --bench instructions`):
//!
//! | | split | packed | packed, IN_ORDER |
//! |---|---|---|---|
//! | take, look at each element, complete | 63 | 78 | 64 |
//! | reserve, publish | 100 | 116 | |
//!
//! About 40 of each are the walk: read a head, read a descriptor, check it, translate, note it
//! down. A frame that crosses the switch pays one of each row, 163 to 194 instructions; at two
//! a cycle that is about half of the 180 cycles that 15 million frames a second leave at 2.7 GHz, and
//! the rest is memory. A packed ring touches one line for four frames, a split ring three lines
//! (descriptors, available, used) for four, 32 and eight. The first line of each buffer is
//! prefetched while the burst is still being walked. There is no division, and what is a slice's
//! bound check serves as the check of the guest's numbers.
//!
//! **Trust.** What a guest wrote is copied once, checked, then used. What it may not do is a
//! [`QueueFault`], which stops the queue for good; nothing here panics on it. Unsafe is `shared`,
//! which turns checked places into slices of atomics, and three small files about elements,
//! prefetches and requests.

mod any_ring;
mod chain;
mod chain_element;
mod descriptor;
mod event;
mod fault;
mod journal;
mod lent;
mod list;
mod packed;
mod packed_area;
mod prefetch;
mod queue;
mod request;
mod ring;
mod setup;
mod shared;
mod split;
mod split_area;

pub use chain::ELEMENT_WEIGHT;
pub use chain_element::ChainElement;
pub use fault::QueueFault;
pub use journal::InflightJournal;
pub use lent::{ControlChain, FrameBuffers, Reserved};
pub use queue::{BatchNumber, Queue};
pub use ring::Limit;
pub use setup::{RingAddresses, RingFeatures, Setup, SetupError};
