//! Receive-side scaling of a port: its state, and how to change it.

use config::{RssKey, RssTypes, SteerMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How frames toward one port are spread over its queues, with the facts that `Get-NetAdapterRss`
/// shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RssBody {
    /// The port.
    pub port: String,
    /// The steering mode, configured or by default.
    pub steer: SteerMode,
    /// The types that are hashed.
    #[schema(value_type = String)]
    pub types: RssTypes,
    /// The key as configured, or `random`.
    #[schema(value_type = String)]
    pub key: RssKey,
    /// The key of the switch's own hash, in hex; absent while the device is not open. A random key is
    /// drawn each time the port is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_in_force: Option<String>,
    /// Queue pairs; 0 while the device is not open.
    pub queues: usize,
    /// How many of them, from the first, are in use; 0 if the guest is not ready.
    pub queues_in_use: usize,
    /// The queue that each entry of the indirection table names; empty while the device is not
    /// open.
    pub configured: Vec<u8>,
    /// The queue that each entry leads to: the one it names or, if that is unused, the entry's
    /// number modulo the queues in use. Where the guest's table is in force, it is that one.
    pub in_force: Vec<u8>,
    /// What the guest's driver has set; absent if it has set no table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestRssBody>,
}

/// The receive-side scaling that a guest's driver has set by commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GuestRssBody {
    /// Whether it is in force: `steer` is `guest`.
    pub in_force: bool,
    /// The types that are hashed; empty if none.
    pub types: String,
    /// The key of the hash, in hex.
    pub key: String,
    /// The queue of each entry. A flow's entry is its hash modulo their number.
    pub table: Vec<u16>,
    /// The queue of frames without a hash.
    pub unclassified: u16,
}

/// An entry of an indirection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RssEntry {
    /// Its number, 0 to 127: the flow's hash modulo 128.
    pub entry: usize,
    /// The queue to set.
    pub queue: usize,
}

/// Body of `PATCH /v1/ports/{name}/rss`: exactly one of the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RssChange {
    /// Entries of the indirection table to change, all or none of them; other entries stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<RssEntry>>,
    /// Spreads all entries over this many queues, from the first, in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal: Option<usize>,
    /// Sets the port's `rss-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub key: Option<RssKey>,
    /// Sets the port's `rss-types`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub types: Option<RssTypes>,
}
