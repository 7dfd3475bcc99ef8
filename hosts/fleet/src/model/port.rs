//! `[[port]]`: a vNIC of the fleet.

use crate::Name;
use config::{
    HostName, IpGuard, MacAddress, Namespace, PortName, Queues, Rate, Rule, SocketPath, Weight,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A port. It also has the settings of its network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Port {
    /// Its name, which no other port of the fleet has.
    #[schemars(with = "String")]
    pub name: PortName,
    /// The network it is connected to.
    pub network: Name,
    /// The guest's address, which no other port of the fleet has.
    #[schemars(with = "String")]
    pub mac: MacAddress,
    /// The host that carries it. Default: the host that has claimed its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// Opens this TAP device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub tap: Option<HostName>,
    /// Serves a virtual machine at this Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub vhost_user: Option<SocketPath>,
    /// The network namespace that a TAP device lives in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub netns: Option<Namespace>,
    /// Queue pairs. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u16>")]
    pub queues: Option<Queues>,
    /// The IP addresses and prefixes that it may use. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub ip_guard: Option<IpGuard>,
    /// Rules of its own, after those of its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub acl: Vec<Rule>,
    /// Rate limit of what it sends, instead of its network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rate: Option<Rate>,
    /// Rate limit of what it receives, instead of its network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rate_to: Option<Rate>,
    /// Its share of a congested uplink, relative to other ports, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u8>")]
    pub weight: Option<Weight>,
}
