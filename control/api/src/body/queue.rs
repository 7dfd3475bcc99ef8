//! The queues of a port: their workers and loads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One queue of a port, with the facts that `Get-NetAdapterVmqQueue` and `Get-NetAdapterRss` show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueBody {
    /// The port.
    pub port: String,
    /// The queue's number.
    pub queue: usize,
    /// The address of the port's guest, configured or held; absent if there is none or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// VLAN mode of the port, such as `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// The worker that serves it.
    pub worker: usize,
    /// The worker's core.
    pub cpu: Option<usize>,
    /// Share of its worker's time over the last second, in percent, at most 100: the time for which
    /// another program held the worker up in a turn counts too.
    pub load_percent: f64,
    /// Entries of the port's indirection table that lead to the queue, for flows toward the port.
    pub entries: usize,
    /// Nanoseconds of turns that took frames from the queue, since the port was opened.
    pub busy_ns: u64,
    /// Frames taken from the queue.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long its frames waited; absent for a port that does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitBody>,
    /// Whether there is another worker to move it to.
    pub movable: bool,
    /// At an uplink with indirection tables: the vNICs whose flows arrive at the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnics: Vec<QueueVnicBody>,
}

/// How long a queue's frames waited before the switch took them. Each burst counts with the wait of
/// its first frame, so the figures are upper bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitBody {
    /// Mean over the last second, in microseconds; absent if no frame came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<u64>,
    /// What 99 % of the frames of the last second did not wait longer than, in microseconds, rounded
    /// up to a bound of `frames`; absent if no frame came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// Sum of all waits since the port was opened, in nanoseconds.
    pub sum_ns: u64,
    /// Frames since the port was opened, by their wait.
    pub frames: Vec<WaitRangeBody>,
}

/// Frames that waited longer than the bound before, and up to this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitRangeBody {
    /// The bound, in microseconds; absent in the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_us: Option<u64>,
    /// The number of frames.
    pub frames: u64,
}

/// A vNIC with flows that arrive at a queue of an uplink. Without port, address and VLAN: frames
/// for no vNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueVnicBody {
    /// The vNIC's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The VLAN ID of its frames at the uplink; 0 for untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// How many of the 128 entries of its indirection table at the uplink lead to the queue.
    pub entries: usize,
}

/// Body of `PUT /v1/ports/{name}/queues/{queue}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueMove {
    /// The worker to move the queue to.
    pub worker: usize,
}
