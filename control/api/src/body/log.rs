//! The levels of the log.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Nothing is logged.
    Off,
    /// A port or the daemon does not work.
    Error,
    /// A port or the daemon works with limits.
    Warn,
    /// Changes, and port states.
    Info,
    /// Everything else.
    Debug,
    /// The same as `debug`: nothing is logged below that.
    Trace,
}

/// The levels of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogBody {
    /// The level of all targets without their own.
    pub level: LogLevel,
    /// The levels of single targets, named as in the log's lines: a part of the daemon, or a module
    /// of it.
    pub targets: BTreeMap<String, LogLevel>,
}

/// A level to set until the daemon stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogChange {
    /// The level.
    pub level: LogLevel,
    /// The target. If absent, the level applies to all targets and clears theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "vhost_user")]
    pub target: Option<String>,
}
