//! A command that a host executed, or the equivalent of a request. A report lists the commands so
//! that a reader can repeat the experiment by hand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A command and the host on which it ran.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Command {
    /// Name of the host.
    pub host: String,
    /// The command line.
    pub command: String,
}
