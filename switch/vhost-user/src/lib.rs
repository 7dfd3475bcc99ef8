//! The back end of vhost-user sessions: what a virtual machine monitor, a DPDK application or a
//! user-mode Linux says over a Unix socket becomes rings that a worker of the switch may use.
//!
//! A [`Session`] is one vNIC. It has a thread of its own, which listens at the socket (or connects
//! to it, and again for ever), reads the front end's messages, and fills the vNIC's [`RingSlot`]s.
//! A port takes what it needs from them, burst by burst:
//!
//! * ingress (the guest's transmit queues, odd numbers) by [`RingSlot::borrow`] and
//!   [`RingSlot::give_back`], so that what the guest lent stays mapped from take to release, while
//!   the session waits;
//! * egress (the guest's receive queues, even numbers) by [`RingSlot::begin`] and
//!   [`RingSlot::end`], between which a burst is copied without the lock.
//!
//! What the guest takes of the offered [`Features`], and how many of its queue pairs it uses, is
//! told to the port at once by the `changed` callback of [`Options`]; what it sets by commands about
//! the frames that it receives ([`GuestSettings`]), by `commanded`.
//!
//! **Reconnecting.** When the front end goes, the rings are taken away and its memory is unmapped;
//! the session waits for the next one without limit of time. Buffers are used in order, so the used
//! index in the guest's own ring is all that a new back end needs to go on where the last one
//! stopped. A packed ring has no such index: it goes on where the front end's inflight region says,
//! if the front end keeps one, and else only after an orderly stop.
//!
//! **Handing over.** A session may go on in another process: [`Session::suspend`] stops its rings
//! at a turn's boundary and gives a descriptor with all that the next one takes to open it
//! ([`Session::open_with`]). The front end notices nothing, and a record is checked like messages.
//!
//! **Trust.** A front end that breaks the protocol, or a guest that breaks a ring, breaks its own
//! vNIC: [`State::Broken`], with the reason, until it starts the ring anew or reconnects. The
//! messages are decoded by the `vhost` crate, which checks their sizes, but for a few that it does
//! not know (`message.rs`); what they say is checked here and in `guestmem` and `virtqueue`.
//!
//! **Link down.** A front end that takes changes of the configuration space is told of one
//! (`back_channel.rs`), and its guest reads the link's state there. Any other is told by the end of
//! its connection ([`Session::set_link`]): the one way that QEMU passes on to a network device's
//! guest (`plug.rs`).
//!
//! **Post-copy.** A guest may run here before its memory has arrived (`post_copy.rs`).
//!
//! **Announcing.** When a guest comes to run here, frames that announce its address are left at its
//! first sending ring, and taken before those in the ring. The address is the one that the front
//! end names by `SEND_RARP`, which may come before any ring is known, else [`Options::mac`]. Later
//! `SEND_RARP`s announce it again.
//!
//! **Locks.** A guest decides how long its memory takes to be touched, so a worker copies without
//! its ring's lock (`lock.rs`). A worker holds it while it walks the ring itself, the session while
//! it serves a bounded number of commands. Only those two and a change of the ring take it. Whatever
//! answers people
//! ([`Session::status`], and with it the API, health and the watchdog) takes no lock that is held
//! while a guest's memory is touched: what it needs is kept beside the ring. Whatever a guest can
//! fill again while it is emptied is emptied in bounded steps, and messages, the end of the session
//! and other queues have their turn between.

mod asked;
mod back_channel;
mod backend;
mod carrier;
mod closer;
mod compat;
mod config_space;
mod control;
mod error;
mod features;
mod guest_settings;
mod hold;
mod inflight;
mod lock;
mod log_limit;
mod memory_pace;
mod message;
mod migration;
mod negotiated;
mod options;
mod plug;
mod post_copy;
mod receive_filter;
mod reconnect_backoff;
mod resume;
mod ring_slot;
mod session;
mod signal;
mod slots;
mod socket;
mod status;
mod vring;

pub use compat::Compat;
pub use error::SessionError;
pub use features::Features;
pub use guest_settings::{GuestHash, GuestSettings, GuestTable};
pub use hold::{Hold, LONGEST_HOLD_NS};
pub use lock::{Locked, expect_none_held, lock};
pub use log_limit::LogLimit;
pub use migration::{Milestone, Step};
pub use negotiated::Negotiated;
pub use options::{Access, Commanded, Options, SocketRole};
pub use post_copy::dock;
pub use receive_filter::ReceiveFilter;
pub use ring_slot::{NotLent, RingSlot, Running};
pub use session::{Inherited, Session};
pub use slots::{OWN as REGIONS_OWN, SHARED as REGIONS_SHARED};
pub use socket::permit;
pub use status::{State, Status};
