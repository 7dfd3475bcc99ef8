//! The session's description of a queue before it starts, and the errors in it.

use bitflags::bitflags;
use guestmem::Gpa;

bitflags! {
    /// The ring features (virtio 1.2, section 6), at their bit numbers: truncate the negotiated
    /// bits to get them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RingFeatures: u64 {
        /// Tables of descriptors.
        const INDIRECT_DESC = 1 << 28;
        /// Notification by position.
        const EVENT_IDX = 1 << 29;
        /// The packed format.
        const RING_PACKED = 1 << 34;
        /// Buffers are used in the order they were made available.
        const IN_ORDER = 1 << 35;
    }
}

/// Addresses of the three parts of a ring, in either format (virtio 1.2, section 4.1.5.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RingAddresses {
    /// Descriptor table, or packed descriptor ring.
    pub descriptors: Gpa,
    /// Written by the driver: available ring, or driver event suppression.
    pub driver: Gpa,
    /// Written by the device: used ring, or device event suppression.
    pub device: Gpa,
}

/// A queue as negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Descriptors: a power of two in a split ring, up to 32768 in either.
    pub size: u16,
    /// Addresses of the ring.
    pub rings: RingAddresses,
    /// Negotiated features.
    pub features: RingFeatures,
    /// Position that the front end named in `VHOST_USER_SET_VRING_BASE`. Split: the available
    /// index, which is only checked to fit 16 bits, as the ring resumes at its used index. Packed:
    /// bits 0 to 14 are the next descriptor and bit 15 its wrap counter, where the ring resumes if
    /// no journal says otherwise (higher bits repeat both for used descriptors and are ignored).
    pub base: u32,
}

/// Why a queue cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A queue size that the format does not have.
    #[error(
        "queue size {0}: a split ring has a power of two from 1 to 32768, a packed ring 1 to 32768"
    )]
    Size(u16),
    /// A part of the ring starts at an odd place.
    #[error("the {part} is at guest address {gpa}, which is not a multiple of {align}")]
    Unaligned {
        /// The part of the ring.
        part: &'static str,
        /// Its address.
        gpa: Gpa,
        /// Required alignment.
        align: u64,
    },
    /// A part of the ring is not in guest memory.
    #[error("the {part}, {len} bytes at guest address {gpa}, is not all in the guest's memory")]
    OutsideMemory {
        /// The part of the ring.
        part: &'static str,
        /// Its address.
        gpa: Gpa,
        /// Its bytes.
        len: usize,
    },
    /// A base the ring does not have.
    #[error("vring base {base:#x} in a ring of {size}")]
    Base {
        /// The base seen.
        base: u32,
        /// Descriptors in the ring.
        size: u16,
    },
    /// The inflight region's first word is of a stranger, or of another ring.
    #[error(
        "the inflight region says {0:#x}, which is nothing that we noted about this ring: it needs a new region"
    )]
    Journal(u64),
    /// The memory cannot be changed now: so many chains are lent.
    #[error("{0} chains are lent: give them back before the memory is changed")]
    Lent(usize),
}
