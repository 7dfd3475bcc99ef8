//! Dynamic VMMQ: moves with the figures that caused them, and the load so far of everything that
//! can move.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A move of a queue, or of entries of a vNIC that moved together for one reason. Loads are shares
/// of one worker; a load above 1 exceeds a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmmqMoveBody {
    /// Queues and single entries moved by load so far, including these, as `moves` of
    /// `show_vmmq_load` counts them.
    #[serde(default)]
    pub number: u64,
    /// Time of the move, in seconds since the daemon started.
    pub at_s: f64,
    /// The port; for entries, the uplink.
    pub port: String,
    /// For entries: the vNIC's port; absent for the default table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// What moved, such as `queue 0`, `entry 17 of vm1` or `12 entries of vm1`.
    pub item: String,
    /// The entries; empty if a queue moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<u8>,
    /// The worker before the move.
    pub from: usize,
    /// The worker after the move.
    pub to: usize,
    /// `expand`, `probe`, `relieve`, `isolate`, `home`, `coalesce` or `leave`.
    pub reason: String,
    /// The threshold that caused it.
    pub threshold: f64,
    /// The item's expected load on `to`.
    pub load: f64,
    /// Load of `from` before the move, and the expected load after it.
    pub from_load: [f64; 2],
    /// Load of `to` before the move, and the expected load after it.
    pub to_load: [f64; 2],
    /// For entries: the effect on their new queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldBody>,
    /// The move as a sentence.
    pub text: String,
}

impl VmmqMoveBody {
    /// Returns each queue or entry that moved, such as `queue 0` or `entry 17 of vm1`.
    pub fn items(&self) -> Vec<String> {
        if self.entries.is_empty() {
            return vec![self.item.clone()];
        }
        let of = self.vnic.as_ref().map(|vnic| format!(" of {vnic}")).unwrap_or_default();
        self.entries.iter().map(|entry| format!("entry {entry}{of}")).collect()
    }
}

/// The effect of moving entries on their new queue, which is held until the old queues have been
/// read. Entries that moved together share one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldBody {
    /// Microseconds during which the queue was not read.
    pub us: u64,
    /// Frames that waited in its ring.
    pub frames: u64,
    /// Frames that the kernel dropped there meanwhile, because the ring was full.
    pub lost: u64,
    /// Whether the flows that moved kept their order.
    pub order: OrderBody,
}

/// Whether the flows of an entry kept their order when it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OrderBody {
    /// They kept it.
    Kept,
    /// They kept it unless the kernel was just placing a frame in the old queue: it refused
    /// `membarrier`.
    NearlySure,
    /// Unknown: an old queue was not read in time, or the new one's ring was nearly full, so the new
    /// one stopped waiting.
    GivenUp,
}

/// Busy times and frames so far, read within about a millisecond. The difference between two
/// readings is the load between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqLoadBody {
    /// Time of the reading, in nanoseconds since the daemon started.
    pub at_ns: u64,
    /// Queues and single entries moved by load so far, including moves that `list_vmmq_moves` no
    /// longer shows.
    pub moves: u64,
    /// The workers, by number.
    pub workers: Vec<VmmqWorkerBody>,
    /// Ingress queues of all ports.
    pub queues: Vec<VmmqQueueBody>,
    /// Indirection tables of uplinks that have them.
    pub tables: Vec<VmmqTableBody>,
}

/// One worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqWorkerBody {
    /// The core it is pinned to; the same for SMT siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// The NUMA node of its core.
    pub node: usize,
    /// Nanoseconds in turns that took frames.
    pub busy_ns: u64,
}

/// One ingress queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqQueueBody {
    /// The port.
    pub port: String,
    /// Its number.
    pub queue: usize,
    /// The worker that serves it.
    pub worker: usize,
    /// Whether the balancer may move it. Queues of uplinks with tables stay: their entries move.
    pub dynamic: bool,
    /// Nanoseconds of turns that took frames from the queue, since the port was opened.
    pub busy_ns: u64,
    /// Frames taken from the queue.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A vNIC's indirection table at an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqTableBody {
    /// The uplink.
    pub uplink: String,
    /// The vNIC's port; absent for the default table, which steers frames for no vNIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// Its number at the uplink. Another table may reuse it once the vNIC is removed or gets
    /// another address or VLAN.
    pub number: u16,
    /// Distinguishes successive tables with the same number.
    pub generation: u32,
    /// Whether the balancer may move its entries.
    pub dynamic: bool,
    /// The queue that each of the 128 entries names.
    pub queues: Vec<u8>,
    /// Frames that each entry steered since the uplink was opened, including those for an earlier
    /// vNIC with the same number.
    pub frames: Vec<u64>,
}
