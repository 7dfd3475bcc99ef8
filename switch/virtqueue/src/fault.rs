//! Faults of a driver. Each stops only its own queue.

use crate::chain::LONGEST;
use guestmem::Gpa;

/// Why a queue was stopped: what the driver wrote, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueFault {
    /// More buffers available than the ring has places.
    #[error(
        "the available index is {seen}, with {used} used in a ring of {size}: it may be ahead by {size} at most"
    )]
    IndexJump {
        /// The driver's index.
        seen: u16,
        /// Ours.
        used: u16,
        /// Places in the ring.
        size: u16,
    },
    /// A descriptor that the table does not have.
    #[error("descriptor {index} is named, the table has {size}")]
    NoSuchDescriptor {
        /// The number seen.
        index: u16,
        /// Descriptors in the table.
        size: u32,
    },
    /// A loop, or a chain of more descriptors than are served here.
    #[error("a chain has more than {0} descriptors, or runs in a loop")]
    ChainTooLong(u32),
    /// A chain of 4 GiB or more: its bytes.
    #[error("a chain has {0} bytes, less than 4 GiB are served")]
    TooManyBytes(u64),
    /// A table within a table.
    #[error("an indirect table holds a descriptor that is itself indirect")]
    NestedIndirect,
    /// Both flags on one descriptor.
    #[error("a descriptor is indirect and has a next one")]
    IndirectWithNext,
    /// A table of so many bytes: an odd length, no entries, or too many.
    #[error(
        "an indirect table has {0} bytes: 16 for each of 1 to {LONGEST} descriptors are served"
    )]
    IndirectLength(u32),
    /// A descriptor without bytes, at this address.
    #[error("the buffer at guest address {0} has length 0")]
    EmptyBuffer(Gpa),
    /// The bytes are not all in the guest's memory.
    #[error("{len} bytes at guest address {gpa} are not all in the guest's memory")]
    OutsideMemory {
        /// The address seen.
        gpa: Gpa,
        /// The bytes seen.
        len: u32,
    },
    /// A buffer at this address that the device may only write, where it should read.
    #[error("the buffer at guest address {0} is for the device to write, one to read was expected")]
    NotReadable(Gpa),
    /// A buffer at this address that the device may only read, where it should write.
    #[error("the buffer at guest address {0} is for the device to read, one to write was expected")]
    NotWritable(Gpa),
    /// The front end truncated a memory file.
    #[error("the guest's memory file was truncated while it was mapped")]
    MemoryBroken,
}
