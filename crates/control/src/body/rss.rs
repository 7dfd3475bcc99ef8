//! Receive-side scaling of a port: its state, and how to change it.

use crate::config::{RssKey, RssTypes, SteerMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How frames toward one port are spread over its queues, with what `Get-NetAdapterRss` shows of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RssBody {
    /// The port.
    pub port: String,
    /// What decides, configured or by default.
    pub steer: SteerMode,
    /// What is hashed.
    #[schema(value_type = String)]
    pub types: RssTypes,
    /// The key as configured, or `random`.
    #[schema(value_type = String)]
    pub key: RssKey,
    /// The key in force, in hex; absent while the device is not open. A random one is drawn each time that the port is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_in_force: Option<String>,
    /// Queue pairs; 0 while the device is not open.
    pub queues: usize,
    /// Those that are in use, the first ones; 0: the guest is not ready.
    pub queues_in_use: usize,
    /// The queue that each entry of the indirection table names; empty while the device is not open.
    pub configured: Vec<u8>,
    /// The queue that each entry leads to: the one it names, or, if that is not in use, the entry's number modulo the queues
    /// that are.
    pub in_force: Vec<u8>,
}

/// An entry of an indirection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RssEntry {
    /// Its number, 0 to 127: the flow's hash modulo 128.
    pub entry: usize,
    /// The queue it is to name.
    pub queue: usize,
}

/// Body of `PATCH /v1/ports/{name}/rss`: one of the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RssChange {
    /// Entries of the indirection table, all of them or none; the others stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<RssEntry>>,
    /// All entries name the first so many queues in turn.
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
