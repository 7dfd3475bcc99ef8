//! Steering: which ingress queue of an uplink the flows of a vNIC arrive at.
//!
//! What the kernel's fan-out program does today, and what a NIC with RSS contexts or AF_XDP may do, as one trait, for the
//! control plane. A vNIC is an address in a VLAN. Each has an indirection table of its own; the entry at the flow's
//! Toeplitz hash, modulo 128, names the queue. Frames for no vNIC go by the table of [`Vnic::DEFAULT`].

use std::io;
use wire::Mac;
use wire::toeplitz::Key;

/// Entries of an indirection table.
pub const ENTRIES: usize = 128;

/// A vNIC's indirection table: the queue of each entry.
pub type Table = [u8; ENTRIES];

/// A vNIC's number at an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vnic(pub(crate) u16);

impl Vnic {
    /// Has no address: its table serves the frames that are for no vNIC.
    pub const DEFAULT: Vnic = Vnic(0);
}

/// What cannot be steered so.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// No such vNIC, or the default one where that cannot be.
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

/// A device that steers. Changes are in force for the next frame.
pub trait Steering: Send + Sync {
    /// Ingress queues.
    fn queues(&self) -> u8;

    /// The secret of the hash. Another key spreads all flows anew, whose order nothing keeps: to be set before there is
    /// traffic.
    fn set_key(&self, key: &Key);

    /// Gives an address in a VLAN (0: untagged) a table of its own, at first a copy of the default one, so that its flows stay
    /// where they are.
    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError>;

    /// Its frames go by the default table again.
    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError>;

    /// A vNIC's table.
    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError>;

    /// Stores one entry. What the old queue still holds is overtaken.
    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError>;
}
