//! Teams: members and addresses, named as in `Get-VMSwitchTeam` and
//! `Get-VMNetworkAdapterTeamMapping`.

use config::TeamAlgorithm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A team.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamBody {
    /// The port.
    pub port: String,
    /// `SwitchIndependent`: the physical switches are not configured for the team.
    pub teaming_mode: String,
    /// How egress frames are spread over the members.
    pub load_balancing_algorithm: TeamAlgorithm,
    /// Seconds that a recovered member must stay up before it is used again.
    pub fail_back_s: u64,
    /// Largest IP packet that all members carry, in bytes; 0 while the port is not open.
    pub mtu: u16,
    /// Transmit offloads of all members.
    pub tx_offloads: Vec<String>,
    /// Whether a member verifies checksums of received frames.
    pub rx_checksum: bool,
    /// The members.
    pub members: Vec<TeamMemberBody>,
    /// Addresses that sent through the team, with their members.
    pub mappings: Vec<TeamHomeBody>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamMemberBody {
    /// The network device.
    pub name: String,
    /// Its ingress queue of the port, which it keeps while it is in the team.
    pub queue: usize,
    /// Whether it carries frames.
    pub active: bool,
    /// Why it carries none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its own address.
    pub mac: String,
    /// Its MTU in bytes; 0 while it is not open.
    pub mtu: u16,
    /// Speed in Mbit/s, if the device reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// Transmit offloads.
    pub tx_offloads: Vec<String>,
    /// Whether it verifies checksums of received frames.
    pub rx_checksum: bool,
    /// VLANs of group frames that it received; 0 for untagged.
    pub vlans_heard: Vec<u16>,
    /// Counters since the port was opened, by name.
    pub counters: BTreeMap<String, u64>,
}

/// An address and its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamHomeBody {
    /// The address.
    pub mac: String,
    /// The vNIC's port, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The home member of the address.
    pub home: String,
    /// The member that carries it now; absent if none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Whether its frames may leave only through its home member.
    pub pinned: bool,
}

/// Body of `PATCH /v1/teams/{name}`: members to add and remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamChange {
    /// Network devices that become members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Members that leave the team.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// Body of `PUT /v1/teams/{name}/mappings`: pins a vNIC to a member, as
/// `Set-VMNetworkAdapterTeamMapping` does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamMapping {
    /// The vNIC's port.
    pub vnic: String,
    /// The member; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}
