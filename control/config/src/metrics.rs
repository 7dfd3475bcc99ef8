//! `[metrics]`: counters and health over TCP, for monitoring.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use utoipa::ToSchema;

/// `[metrics]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// TCP address that serves only `/metrics`, `/healthz` and `/readyz`, to anyone. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "127.0.0.1:9477")]
    pub listen: Option<SocketAddr>,
}

impl MetricsConfig {
    /// Returns whether no key is set.
    pub(super) fn is_empty(&self) -> bool {
        *self == MetricsConfig::default()
    }
}
