//! What passed in the last minutes and hours.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much time a value of the history covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryResolution {
    /// A second; ten minutes are kept.
    Second,
    /// A minute; 24 hours are kept.
    Minute,
}

impl HistoryResolution {
    /// Returns the time in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            HistoryResolution::Second => 1,
            HistoryResolution::Minute => 60,
        }
    }
}

/// What was counted in each second or minute, oldest first; null where nothing is known, such as
/// while the daemon did not run. Values are rounded to one part in 4,096.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryBody {
    /// The port; absent for the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// When the first value begins, in seconds since 1970.
    pub from_s: u64,
    /// Seconds that each value covers.
    pub resolution_s: u64,
    /// From ports into the switch.
    pub ingress_bytes: Vec<Option<u64>>,
    /// From the switch to ports.
    pub egress_bytes: Vec<Option<u64>>,
    /// From ports into the switch.
    pub ingress_frames: Vec<Option<u64>>,
    /// From the switch to ports.
    pub egress_frames: Vec<Option<u64>>,
    /// Drops for all reasons.
    pub dropped_frames: Vec<Option<u64>>,
    /// Time that all workers together were busy, in microseconds; of the switch only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_us: Vec<Option<u64>>,
    /// Highest number of errors and warnings among the findings; of the switch only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Option<u64>>,
}
