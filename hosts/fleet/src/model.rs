//! The model: one directory of TOML files, in any number and order, that together describe the
//! fleet.
//!
//! Each file has `version = 1` and some of `[[network]]`, `[[class]]`, `[[port]]` and `[rollout]`.
//! Unknown keys are refused. Files that can be read may still break a rule between parts of the
//! model, which `rules` checks.

mod class;
mod network;
mod policy;
mod port;
mod read;
mod rules;
mod schema;

pub use class::{HostClass, Uplink};
pub use network::Network;
pub use policy::{Policy, Share};
pub use port::Port;
pub use schema::schema;

use problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the model. Files and documents of another version are refused.
pub const VERSION: u32 = 1;

/// The desired state of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Model {
    /// Version of this format: 1.
    pub version: u32,
    /// The networks that ports are connected to.
    #[serde(default, rename = "network", skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// The classes of hosts.
    #[serde(default, rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<HostClass>,
    /// The vNICs of the fleet.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// How a new revision reaches the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Policy>,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            version: VERSION,
            networks: Vec::new(),
            classes: Vec::new(),
            ports: Vec::new(),
            rollout: None,
        }
    }
}

impl Model {
    /// Reads all `*.toml` files of a directory.
    ///
    /// # Errors
    /// Fails if there is no such file, one cannot be read or parsed, or a rule is broken.
    pub fn read(folder: &Path) -> Result<Model, Problem> {
        read::folder(folder)
    }

    /// Reads one file's text, which messages call `name`. Rules between parts of a model are not
    /// checked.
    ///
    /// # Errors
    /// Fails if the text does not parse as a model.
    pub fn from_toml(name: &str, text: &str) -> Result<Model, Problem> {
        read::file(name, text)
    }

    /// Checks the rules between parts of the model.
    ///
    /// # Errors
    /// Fails if one is broken.
    pub fn check(&self) -> Result<(), Problem> {
        rules::check(self)
    }

    /// Returns the network of this name.
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name.as_str() == name)
    }

    /// Returns the roll-out's policy: `[rollout]`, or the default.
    pub fn policy(&self) -> Policy {
        self.rollout.clone().unwrap_or_default()
    }

    /// Adds the parts of another file.
    fn join(&mut self, other: Model) -> Result<(), Problem> {
        self.networks.extend(other.networks);
        self.classes.extend(other.classes);
        self.ports.extend(other.ports);
        if self.rollout.is_some() && other.rollout.is_some() {
            return Err(Problem::new("[rollout] is in two files")
                .wanted("one [rollout] in the directory")
                .remedy("remove one of the two"));
        }
        self.rollout = self.rollout.take().or(other.rollout);
        Ok(())
    }

    /// Sorts by name, so that equal models are equal values however their files are split.
    fn sort(&mut self) {
        self.networks.sort_by(|one, other| one.name.cmp(&other.name));
        self.classes.sort_by(|one, other| one.name.cmp(&other.name));
        self.ports.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

#[cfg(test)]
pub(crate) mod generate;
#[cfg(test)]
mod tests;
