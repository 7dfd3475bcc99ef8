// UNSAFETY: system calls that no crate of ours wraps: they make a userfaultfd, and name ranges of
// this process's addresses to it.
//! A descriptor that tells of accesses to pages that are not there (userfaultfd(2)).
//!
//! It is for accesses of the process's own code alone (`UFFD_USER_MODE_ONLY`), so it takes no
//! capability. System calls that meet such a page fail.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// The version of the interface.
const API: u64 = 0xaa;
/// `UFFDIO_API` and `UFFDIO_REGISTER`.
const SAY_HELLO: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
/// Features: missing pages of hugetlbfs, and of shared memory.
const SHARED: u64 = 1 << 4 | 1 << 5;
/// Tells of missing pages.
const MISSING: u64 = 1;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: libc::c_int = 1;

#[repr(C)]
struct Hello {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Registration {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Makes a descriptor for this process's addresses.
///
/// # Errors
/// The kernel lacks it, or does not allow it.
pub(crate) fn make() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: the call takes flags and returns a descriptor.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let number = i32::try_from(made).ok().filter(|number| *number >= 0);
    let number = number.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it, and nothing else has it.
    let faults = unsafe { OwnedFd::from_raw_fd(number) };
    let mut hello = Hello { api: API, features: SHARED, ioctls: 0 };
    control(&faults, SAY_HELLO, &mut hello)?;
    Ok(faults)
}

/// Has accesses to missing pages of this range wait and be told of.
///
/// # Errors
/// The range is not of shared memory.
pub(crate) fn register(faults: impl AsFd, range: &Range<u64>) -> io::Result<()> {
    let (start, len) = (range.start, range.end - range.start);
    // Where the kernel mapped a huge page, accesses to missing small ones beside it would not be
    // told of one by one.
    if let (Ok(at), Ok(bytes)) = (usize::try_from(start), usize::try_from(len)) {
        let at = std::ptr::without_provenance_mut(at);
        // SAFETY: advice about how the range is mapped, which changes none of its bytes.
        unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    }
    control(faults, REGISTER, &mut Registration { start, len, mode: MISSING, ioctls: 0 })
}

fn control<T>(faults: impl AsFd, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: `argument` is the structure of the request, which the kernel reads and writes.
    let done = unsafe { libc::ioctl(faults.as_fd().as_raw_fd(), request, &raw mut *argument) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
