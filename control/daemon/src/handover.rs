//! Hands the descriptors that outlive the daemon to a successor that asks for them: the socket at
//! which it asks (`listener`), and what the two say to each other (`successor`).

mod listener;
mod successor;

pub(crate) use listener::{Listener, Offer};
pub(crate) use successor::{Predecessor, hand_over};
