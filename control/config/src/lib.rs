//! The configuration: one strict TOML file, and the same keys as JSON in the API.
//!
//! [`Config::from_toml`] or [`from_json`] reads text into a [`Config`], or refuses it with the line
//! and column, the value seen, the value wanted and the remedy. A value's type (`value`, `vlan`,
//! `quantity`) checks the value alone; `rules` checks keys and ports against each other.

mod acl;
mod change;
mod defaults;
mod device;
mod faults;
#[cfg(any(test, feature = "generate"))]
pub mod generate;
mod guard;
mod metrics;
pub mod plan;
mod port;
mod quantity;
mod read;
mod rules;
mod scalar;
mod section;
mod steer;
mod storm;
mod switch;
mod value;
mod vlan;
mod web;

pub use acl::{Rule, RuleAction, RuleEnd, RuleMark, RuleProtocol};
pub use change::{port_keys, typed_value, with_keys};
pub use device::Device;
pub use faults::{Fault, faults};
pub use guard::{IpGuard, IpPrefix};
pub use metrics::MetricsConfig;
pub use port::{
    Compat, MacSpoofing, PathMtuMode, PortConfig, PortRole, RscMode, TeamAlgorithm, VmmqMode,
};
pub use quantity::{Rate, Seconds, Size};
pub use read::{from_json, from_toml, from_value, nearest};
pub use scalar::ranged;
pub use section::Section;
pub use steer::hex;
pub use steer::{RssKey, RssTypes, SteerMode};
pub use storm::Storm;
pub use switch::{KernelPathMode, LogFormat, Poll, Scale, SwitchConfig, Workers};
pub use value::{
    Account, AckLimit, FileMode, Flows, HostName, LengthLimit, MacAddress, MacEntries, MacLimit,
    Mtu, Namespace, PortName, Queues, SocketPath, Weight,
};
pub use vlan::{VlanId, VlanList};
pub use web::WebConfig;

use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// The switch as a whole.
    pub switch: SwitchConfig,
    /// Counters and health over TCP.
    #[serde(skip_serializing_if = "MetricsConfig::is_empty")]
    pub metrics: MetricsConfig,
    /// The web page.
    #[serde(skip_serializing_if = "WebConfig::is_empty")]
    pub web: WebConfig,
    /// The ports, in any order.
    #[serde(rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortConfig>,
}

impl Config {
    /// Reads the file's text. Messages call the file `name`.
    ///
    /// # Errors
    /// The text is not TOML, a key is unknown, a value is not one of its key, or a rule between keys
    /// or ports is broken. The problem names the line and the column.
    pub fn from_toml(name: &str, text: &str) -> Result<Config, Problem> {
        read::config(name, text)
    }

    /// Checks keys and ports against each other.
    ///
    /// # Errors
    /// A rule between keys or ports is broken. The problem names the port.
    pub fn check(&self) -> Result<(), Problem> {
        match rules::broken_rule(self) {
            Some(broken) => Err(broken.problem()),
            None => Ok(()),
        }
    }

    /// Returns the configuration as TOML. Reading it back gives an equal configuration.
    ///
    /// # Errors
    /// A value cannot be written as TOML, such as a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, Problem> {
        toml::to_string(self)
            .map_err(|error| Problem::new("writing the configuration").seen(error.to_string()))
    }

    /// Returns the ports by name, for those who look up many; the first of each name.
    pub fn by_name(&self) -> BTreeMap<&str, &PortConfig> {
        self.ports.iter().rev().map(|port| (port.name.as_str(), port)).collect()
    }

    /// Returns the port of this name.
    pub fn port(&self, name: &str) -> Option<&PortConfig> {
        self.ports.iter().find(|port| port.name.as_str() == name)
    }
}

#[cfg(test)]
mod tests;
