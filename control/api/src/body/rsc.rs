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
    /// Statistics.
    #[serde(rename = "Statistics")]
    pub statistics: RscCountersBody,
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
