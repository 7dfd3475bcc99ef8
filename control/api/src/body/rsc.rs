//! Coalescing toward a port: its state, and how to change it.

use super::RscCountersBody;
use config::RscMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Coalescing toward one port, with the names of `Get-NetAdapterRsc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RscBody {
    /// The port.
    #[serde(rename = "Name")]
    pub name: String,
    /// The active rules.
    #[serde(rename = "Policy")]
    pub policy: RscMode,
    /// Whether coalescing is enabled.
    #[serde(rename = "IPv4Enabled")]
    pub ipv4_enabled: bool,
    /// Whether coalescing is enabled.
    #[serde(rename = "IPv6Enabled")]
    pub ipv6_enabled: bool,
    /// Whether coalescing is operational.
    #[serde(rename = "IPv4OperationalState")]
    pub ipv4_operational: bool,
    /// Whether coalescing is operational.
    #[serde(rename = "IPv6OperationalState")]
    pub ipv6_operational: bool,
    /// Why coalescing is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv4FailureReason")]
    pub ipv4_failure_reason: String,
    /// Why coalescing is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv6FailureReason")]
    pub ipv6_failure_reason: String,
    /// `length-limit`: maximum payload of a train in multiples of the MTU; 0 for no limit.
    #[serde(rename = "LengthLimit", default)]
    pub length_limit: u8,
    /// `ack-limit`: segments after which a train with a pure ACK ends; 0 for no limit.
    #[serde(rename = "AckLimit", default)]
    pub ack_limit: u16,
    /// Statistics.
    #[serde(rename = "Statistics")]
    pub statistics: RscCountersBody,
}

/// Coalescing on the host and in the switch, above that of ports, with the names of
/// `Get-NetOffloadGlobalSetting` and `Get-VMSwitch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SwitchRscBody {
    /// The host's setting, `rsc` in `[switch]`: whether vNICs without a setting of their own
    /// coalesce. `Enabled` or `Disabled`.
    #[serde(rename = "ReceiveSegmentCoalescing")]
    pub receive_segment_coalescing: String,
    /// The rules of these vNICs.
    #[serde(rename = "Policy")]
    pub policy: RscMode,
    /// Whether the switch coalesces at all (`software-rsc` in `[switch]`).
    #[serde(rename = "SoftwareRscEnabled")]
    pub software_rsc_enabled: bool,
    /// Ports toward which coalescing is operational for IPv4 or IPv6.
    #[serde(rename = "OperationalPorts")]
    pub operational_ports: usize,
    /// All ports.
    #[serde(rename = "Ports")]
    pub ports: usize,
}

/// Body of `PUT /v1/switch/rsc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchRscChange {
    /// Whether the switch coalesces at all.
    #[serde(rename = "SoftwareRscEnabled")]
    pub software_rsc_enabled: bool,
}

/// The coalescing to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RscSetting {
    /// NDIS rules toward a vNIC, GRO rules toward an uplink. When set for all ports: vNICs only.
    On,
    /// No coalescing.
    Off,
    /// NDIS rules.
    Ndis,
    /// GRO rules.
    Gro,
}

/// Body of `PUT /v1/rsc` and `PUT /v1/ports/{name}/rsc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RscChange {
    /// The rules, on, or off.
    pub policy: RscSetting,
}
