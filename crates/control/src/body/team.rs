//! Teams: members and addresses, in the words of `Get-VMSwitchTeam` and `Get-VMNetworkAdapterTeamMapping`.

use crate::config::TeamAlgorithm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A team.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamBody {
    /// The port.
    pub port: String,
    /// `SwitchIndependent`: the switches outside know nothing of the team.
    pub teaming_mode: String,
    /// How what leaves is spread over the members.
    pub load_balancing_algorithm: TeamAlgorithm,
    /// Seconds for which a member has to be up before it is used again.
    pub fail_back_s: u64,
    /// Largest IP packet that all members carry, in bytes; 0 while the port is not open.
    pub mtu: u16,
    /// What all members take without help toward the network.
    pub tx_offloads: Vec<String>,
    /// A member checks checksums of what it receives.
    pub rx_checksum: bool,
    /// The members.
    pub members: Vec<TeamMemberBody>,
    /// The addresses that sent through the team, each with its members.
    pub mappings: Vec<TeamHomeBody>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamMemberBody {
    /// The network device.
    pub name: String,
    /// Its ingress queue at the port, which it keeps while it is in the team.
    pub queue: usize,
    /// It carries frames.
    pub active: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its own address.
    pub mac: String,
    /// Its MTU in bytes; 0 while it is not open.
    pub mtu: u16,
    /// Megabits a second, where the device says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// What it takes without help toward the network.
    pub tx_offloads: Vec<String>,
    /// It checks checksums of what it receives.
    pub rx_checksum: bool,
    /// The VLANs of frames for groups that came in; 0: untagged.
    pub vlans_heard: Vec<u16>,
    /// What was counted since the port was opened, by name.
    pub counters: BTreeMap<String, u64>,
}

/// An address and its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TeamHomeBody {
    /// The address.
    pub mac: String,
    /// The vNIC's port, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The member where it is at home.
    pub home: String,
    /// The member that stands for it now; absent: none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Its frames leave by its home alone.
    pub pinned: bool,
}

/// Body of `PATCH /v1/teams/{name}`: members that come and go.
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

/// Body of `PUT /v1/teams/{name}/mappings`: pins a vNIC to a member, as `Set-VMNetworkAdapterTeamMapping` does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamMapping {
    /// The vNIC's port.
    pub vnic: String,
    /// The member; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}
