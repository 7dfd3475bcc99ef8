//! `[[port]]`: one port as it is written in the file, in `PUT /v1/config` and in the body of `POST /v1/ports`.
//!
//! Every key but the name is optional and stays absent when it was: what is absent follows the role, the device, or
//! `[switch]`, and is decided in [`PortConfig::settings`].

use super::value::{Flows, HostName, MacAddress, Mtu, Namespace, PortName, Queues};
use super::vlan::{VlanId, VlanList};
use super::{Rate, Size};
use datapath::{PortId, PortSettings, RateLimit, Role, Rsc, RscPolicy, Vlan};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::Mac;

/// Which way a port faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortRole {
    /// A guest, container or namespace behind one vNIC.
    Vnic,
    /// A network with many stations.
    Uplink,
}

/// What happens to a frame whose source address is not the port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MacSpoofing {
    /// Dropped and counted as `mac_spoofed`.
    Deny,
    /// Switched.
    Allow,
}

/// Coalescing toward a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RscMode {
    /// NDIS rules: for a port whose frames end there.
    Ndis,
    /// Linux GRO rules: for uplinks and guests that forward.
    Gro,
    /// None.
    Off,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortConfig {
    /// Its name: 1 to 32 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, example = "vm1")]
    pub name: PortName,
    /// Opens (and creates, where there is none) this TAP device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "tap1")]
    pub tap: Option<HostName>,
    /// Joins this network device of the host as an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eth1")]
    pub packet: Option<HostName>,
    /// The network namespace the device lives in (a name of `ip netns`, or a path), where it is not the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub netns: Option<Namespace>,
    /// Queue pairs; 1 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub queues: Option<Queues>,
    /// Takes frames for all stations; yes where absent. Packet ports only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
    /// Largest IP packet in bytes, 68 to 65535; the device's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, example = 1500)]
    pub mtu: Option<Mtu>,
    /// Which way it faces; `vnic` for a TAP and `uplink` for a packet port where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<PortRole>,
    /// Access mode: untagged frames belong to this VLAN, 0 to 4094; 0 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, example = 10)]
    pub vlan: Option<VlanId>,
    /// Trunk mode: the tagged VLANs that may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10,20-30")]
    pub trunk: Option<VlanList>,
    /// The VLAN of a trunk's untagged frames; 0 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub native: Option<VlanId>,
    /// The guest's address; the device's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "52:54:00:12:34:56")]
    pub mac: Option<MacAddress>,
    /// The guard against forged source addresses; `deny` for a vNIC and `allow` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_spoofing: Option<MacSpoofing>,
    /// Reaches uplinks only; no where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Most the port may send into the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1Gbit")]
    pub rate: Option<Rate>,
    /// What may pass at once after a pause; 10 ms at `rate`, and 128 KiB at least, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "256KiB")]
    pub burst: Option<Size>,
    /// Coalescing toward the port; the `rsc` of `[switch]` for a vNIC and `off` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc: Option<RscMode>,
    /// Coalescing of IPv4; yes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv4: Option<bool>,
    /// Coalescing of IPv6; yes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv6: Option<bool>,
    /// Most payload of a train in multiples of the MTU; 0 or absent: as much as IP allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_limit: Option<u8>,
    /// Segments after which a train with a pure ACK ends; 0 or absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_limit: Option<u16>,
    /// Trains open at once for one queue, 1 to 128; 128 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>)]
    pub flows: Option<Flows>,
    /// Another port that gets a copy of all this one sends and receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mirror_to: Option<PortName>,
}

