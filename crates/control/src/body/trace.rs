//! What the switch would do with frames: the request, and the answer step by step.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The port by which the frames would enter.
    pub port: String,
    /// The frames in order, 64 at most, each as a line of words (`millrace trace --help`), or as `hex` and its bytes.
    #[schema(example = json!(["tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 10"]))]
    pub frames: Vec<String>,
    /// All of them arrive together, in one burst, so that segments of a flow may coalesce. Otherwise each arrives after the
    /// switch is done with the one before; those of a `count` always arrive together.
    #[serde(default)]
    pub burst: bool,
}

/// What the switch would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceBody {
    /// The port by which the frames would enter.
    pub port: String,
    /// In order; each knows what the earlier ones taught the switch.
    pub turns: Vec<TraceTurnBody>,
}

/// What the switch would do with the frames of one burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceTurnBody {
    /// The frames as the switch reads them.
    pub frames: Vec<String>,
    /// From ingress to egress, in the order in which the switch takes them.
    pub steps: Vec<TraceStepBody>,
    /// What leaves the switch.
    pub delivered: Vec<TraceFrameBody>,
    /// What does not.
    pub drops: Vec<TraceDropBody>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStepBody {
    /// The port whose settings decide.
    pub port: String,
    /// What is decided: `read`, `guards`, `acl`, `mark`, `address`, `vlan`, `spoofing`, `rate`, `learn`, `lookup`, `coalesce`,
    /// `fit`, `deliver` or `answer`.
    pub stage: String,
    /// Whether frames are dropped here.
    pub drops: bool,
    /// What is decided and why, in words.
    pub text: String,
}

/// A frame that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceFrameBody {
    /// The port by which it leaves.
    pub port: String,
    /// The egress queue.
    pub queue: usize,
    /// Bytes.
    pub length: usize,
    /// VLAN of its tag; absent where it leaves untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Bytes of each segment, of a train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_size: Option<u16>,
    /// Whether its transport checksum is left to the other side.
    pub partial_checksum: bool,
    /// The frame as it is read.
    pub text: String,
    /// The first 128 bytes, in hexadecimal digits.
    pub hex: String,
}

/// Frames that go no further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceDropBody {
    /// The port at which they are counted.
    pub port: String,
    /// The reason, as in counters and captures.
    pub reason: String,
    /// How many.
    pub frames: u64,
    /// What the reason means.
    pub text: String,
}
