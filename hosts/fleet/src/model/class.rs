//! `[[class]]`: hosts that are alike, selected by their labels.

use crate::Name;
use config::{HostName, Mtu, PortName, Queues, TeamAlgorithm, VlanList, Workers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host class. A host belongs to it if it has all its labels; a host that matches two classes is
/// refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostClass {
    /// Its name.
    pub name: Name,
    /// Labels that its hosts have. Without any, all hosts belong to the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Workers that the host's switch should have been started with: a count, or a list of cores.
    /// They are fixed while a switch runs, so a difference is reported and not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub workers: Option<Workers>,
    /// The uplinks of each host.
    #[serde(default, rename = "uplink", skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<Uplink>,
}

/// `[[class.uplink]]`: a port toward the physical network, by the names that its devices have on
/// each host of the class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Uplink {
    /// Its name as a port of the switch.
    #[schemars(with = "String")]
    pub name: PortName,
    /// Uses this network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub packet: Option<HostName>,
    /// Uses this network device by AF_XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub xdp: Option<HostName>,
    /// Uses these network devices as one uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub team: Option<Vec<HostName>>,
    /// How a team spreads what it sends: `hyper-v-port` or `dynamic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub team_algorithm: Option<TeamAlgorithm>,
    /// Queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u16>")]
    pub queues: Option<Queues>,
    /// Largest IP packet in bytes. Default: the device's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u16>")]
    pub mtu: Option<Mtu>,
    /// The tagged VLANs that may pass, such as `10,20-30`. Default: those of all networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub trunk: Option<VlanList>,
}

impl HostClass {
    /// Whether a host with these labels belongs to the class.
    pub fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}
