//! `[web]`: the web page.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use utoipa::ToSchema;

/// `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct WebConfig {
    /// TCP address that serves the page, to anyone who reaches it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "127.0.0.1:9478")]
    pub listen: Option<SocketAddr>,
    /// A file with a token of 16 to 128 letters, digits, `-` and `_`. A user who types it into the
    /// page may turn RSC on and off. Default: none; then only a key of `millrace page` changes
    /// anything. The file is read at each change, and other users must not be able to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/etc/millrace/web-token")]
    pub token_file: Option<PathBuf>,
}

impl WebConfig {
    /// Returns whether no key is set.
    pub(super) fn is_empty(&self) -> bool {
        *self == WebConfig::default()
    }
}
