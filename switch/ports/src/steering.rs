//! Steering: which ingress queue of an uplink the flows of a vNIC arrive at.
//!
//! One trait for the control plane: implemented by the kernel's fan-out program today, and possibly
//! by a NIC with RSS contexts or by AF_XDP later. A vNIC is an address in a VLAN, with its own
//! indirection table. The table's entry at the flow's Toeplitz hash, modulo 128, names the queue.
//! Frames for no vNIC use the table of [`Vnic::DEFAULT`].

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;
use wire::Mac;
use wire::toeplitz::Key;

/// Entries of an indirection table.
pub const ENTRIES: usize = 128;

/// A vNIC's indirection table: the queue of each entry.
pub type Table = [u8; ENTRIES];

/// Returns a secret key, drawn like the other secrets of the data path.
pub fn random_key() -> Key {
    let (random, mut key) = (RandomState::new(), Key([0; 40]));
    for (place, bytes) in key.0.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&random.hash_one(place).to_ne_bytes());
    }
    key
}

/// A vNIC at an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vnic {
    /// The number of its table. Once the vNIC is removed, another one may get it.
    pub number: u16,
    /// Distinguishes vNICs that had the same number one after the other: all but the last give
    /// [`SteeringError::NoSuchVnic`].
    pub generation: u32,
}

impl Vnic {
    /// The vNIC without an address: its table serves the frames that are for no vNIC.
    pub const DEFAULT: Vnic = Vnic { number: 0, generation: 0 };
}

/// An entry to be moved to another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMove {
    /// The vNIC of the table.
    pub vnic: Vnic,
    /// The entry's index in the table.
    pub entry: usize,
    /// The new queue.
    pub queue: u8,
}

/// Result for the entries that moved to one queue at one time, or for all that stayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The entries, in the order of the call.
    pub entries: Vec<(Vnic, usize)>,
    /// Whether their flows kept their order.
    pub order: Order,
    /// Frames that waited in the new queue, of any flow.
    pub held_frames: u64,
    /// Frames that the kernel dropped at the new queue meanwhile, because its ring was full.
    pub lost_frames: u64,
    /// How long the new queue was not read at first. After that it was read with a delay.
    pub held: Duration,
}

/// Whether the flows that moved kept their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All flows kept their order.
    Kept,
    /// All flows kept their order, unless the kernel was just about to give a frame to the old
    /// queue: it refused `membarrier`.
    NearlySure,
    /// The old queue was not read in time, or the new one's ring filled up, so the new one stopped
    /// waiting. The entries name the new queue nevertheless.
    GivenUp,
    /// The entries did not move: the new queue's ring had no room for the frames that wait in it
    /// and in the old one.
    Stayed,
}

/// Why a change of steering failed.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The vNIC does not exist any more, or it is the default one, which the call does not allow.
    #[error("no vNIC has the number {0}")]
    NoSuchVnic(u16),
    /// A vNIC has this address already.
    #[error("a vNIC has the address {mac} in VLAN {vlan} already")]
    InUse {
        /// The address.
        mac: Mac,
        /// The VLAN.
        vlan: u16,
    },
    /// The table has no such entry.
    #[error("entry {0} wanted: a table has the entries 0 to 127")]
    NoSuchEntry(usize),
    /// The uplink has no such queue.
    #[error("queue {queue} wanted: the uplink has {queues}")]
    NoSuchQueue {
        /// The queue asked for.
        queue: u8,
        /// Queues of the uplink.
        queues: u8,
    },
    /// Entries are being moved, which takes some 10 ms: try again later.
    #[error("entries are on the move: try again in a moment")]
    Busy,
    /// The device has no room for more vNICs.
    #[error("{0} vNICs have tables: there is room for no more")]
    Full(usize),
    /// The kernel refused a step.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A device that steers. Changes apply from the next frame on. While entries move, adding and
/// removing vNICs fails with [`SteeringError::Busy`], and other changes of entries wait.
pub trait Steering: Send + Sync {
    /// Returns the number of ingress queues.
    fn queues(&self) -> u8;

    /// Gives an address in a VLAN (0: untagged) its own table, at first a copy of the default one,
    /// so that its flows stay where they are.
    ///
    /// # Errors
    ///
    /// Fails if the address is in use, the device is full, or entries are being moved.
    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError>;

    /// Removes a vNIC, so that its frames use the default table again. If order matters, first move
    /// its entries to the default table's queues.
    ///
    /// # Errors
    ///
    /// Fails for the default vNIC, and while entries are being moved.
    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError>;

    /// Returns a vNIC's table.
    ///
    /// # Errors
    ///
    /// Fails if there is no such vNIC.
    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError>;

    /// Returns the frames that arrived by each entry of a vNIC's table, which tell each entry's
    /// share of its queue's load. They count from the opening of the uplink on, including those of
    /// earlier vNICs with this number, so only the difference of two readings is meaningful.
    ///
    /// # Errors
    ///
    /// Fails if there is no such vNIC.
    fn frames(&self, vnic: Vnic) -> Result<[u64; ENTRIES], SteeringError>;

    /// Stores one entry. Its flows' new frames may overtake frames in the old queue.
    ///
    /// # Errors
    ///
    /// Fails if there is no such vNIC, entry or queue.
    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError>;

    /// Moves entries to other queues, and keeps the order of each flow's frames. Skips entries of
    /// vNICs that are gone, entries that name their queue already, and all but the first move of an
    /// entry.
    ///
    /// Entries move together, unless a queue is an old one of some and a new one of others: such
    /// moves run in batches one after the other, the first ones first. Moves whose new queue has no
    /// room for the frames that wait in it and in the old one run in a later batch; they stay if
    /// none of them has for as long as `timeout`. Returns when all others are moved,
    /// after some 10 ms for each batch whatever the number of entries; the queues' readers must
    /// keep running for that. A new queue is held back no longer than `timeout`, or until its ring
    /// is nearly full: then its reader continues by itself, even while the caller does not run.
    ///
    /// # Errors
    ///
    /// Fails, with nothing moved, if an entry or a queue does not exist.
    fn move_entries(
        &self,
        moves: &[EntryMove],
        timeout: Duration,
    ) -> Result<Vec<Moved>, SteeringError>;
}
