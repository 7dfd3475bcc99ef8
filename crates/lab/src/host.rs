//! A host of the topology: a child process that holds a network namespace of its own.
//!
//! The namespace has no name, so nothing can be left behind: it ends with the process, and the process ends with us
//! (`PR_SET_PDEATHSIG`, and a standard input that closes). Parent and child speak JSON lines, one answer to each
//! request. The child's side is [`serve`], which the binary reaches by its hidden command `lab-host`.

mod agent;
mod handle;
mod load;
mod namespace;
mod protocol;
mod round_trip;

pub use agent::serve;
pub(crate) use handle::{Host, connecting};
pub use namespace::{become_root, is_root};
pub(crate) use protocol::{Reading, Request};
pub(crate) use round_trip::summary;

/// The hidden command of the binary that runs [`serve`].
pub const COMMAND: &str = "lab-host";
