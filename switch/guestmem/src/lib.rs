//! A guest's memory, mapped once and read in place.
//!
//! The vhost-user session gives a [`Region`] for each piece of guest memory; [`GuestMemory::map`]
//! checks them and maps all of them into one reservation of addresses. A queue owns a
//! [`Translator`], which turns a guest's address into a host pointer that is good for `len` bytes,
//! or into `None`. What the guest says is never trusted further than that.
//!
//! **Cost**: a translation that hits the translator's one entry is two compares and an add (about 7
//! instructions, no load from shared memory); any other walks the sorted list of spans. Regions
//! that touch in guest addresses are one span, so most guests have one or two.
//!
//! **Change** is by snapshot: [`GuestMemory::with_region`] and [`GuestMemory::without_region`] give
//! a new snapshot, mapped afresh. The old one stays mapped until the last `Arc` to it is gone, so a
//! worker in the middle of a burst never loses the ground under its pointers.
//!
//! **Holes** are never mapped. Guest addresses may be process addresses (DPDK's virtio-user),
//! spread over 47 bits, so the reservation holds the spans side by side and not the whole range
//! from the lowest to the highest address.
//!
//! **Files shrink.** A region must lie within its file when it is mapped; a front end that
//! truncates the file later makes the access fault with SIGBUS. The `guard` catches that, puts
//! zeros in place and marks the memory [broken](GuestMemory::is_broken): the port stops, the switch
//! does not.

mod address;
mod address_range;
mod dirty;
mod growing;
mod guard;
mod layout;
mod memory;
mod region;

pub use address::{Gpa, UserAddress};
pub use dirty::DirtyLog;
pub use growing::GrowingMemory;
pub use memory::{GuestMemory, MemorySpan, Translator};
pub use region::{MemoryError, Region};