impl PortConfig {
    /// Keys that name the device or how it is opened: changing one of them closes the port and opens it again.
    pub const REOPENING: [&'static str; 5] = ["tap", "packet", "netns", "queues", "promiscuous"];

    /// A port of which only the name is known.
    pub fn named(name: PortName) -> PortConfig {
        PortConfig {
            name,
            tap: None,
            packet: None,
            netns: None,
            queues: None,
            promiscuous: None,
            mtu: None,
            role: None,
            vlan: None,
            trunk: None,
            native: None,
            mac: None,
            mac_spoofing: None,
            isolated: None,
            rate: None,
            burst: None,
            rsc: None,
            rsc_ipv4: None,
            rsc_ipv6: None,
            length_limit: None,
            ack_limit: None,
            flows: None,
            mirror_to: None,
        }
    }

    /// Which way it faces, said or implied.
    pub fn role(&self) -> PortRole {
        match (self.role, &self.packet) {
            (Some(role), _) => role,
            (None, Some(_)) => PortRole::Uplink,
            (None, None) => PortRole::Vnic,
        }
    }

    /// Coalescing, said or implied.
    pub fn rsc(&self, default: RscMode) -> RscMode {
        self.rsc.unwrap_or(match self.role() {
            PortRole::Vnic => default,
            PortRole::Uplink => RscMode::Off,
        })
    }

    /// The kind and name of its device, as in `tap tap1`.
    pub fn device(&self) -> String {
        match (&self.tap, &self.packet) {
            (Some(device), _) => format!("tap {device}"),
            (None, Some(device)) => format!("packet {device}"),
            (None, None) => "no device".to_owned(),
        }
    }

    /// What the switch is told. `device_mtu` and `device_mac` are the opened device's own; `mirror` is where the port
    /// named by `mirror-to` runs.
    pub fn settings(
        &self,
        default_rsc: RscMode,
        device_mtu: u16,
        device_mac: Option<Mac>,
        mirror: Option<PortId>,
    ) -> PortSettings {
        PortSettings {
            role: match self.role() {
                PortRole::Vnic => Role::Vnic,
                PortRole::Uplink => Role::Uplink,
            },
            mtu: self.mtu.map_or(device_mtu, |mtu| mtu.0),
            vlan: self.vlan_mode(),
            allowed_macs: self.allowed_macs(device_mac),
            isolated: self.isolated.unwrap_or(false),
            rate: self.rate_limit(),
            rsc: self.rsc_settings(default_rsc),
            mirror_to: mirror,
        }
    }

    fn vlan_mode(&self) -> Vlan {
        match &self.trunk {
            Some(list) => {
                Vlan::Trunk { native: self.native.map_or(0, |vlan| vlan.0), allowed: list.to_set() }
            }
            None => Vlan::Access(self.vlan.map_or(0, |vlan| vlan.0)),
        }
    }

    fn allowed_macs(&self, device: Option<Mac>) -> Option<Vec<Mac>> {
        let guard = self.mac_spoofing.unwrap_or(match self.role() {
            PortRole::Vnic => MacSpoofing::Deny,
            PortRole::Uplink => MacSpoofing::Allow,
        });
        let own = self.mac.map(|mac| mac.0).or(device)?;
        (guard == MacSpoofing::Deny).then(|| vec![own])
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        let Rate(bits_per_second) = self.rate?;
        let ten_ms = (bits_per_second / 8 / 100).max(128 * 1024);
        let burst_bytes = self.burst.map_or(ten_ms, |burst| burst.0);
        Some(RateLimit { bits_per_second, burst_bytes })
    }

    fn rsc_settings(&self, default: RscMode) -> Rsc {
        Rsc {
            policy: match self.rsc(default) {
                RscMode::Ndis => RscPolicy::Ndis,
                RscMode::Gro => RscPolicy::Gro,
                RscMode::Off => RscPolicy::Off,
            },
            ipv4: self.rsc_ipv4.unwrap_or(true),
            ipv6: self.rsc_ipv6.unwrap_or(true),
            length_limit_mtus: self.length_limit.unwrap_or(0),
            ack_limit: self.ack_limit.unwrap_or(0),
            flows: self.flows.map_or(128, |flows| flows.0),
        }
    }
}
