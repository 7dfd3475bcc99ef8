//! The front end's description of its memory, and the errors in it.

use crate::guard::LIMIT as MEMORIES;
use crate::layout::{PAGE, REGIONS};
use crate::{Gpa, UserAddress};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// One piece of guest memory, as `VHOST_USER_SET_MEM_TABLE` or `VHOST_USER_ADD_MEM_REG` describes
/// it.
#[derive(Clone, Debug)]
pub struct Region {
    /// Guest address of the region.
    pub gpa: Gpa,
    /// Size in bytes.
    pub size: u64,
    /// Address at which the front end itself has the region mapped.
    pub user: UserAddress,
    /// Start of the region in the file, in bytes.
    pub file_offset: u64,
    /// The file. Shared, because every later generation of the memory maps it again.
    pub file: Arc<OwnedFd>,
}

/// Why a guest's memory, or its log of dirty pages, cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A region of no bytes at this guest address.
    #[error("the memory region at guest address {0} has size 0: leave it out")]
    Empty(Gpa),
    /// The region is not made of whole pages.
    #[error(
        "the memory region at guest address {gpa} has size {size:#x} and file offset {file_offset:#x}: \
         all three must be multiples of {PAGE:#x}"
    )]
    Unaligned {
        /// Its guest address.
        gpa: Gpa,
        /// Its bytes.
        size: u64,
        /// Its place in the file.
        file_offset: u64,
    },
    /// Addresses past 2^64.
    #[error(
        "the memory region at guest address {gpa}, user address {user} and file offset {file_offset:#x} \
         with size {size:#x} ends beyond 64 bits"
    )]
    Overflow {
        /// Its guest address.
        gpa: Gpa,
        /// Its user address.
        user: UserAddress,
        /// Its place in the file.
        file_offset: u64,
        /// Its bytes.
        size: u64,
    },
    /// Two regions share guest addresses.
    #[error(
        "the memory regions at guest addresses {first} (size {first_size:#x}) and {second} overlap"
    )]
    Overlap {
        /// The lower region.
        first: Gpa,
        /// Its bytes.
        first_size: u64,
        /// The upper region.
        second: Gpa,
    },
    /// The file is too short for the region.
    #[error(
        "the memory region at guest address {gpa} needs its file to have {needed:#x} bytes, it has {file_size:#x}: \
         enlarge the file first"
    )]
    BeyondFile {
        /// The region's guest address.
        gpa: Gpa,
        /// The end of the region in the file.
        needed: u64,
        /// The end of the file.
        file_size: u64,
    },
    /// Another process could withhold pages of this file. The path is the kernel's name for it.
    #[error(
        "{0:?} backs guest memory or its log: its file system could stall the switch at a page fault. \
         Served are a memfd, a file on tmpfs (/dev/shm) and one on hugetlbfs: with QEMU, memory-backend-memfd"
    )]
    Backing(PathBuf),
    /// The host has too few huge pages for the guest.
    #[error(
        "populating {bytes:#x} bytes of huge pages: {source}; the host has too few free ones: raise vm.nr_hugepages, \
         or let the front end take them at its start (QEMU: prealloc=on)"
    )]
    HugePages {
        /// Bytes of the mapping.
        bytes: u64,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The dirty log lies in huge pages of so many bytes.
    #[error(
        "the dirty log's file has pages of {0} bytes, 4096 are served: use a memfd without huge pages"
    )]
    LogPage(u64),
    /// More bytes than the port's front end may have mapped.
    #[error(
        "memory of {seen} bytes is to be mapped, this port's memory-limit is {limit}: give the guest less memory, or \
         raise memory-limit"
    )]
    TooMuch {
        /// Bytes of all regions, or of the dirty log.
        seen: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// So many regions, more than are served.
    #[error("{0} memory regions, at most {REGIONS} are served")]
    TooManyRegions(usize),
    /// A region to be removed is not there.
    #[error("there is no memory region at guest address {gpa} with size {size:#x}")]
    NoSuchRegion {
        /// The guest address asked for.
        gpa: Gpa,
        /// The bytes asked for.
        size: u64,
    },
    /// The truncation guard has no room.
    #[error("{MEMORIES} guest memories are mapped already, and that is the limit: remove a port")]
    TooManyMemories,
    /// The log is shorter than the memory it is to cover.
    #[error(
        "the dirty log has {bytes:#x} bytes, memory up to guest address {end} needs {needed:#x}"
    )]
    LogTooShort {
        /// Bytes of the log.
        bytes: u64,
        /// The end of guest memory.
        end: Gpa,
        /// Bytes wanted.
        needed: u64,
    },
    /// A system call failed.
    #[error("{doing} of {bytes:#x} bytes: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// Bytes that it was tried on.
        bytes: u64,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl MemoryError {
    /// A system call on so many bytes failed, as the kernel says.
    pub(crate) fn io(doing: &'static str, bytes: u64) -> impl Fn(Errno) -> MemoryError + Copy {
        move |source| MemoryError::Io { doing, bytes, source: source.into() }
    }
}
