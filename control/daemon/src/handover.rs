//! Hands the descriptors that outlive the daemon to a successor that asks for them: the socket at
//! which it asks (`listener`), what the two say to each other (`successor`), and what each may do
//! (`rights`).

mod listener;
mod rights;
mod successor;

pub(crate) use listener::{Listener, Offer};
pub(crate) use rights::Rights;
pub(crate) use successor::{Predecessor, hand_over};
