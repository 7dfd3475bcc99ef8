//! A host of an experiment: it sends, receives and counts when asked, over HTTP, one request after
//! the other.
//!
//! Mostly it is a child process that holds a network namespace of its own. The namespace has no
//! name, so nothing can be left behind: it ends with the process, and the process ends with us
//! (`PR_SET_PDEATHSIG`, and a socket as standard input that closes). The child's side is [`serve`],
//! which the binary reaches by its hidden command `lab-host`.
//!
//! It may also be an agent that a user started on another machine ([`Listening`]): the same
//! requests over TCP, for a peer that knows the [`Token`], and only those that are about traffic
//! and counters.

mod agent;
mod child;
mod client;
mod counters;
mod handle;
mod listen;
mod load;
mod namespace;
mod protocol;
mod router;

pub use agent::{serve, serve_in};
pub(crate) use handle::{Host, connecting};
pub(crate) use listen::ONLY_TO_CLIENT;
pub use listen::{Listening, Targets};
pub use namespace::{become_root, is_root};
pub use problem::token::{Token, Whereabouts};
pub(crate) use protocol::{Identity, ROUND_TRIPS_MAX, Reading};
pub use protocol::{Reply, Request};
pub use router::{LENGTH_MAX, PATH};

/// The hidden command of the binary that runs [`serve`].
pub const COMMAND: &str = "lab-host";

/// Its option that names a network namespace to enter by its path, for [`serve_in`].
pub const IN: &str = "--in";
/// Instead of that path: to stay where it is.
pub const HERE: &str = "-";
