//! Guests whose memory is still on its way when they begin to run here (post-copy migration).
//!
//! A page that has not arrived blocks the thread that touches it until the front end has it. A
//! worker must not wait for that, as it serves other ports. And the descriptor by which the front
//! end hears of such accesses (a userfaultfd) has power over all addresses of the process that made
//! it, so it cannot be one of the daemon's.
//!
//! So a process of its own, the [`ferry`], has the guest's memory mapped and touches it, waits where
//! it must, and copies frames between the guest's rings and [`relay`] rings in private memory. A
//! worker finds a relay ring in the guest's [`RingSlot`](crate::RingSlot) and uses it like any
//! other: while one page is awaited its vNIC rests, and no other. Once all pages are here
//! (`POSTCOPY_END`) the guest's own rings take the place of the relays, and the ferry ends. Without
//! post-copy none of this costs the data path anything.
//!
//! Ferries are started by the [`dock`], because a daemon that has restricted itself starts no
//! process. A ferry that its front end has taken over can do to the session what the front end can:
//! what it answers is checked, and its relays are read as a guest's memory is.

mod carried;
mod crossing;
pub mod dock;
mod faults;
mod ferry;
mod handle;
mod handover;
mod link;
mod order;
mod progress;
mod relay;

pub(crate) use crossing::{Crossing, Departure};
pub(crate) use handle::Ferry;
pub(crate) use handover::Handover;
pub(crate) use order::Order;
pub(crate) use progress::PostCopy;
