//! Coalescing toward a port: its state, and how to change it.

use super::RscCountersBody;
use crate::config::RscMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Coalescing toward one port, in the words of `Get-NetAdapterRsc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RscBody {
    /// The port.
    #[serde(rename = "Name")]
    pub name: String,
    /// The rules in force.
    #[serde(rename = "Policy")]
    pub policy: RscMode,
    /// Whether it is enabled.
    #[serde(rename = "IPv4Enabled")]
    pub ipv4_enabled: bool,
    /// Whether it is enabled.
    #[serde(rename = "IPv6Enabled")]
    pub ipv6_enabled: bool,
    /// Whether it is operational.
    #[serde(rename = "IPv4OperationalState")]
    pub ipv4_operational: bool,
    /// Whether it is operational.
    #[serde(rename = "IPv6OperationalState")]
    pub ipv6_operational: bool,
    /// Why it is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv4FailureReason")]
    pub ipv4_failure_reason: String,
    /// Why it is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv6FailureReason")]
    pub ipv6_failure_reason: String,
    /// What was coalesced.
    #[serde(rename = "Statistics")]
    pub statistics: RscCountersBody,
}

/// The coalescing to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RscSetting {
    /// By NDIS rules toward a vNIC, by GRO rules toward an uplink. For all ports at once: vNICs only.
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
