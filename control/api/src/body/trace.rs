//! What the switch would do with frames: the request, and the answer step by step.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The port through which the frames would enter.
    pub port: String,
    /// The frames in order, at most 64, each as a line of words (see `millrace trace --help`) or as
    /// `hex` and its bytes.
    #[schema(example = json!(["tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 10"]))]
    pub frames: Vec<String>,
    /// Whether all frames arrive in one burst, so that segments of a flow can coalesce. Otherwise
    /// each arrives after the switch has finished with the one before. The frames of one `count`
    /// always arrive together.
    #[serde(default)]
    pub burst: bool,
}

/// What the switch would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceBody {
    /// The port through which the frames would enter.
    pub port: String,
    /// What was assumed about the frames, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The bursts in order. Addresses learned in one are known in the next.
    pub turns: Vec<TraceTurnBody>,
}

/// What the switch would do with the frames of one burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceTurnBody {
    /// The frames as the switch parses them.
    pub frames: Vec<String>,
    /// Steps from ingress to egress, in order.
    pub steps: Vec<TraceStepBody>,
    /// Frames that leave the switch.
    pub delivered: Vec<TraceFrameBody>,
    /// Frames that are dropped.
    pub drops: Vec<TraceDropBody>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStepBody {
    /// The port whose settings decide.
    pub port: String,
    /// The decision: `read`, `guards`, `acl`, `mark`, `address`, `vlan`, `spoofing`, `rate`,
    /// `learn`, `lookup`, `coalesce`, `fit`, `deliver` or `answer`.
    pub stage: String,
    /// Whether this step drops frames.
    pub drops: bool,
    /// The result and its reason, in words.
    pub text: String,
}

/// A frame that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceFrameBody {
    /// The port through which it leaves.
    pub port: String,
    /// The egress queue.
    pub queue: usize,
    /// Length in bytes.
    pub length: usize,
    /// VLAN of its tag; absent if it leaves untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// For a train, bytes per segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_size: Option<u16>,
    /// Whether it is a copy of a frame that is flooded because its destination is unknown.
    #[serde(default)]
    pub unknown_destination: bool,
    /// Whether its transport checksum is partial.
    pub partial_checksum: bool,
    /// The frame in words.
    pub text: String,
    /// The first 128 bytes, in hexadecimal digits.
    pub hex: String,
}

/// Dropped frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceDropBody {
    /// The port that counts the drops.
    pub port: String,
    /// The reason, as in counters and captures.
    pub reason: String,
    /// Number of frames.
    pub frames: u64,
    /// What the reason means.
    pub text: String,
}
