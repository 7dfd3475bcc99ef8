//! A port's counters.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One port's counters since it was opened. A train counts as one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountersBody {
    /// Frames taken from the port.
    pub ingress_frames: u64,
    /// Bytes of these frames.
    pub ingress_bytes: u64,
    /// Frames taken from the port that were trains already: the sender had not segmented them, or
    /// an uplink's device had coalesced them.
    #[serde(default)]
    pub ingress_trains: u64,
    /// Segments of these trains.
    #[serde(default)]
    pub ingress_train_segments: u64,
    /// Frames delivered to the port.
    pub egress_frames: u64,
    /// Bytes of these frames.
    pub egress_bytes: u64,
    /// Frames delivered to the port that were trains, coalesced by the switch or before it.
    #[serde(default)]
    pub egress_trains: u64,
    /// Segments of these trains.
    #[serde(default)]
    pub egress_train_segments: u64,
    /// Ingress frames that the kernel carried; `ingress_frames` has them too.
    #[serde(default)]
    pub carried_ingress_frames: u64,
    /// Bytes of these frames.
    #[serde(default)]
    pub carried_ingress_bytes: u64,
    /// Egress frames that the kernel carried; `egress_frames` has them too.
    #[serde(default)]
    pub carried_egress_frames: u64,
    /// Bytes of these frames.
    #[serde(default)]
    pub carried_egress_bytes: u64,
    /// Copies delivered by flooding or multicast.
    pub flooded_frames: u64,
    /// Copies delivered by a mirror.
    pub mirrored_frames: u64,
    /// Trains segmented for the port.
    pub segmented_trains: u64,
    /// Segments made from these trains.
    pub segments: u64,
    /// Ingress frames with a partial checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    #[serde(default)]
    pub unfinished_checksums: u64,
    /// Addresses learned on the port and evicted by another one learned there.
    #[serde(default)]
    pub evicted_addresses: u64,
    /// Frames from an uplink with the address of a vNIC: a loop sends the switch's own frames back,
    /// or the guest now runs on another host.
    #[serde(default)]
    pub returned_frames: u64,
    /// Frames that the port's guest does not want, by the addresses, modes and VLANs that its driver
    /// has set. They are not delivered, and are no drops.
    #[serde(default)]
    pub unwanted_frames: u64,
    /// Transport checksums completed in software for the port.
    pub checksums: u64,
    /// ICMP "too big" messages to the port about packets that it sent; they also count as egress
    /// frames.
    #[serde(default)]
    pub path_mtu_messages: u64,
    /// Frames the device lost, before the switch saw them or after it had taken them.
    pub device_lost: u64,
    /// Drops by reason.
    pub drops: BTreeMap<String, u64>,
    /// Drops for all reasons.
    pub dropped: u64,
    /// Coalescing toward the port.
    pub rsc: RscCountersBody,
}

/// Coalescing, with the names of `Get-NetAdapterStatistics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct RscCountersBody {
    /// Payload of the segments that joined a train, in bytes.
    pub coalesced_bytes: u64,
    /// Segments that joined an open train.
    pub coalesced_packets: u64,
    /// Trains of more than one segment.
    pub coalescing_events: u64,
    /// Trains delivered to the port that the switch did not make: they arrived already coalesced,
    /// or not yet segmented.
    #[serde(default)]
    pub arrived_coalesced_trains: u64,
    /// Segments of these trains.
    #[serde(default)]
    pub arrived_coalesced_segments: u64,
    /// Exceptions as NDIS counts them.
    pub coalescing_exceptions: u64,
    /// Ends of trains by reason, all reasons.
    pub exceptions_by_reason: BTreeMap<String, u64>,
    /// Trains by number of segments, shortest first.
    pub train_depth: Vec<DepthBody>,
}

/// Trains of one range of depths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct DepthBody {
    /// `1`, `2`, `3-4`, … `65+`.
    pub segments: String,
    /// Number of trains.
    pub trains: u64,
}
