//! Steering: which ingress queue of an uplink the flows of a vNIC arrive at.
//!
//! What the kernel's fan-out program does today, and what a NIC with RSS contexts or AF_XDP may do,
//! as one trait, for the control plane. A vNIC is an address in a VLAN. Each has an indirection
//! table of its own; the entry at the flow's Toeplitz hash, modulo 128, names the queue. Frames for
//! no vNIC go by the table of [`Vnic::DEFAULT`].

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;
use wire::Mac;
use wire::toeplitz::Key;

/// Entries of an indirection table.
pub const ENTRIES: usize = 128;

/// A vNIC's indirection table: the queue of each entry.
pub type Table = [u8; ENTRIES];

/// A key that nobody else knows, drawn as the other secrets of the data path are.
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
    /// Tells apart vNICs that had the same number one after the other:
    /// [`SteeringError::NoSuchVnic`] for all but the last.
    pub generation: u32,
}

impl Vnic {
    /// Has no address: its table serves the frames that are for no vNIC.
    pub const DEFAULT: Vnic = Vnic { number: 0, generation: 0 };
}

/// An entry that is to name another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMove {
    /// Whose table it is in.
    pub vnic: Vnic,
    /// Its place there.
    pub entry: usize,
    /// The new queue.
    pub queue: u8,
}

/// What became of entries that moved to one queue at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which, in the order of the call.
    pub entries: Vec<(Vnic, usize)>,
    /// Whether its flows kept their order.
    pub order: Order,
    /// Frames that waited in the new queue, of whatever flow.
    pub held_frames: u64,
    /// Frames that the kernel dropped at the new queue meanwhile, because its ring was full.
    pub lost_frames: u64,
    /// How long the new queue was not read at first. Later it was read with a delay.
    pub held: Duration,
}

/// Whether the flows that moved kept their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They did.
    Kept,
    /// They did, unless the kernel was just about to give a frame to the old queue: it refused
    /// `membarrier`.
    NearlySure,
    /// The old queue was not read in time, so the new one did not wait any longer. The entries name
    /// the new queue all the same.
    GivenUp,
}

/// What cannot be steered so.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// No such vNIC any more, or the default one where that cannot be.
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
    /// Not an entry of a table.
    #[error("entry {0} wanted: a table has the entries 0 to 127")]
    NoSuchEntry(usize),
    /// Not a queue of the uplink.
    #[error("queue {queue} wanted: the uplink has {queues}")]
    NoSuchQueue {
        /// What was asked for.
        queue: u8,
        /// How many there are.
        queues: u8,
    },
    /// Entries are on the move, which takes some 10 ms: to be tried again.
    #[error("entries are on the move: try again in a moment")]
    Busy,
    /// The device takes no more vNICs.
    #[error("{0} vNICs have tables: there is room for no more")]
    Full(usize),
    /// What the kernel said.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A device that steers. Changes are in force for the next frame. While entries move, vNICs neither
/// come nor go ([`SteeringError::Busy`]), and other changes of entries wait.
pub trait Steering: Send + Sync {
    /// Ingress queues.
    fn queues(&self) -> u8;

    /// Gives an address in a VLAN (0: untagged) a table of its own, at first a copy of the default
    /// one, so that its flows stay where they are.
    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError>;

    /// Its frames go by the default table again. Move its entries to where the default table has
    /// them first, if order matters.
    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError>;

    /// A vNIC's table.
    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError>;

    /// Frames that came by each entry of a vNIC's table: what share of its queues' load each is.
    /// They count from the opening of the uplink on, those of an earlier vNIC of this number too,
    /// so only the difference of two readings tells.
    fn frames(&self, vnic: Vnic) -> Result<[u64; ENTRIES], SteeringError>;

    /// Stores one entry. What the old queue still holds is overtaken.
    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError>;

    /// Has entries name other queues, in such a way that no frame of a flow overtakes another. Left
    /// out are those of vNICs that are gone and those that name their queue already; of an entry
    /// that is given twice the first counts. They move together, unless a queue that some leave is
    /// one that others go to: such moves are made one batch after the other, the first ones first.
    /// Returns when that is so, after some 10 ms for each batch whatever the number of entries, for
    /// which the queues' readers must go on. A new queue is held back no longer than `patience`:
    /// then its reader goes on by itself, also while the caller does not run.
    fn move_entries(
        &self,
        moves: &[EntryMove],
        patience: Duration,
    ) -> Result<Vec<Moved>, SteeringError>;
}
