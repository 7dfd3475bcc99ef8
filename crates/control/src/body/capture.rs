//! Captures: how to start one, and what has become of it.

use crate::config;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Body of `POST /v1/captures`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureStart {
    /// The port.
    pub port: String,
    /// Absolute path of the pcapng file. The daemon creates it and never overwrites an existing file.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Most bytes kept of each frame; whole frames where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 14, 262_144>"
    )]
    #[schema(minimum = 14, maximum = 262_144)]
    pub snaplen: Option<u32>,
    /// Ends after at least this many frames; checked once a second.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 1, { i64::MAX }>"
    )]
    #[schema(minimum = 1)]
    pub count: Option<u64>,
    /// Ends after this many seconds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 1, { i64::MAX }>"
    )]
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
}

/// State of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureState {
    /// It is running.
    Running,
    /// It ended as requested.
    Done,
    /// It ended early; the file holds what was written until then.
    Failed,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureBody {
    /// The port.
    pub port: String,
    /// The file.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Its state.
    pub state: CaptureState,
    /// Why it failed; empty if it did not.
    pub reason: String,
    /// Frames in the file.
    pub frames: u64,
    /// Bytes they take there.
    pub bytes: u64,
    /// Frames missing from the file because the disk was too slow.
    pub missed: u64,
}
