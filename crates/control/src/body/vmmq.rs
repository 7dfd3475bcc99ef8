//! Dynamic VMMQ: what moved, and the figures that caused it; what everything that can move has cost so far.

use ports::steering::Order;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A move: of a queue, or of entries of a vNIC that moved together for one reason. Loads are shares of one worker; above 1:
/// more than a worker has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmmqMoveBody {
    /// How many queues and single entries had moved by load by then, including these, as `moves` of `show_vmmq_load`.
    #[serde(default)]
    pub number: u64,
    /// When, in seconds since the daemon started.
    pub at_s: f64,
    /// The port; of entries the uplink.
    pub port: String,
    /// Of entries: the vNIC's port; absent: those of the default table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// What moved, as in `queue 0`, `entry 17 of vm1` or `12 entries of vm1`.
    pub item: String,
    /// The entries; none: a queue moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<u8>,
    /// Its worker before.
    pub from: usize,
    /// Its worker since.
    pub to: usize,
    /// `expand`, `probe`, `relieve`, `isolate`, `home`, `coalesce` or `leave`.
    pub reason: String,
    /// The threshold that caused it.
    pub threshold: f64,
    /// What the item was expected to take on `to`.
    pub load: f64,
    /// Load of `from` before the move, and expected after it.
    pub from_load: [f64; 2],
    /// Load of `to` before the move, and expected after it.
    pub to_load: [f64; 2],
    /// Of an entry: what the move meant for its new queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldBody>,
    /// The same as a sentence.
    pub text: String,
}

impl VmmqMoveBody {
    /// Each queue or entry that moved, as in `queue 0` or `entry 17 of vm1`.
    pub fn items(&self) -> Vec<String> {
        if self.entries.is_empty() {
            return vec![self.item.clone()];
        }
        let of = self.vnic.as_ref().map(|vnic| format!(" of {vnic}")).unwrap_or_default();
        self.entries.iter().map(|entry| format!("entry {entry}{of}")).collect()
    }
}

/// What a move of entries meant for the queue that they went to, which is held until the old queues have been read. Entries
/// that moved together share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldBody {
    /// Microseconds for which it was not read at all.
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
    /// They did.
    Kept,
    /// They did, unless the kernel was just about to give a frame to the old queue: it refused `membarrier`.
    NearlySure,
    /// An old queue was not read in time, so the new one did not wait any longer.
    GivenUp,
}

impl From<Order> for OrderBody {
    fn from(order: Order) -> OrderBody {
        match order {
            Order::Kept => OrderBody::Kept,
            Order::NearlySure => OrderBody::NearlySure,
            Order::GivenUp => OrderBody::GivenUp,
        }
    }
}

/// Busy times and frames so far, read within about a millisecond. The difference of two is what happened between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqLoadBody {
    /// The moment, in nanoseconds since the daemon started.
    pub at_ns: u64,
    /// Queues and single entries that moved by load so far, also those that `list_vmmq_moves` shows no more.
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
    /// The core it is pinned to: SMT siblings have the same one.
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
    /// Nanoseconds of turns that took frames from it, since the port was opened.
    pub busy_ns: u64,
    /// Frames taken from it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A vNIC's indirection table at an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmmqTableBody {
    /// The uplink.
    pub uplink: String,
    /// The vNIC's port; absent: the default table, for frames that are for no vNIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// Its number at the uplink. Once the vNIC is removed or gets another address or VLAN, another table may get it.
    pub number: u16,
    /// Tells apart tables that had the same number one after the other.
    pub generation: u32,
    /// Whether the balancer may move its entries.
    pub dynamic: bool,
    /// The queue that each of the 128 entries names.
    pub queues: Vec<u8>,
    /// Frames that each entry steered since the uplink was opened, for an earlier vNIC of the same number too.
    pub frames: Vec<u64>,
}
