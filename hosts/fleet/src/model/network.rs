//! `[[network]]`: what ports are connected to, with settings for all of them.

use crate::Name;
use config::{MacSpoofing, Mtu, Rate, RscMode, Rule, Size, Storm, VlanId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network. Its keys are those of a port in the switch's own file, and apply to each port of the
/// network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Network {
    /// Its name.
    pub name: Name,
    /// The VLAN of its frames on the uplinks, 1 to 4094; 0: untagged. Default: untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u16>")]
    pub vlan: Option<VlanId>,
    /// Largest IP packet of its ports, in bytes. Default: the devices' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u16>")]
    pub mtu: Option<Mtu>,
    /// The guard against forged source addresses: `deny` or `allow`. Default: `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub mac_spoofing: Option<MacSpoofing>,
    /// Drops what only a DHCP server sends. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_guard: Option<bool>,
    /// Drops router advertisements and redirects. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_guard: Option<bool>,
    /// Rules, written as in a port's `acl`; they come before the port's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub acl: Vec<Rule>,
    /// Coalescing toward its ports: `ndis`, `gro` or `off`. Default: as the host's switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rsc: Option<RscMode>,
    /// Rate limit of what each port sends, such as `1Gbit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rate: Option<Rate>,
    /// Burst size of the rate limit, such as `256KiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub burst: Option<Size>,
    /// Rate limit of what each port receives, such as `1Gbit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rate_to: Option<Rate>,
    /// Limits on what each port floods, such as `10000/s,100Mbit`, or `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub storm: Option<Storm>,
    /// Its ports reach only uplinks. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
}
