//! The key with which the page of `[web]` changes the switch.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key of the page.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageKeyBody {
    /// Where the page is, for a browser on this host.
    #[schema(example = "http://127.0.0.1:9478/")]
    pub address: String,
    /// The key, to be typed into the page, or appended to its address as `#key=KEY`.
    pub key: String,
    /// Seconds until it ends. It ends earlier with the daemon.
    pub lasts_s: u64,
}

/// Prints a placeholder, which keeps the key out of logs.
impl std::fmt::Debug for PageKeyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageKeyBody({})", self.address)
    }
}
