//! The levels of the log.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tracing_subscriber::filter::LevelFilter;
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

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

impl From<LevelFilter> for LogLevel {
    fn from(level: LevelFilter) -> LogLevel {
        match level {
            LevelFilter::OFF => LogLevel::Off,
            LevelFilter::ERROR => LogLevel::Error,
            LevelFilter::WARN => LogLevel::Warn,
            LevelFilter::INFO => LogLevel::Info,
            LevelFilter::DEBUG => LogLevel::Debug,
            _ => LogLevel::Trace,
        }
    }
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
