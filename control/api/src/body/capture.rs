//! Captures: how to start one, and its state.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/captures`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureStart {
    /// The port.
    pub port: String,
    /// Most bytes kept of each frame. Default: whole frames.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 14, 262_144>"
    )]
    #[schema(minimum = 14, maximum = 262_144)]
    pub snaplen: Option<u32>,
    /// Ends the capture after at least this many frames; checked once a second.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 1, { i64::MAX }>"
    )]
    #[schema(minimum = 1)]
    pub count: Option<u64>,
    /// Ends the capture after this many seconds.
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
    /// It ended early; everything captured until then was sent.
    Failed,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureBody {
    /// The port.
    pub port: String,
    /// Its state.
    pub state: CaptureState,
    /// Why it failed; empty if it did not.
    pub reason: String,
    /// Frames sent or being sent.
    pub frames: u64,
    /// Their bytes in the file.
    pub bytes: u64,
    /// Frames missing because the client was too slow.
    pub missed: u64,
}
