//! Faults of a driver. Each stops only its own queue.

use crate::chain::LONGEST;
use guestmem::Gpa;

/// Reasons why a queue was stopped, with the values that the driver had written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueFault {
    /// More buffers are available than the ring has entries.
    #[error(
        "the available index is {seen}, with {used} used in a ring of {size}: it may be ahead by {size} at most"
    )]
    IndexJump {
        /// The driver's available index.
        seen: u16,
        /// Our used index.
        used: u16,
        /// Number of entries of the ring.
        size: u16,
    },
    /// A chain names a descriptor that the table does not have.
    #[error("descriptor {index} is named, the table has {size}")]
    NoSuchDescriptor {
        /// Index of the descriptor.
        index: u16,
        /// Number of descriptors in the table.
        size: u32,
    },
    /// A chain has a loop, or more descriptors than this number, which is the limit.
    #[error("a chain has more than {0} descriptors, or runs in a loop")]
    ChainTooLong(u32),
    /// A chain has this number of bytes, 4 GiB or more.
    #[error("a chain has {0} bytes, less than 4 GiB are served")]
    TooManyBytes(u64),
    /// An indirect table contains an indirect descriptor.
    #[error("an indirect table holds a descriptor that is itself indirect")]
    NestedIndirect,
    /// A descriptor has the flags of an indirect table and of a next descriptor.
    #[error("a descriptor is indirect and has a next one")]
    IndirectWithNext,
    /// An indirect table has this number of bytes: no multiple of 16, none, or too many.
    #[error(
        "an indirect table has {0} bytes: 16 for each of 1 to {LONGEST} descriptors are served"
    )]
    IndirectLength(u32),
    /// A buffer at this address has no bytes.
    #[error("the buffer at guest address {0} has length 0")]
    EmptyBuffer(Gpa),
    /// A buffer does not lie within the guest's memory.
    #[error("{len} bytes at guest address {gpa} are not all in the guest's memory")]
    OutsideMemory {
        /// Address of the buffer.
        gpa: Gpa,
        /// Length of the buffer in bytes.
        len: u32,
    },
    /// A buffer at this address, which the device should read, is only writable.
    #[error("the buffer at guest address {0} is for the device to write, one to read was expected")]
    NotReadable(Gpa),
    /// A buffer at this address, which the device should write, is only readable.
    #[error("the buffer at guest address {0} is for the device to read, one to write was expected")]
    NotWritable(Gpa),
    /// The front end truncated a file of guest memory.
    #[error("the guest's memory file was truncated while it was mapped")]
    MemoryBroken,
}
