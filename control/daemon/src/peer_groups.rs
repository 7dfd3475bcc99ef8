// UNSAFETY: one getsockopt that rustix lacks: the groups of the process at the other end of a Unix
// socket.
//! Reads the groups that a peer had when it connected. The kernel keeps them with the socket, so it
//! does not matter if the process ends or its ID is reused.
#![allow(unsafe_code, reason = "getsockopt(SO_PEERGROUPS)")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most groups of a process (`NGROUPS_MAX`).
const MOST: usize = 65536;

/// Returns the supplementary groups of the process that connected this socket.
///
/// # Errors
/// The kernel does not report them, or there are more than [`MOST`].
pub(crate) fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = u32::try_from(groups.len() * size_of::<u32>()).unwrap_or(u32::MAX);
        // SAFETY: `groups` has room for `bytes` bytes, which is all that the kernel writes to; any
        // bits are a `u32`.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let error = io::Error::last_os_error();
        let count = bytes as usize / size_of::<u32>();
        match status {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel has set `bytes` to the size that it needs.
            _ if error.raw_os_error() == Some(libc::ERANGE)
                && count > groups.len()
                && count <= MOST =>
            {
                groups.resize(count, 0);
            }
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_groups_of_this_process_are_found() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        let mut seen = groups(one.as_fd()).unwrap();
        own.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, own);
    }
}
