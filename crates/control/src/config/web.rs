//! `[web]`: the page for people.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use utoipa::ToSchema;

/// `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct WebConfig {
    /// Where the page is served to everybody who reaches the address; nowhere where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "127.0.0.1:9478")]
    pub listen: Option<SocketAddr>,
    /// A file with a token of 16 to 128 letters, digits, `-` and `_`. Whoever types it into the page may turn RSC on and off; the page
    /// is read-only where absent. The file is read at each change, and must be closed to other users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/etc/millrace/web-token")]
    pub token_file: Option<PathBuf>,
}

impl WebConfig {
    /// Whether it says nothing.
    pub(super) fn is_empty(&self) -> bool {
        *self == WebConfig::default()
    }
}
