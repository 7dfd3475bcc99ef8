//! Who talks to whom.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use utoipa::ToSchema;

/// What carries the frames of a flow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CarriedBy {
    /// The switch.
    Switch,
    /// The kernel, past the switch.
    Kernel,
}

/// The flows of the last minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowsBody {
    /// Whether the switch looks at flows (`flows` in `[switch]`).
    pub enabled: bool,
    /// A worker looks at this many frames of each millisecond, and at as many that it drops.
    pub first_per_ms: u32,
    /// Of the others it looks at one in so many, which stands for all of them.
    pub then_one_in: u32,
    /// Flows that match; more than are listed if there are more than `limit`.
    pub matching: usize,
    /// Those with the most bytes, or the most drops, first.
    pub flows: Vec<FlowBody>,
    /// Bytes of small flows for which there was no room, since the daemon started.
    pub other_bytes: u64,
}

/// Frames with the same addresses, from the same port. Bytes, frames, segments and drops are scaled
/// up from the frames that the switch looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowBody {
    /// The port that they came from; absent if they were dropped after they had waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The port that they left by or were to leave by; absent if they were dropped before that was
    /// decided, or went to a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// VLAN inside the switch; 0 is untagged. For frames of a VLAN that is not allowed, that of
    /// their tag.
    pub vlan: u16,
    /// Source address.
    pub source_mac: String,
    /// Destination address.
    pub destination_mac: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `arp`, `ip N` with another protocol number, or the EtherType.
    pub protocol: String,
    /// Source of IP or ARP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.1")]
    pub source: Option<IpAddr>,
    /// Destination of IP or ARP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.2")]
    pub destination: Option<IpAddr>,
    /// Source port of TCP or UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port of TCP or UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Bytes of frames that were to leave, with headers; those that a port had no room for are among
    /// them.
    pub bytes: u64,
    /// These frames; a train is one.
    pub frames: u64,
    /// Segments of these frames; of a frame that is no train, one.
    pub segments: u64,
    /// Of TCP that the switch carries: frames with bytes that an earlier frame had, because they were
    /// sent again or overtaken. Absent of other flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent: Option<u64>,
    /// Frames that the switch looked at, dropped ones among them. If they are as many as `frames` and
    /// all drops, these are exact.
    pub sampled: u64,
    /// Bits of the last second.
    pub bits_per_s: u64,
    /// Dropped frames by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// Drops of the last second.
    pub drops_per_s: u64,
    /// Seconds since it was first seen.
    pub first_seen_s: u64,
    /// Seconds since it was last seen.
    pub last_seen_s: u64,
    /// What carries it.
    pub carried_by: CarriedBy,
    /// A frame of it, as `POST /v1/trace` takes it; absent if no port is known that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}
