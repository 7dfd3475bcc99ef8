//! A host of an experiment: sends, receives and counts on request, over HTTP, one request at a
//! time.
//!
//! A host is usually a child process in a network namespace of its own. The namespace has no name,
//! so it ends with the process. The process ends with its parent (`PR_SET_PDEATHSIG`, and a socket
//! as standard input that closes), so nothing is left behind. The child's side is [`serve`], which
//! the binary reaches by its hidden command `lab-host`.
//!
//! A host may also be an agent that a user started on another machine ([`Listening`]). It takes the
//! same requests over TCP, from a peer that sends the [`Token`], and only those about traffic and
//! counters.

mod agent;
mod child;
mod client;
mod command;
mod counters;
mod delay;
mod handle;
mod listen;
mod load;
mod namespace;
mod protocol;
mod router;

pub use agent::{serve, serve_in};
pub use command::Command;
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

/// Option of [`COMMAND`]: path of the network namespace to enter, for [`serve_in`].
pub const IN: &str = "--in";
/// Value of [`IN`] for the network namespace that the process is in already.
pub const HERE: &str = "-";
