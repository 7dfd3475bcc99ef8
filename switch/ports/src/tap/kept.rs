//! Checks whether descriptors from an earlier process belong to the wanted device. It asks the
//! kernel, and does not trust the process that passed them.

use super::{TapOptions, flags};
use crate::ioctl::{self, Plain, Request};
use crate::kept::Flaw;
use rustix::fs::fstat;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Checks the descriptors; the error says what does not fit. The socket belongs to the namespace
/// that the device must be in.
pub(super) fn check(
    options: &TapOptions,
    files: &[Arc<OwnedFd>],
    socket: BorrowedFd<'_>,
) -> Result<(), Flaw> {
    if files.len() != usize::from(options.queues) {
        return Err(format!("{} for {} queue(s)", files.len(), options.queues).into());
    }
    files.iter().try_for_each(|file| check_queue(options, file, socket))
}

fn check_queue(options: &TapOptions, file: &OwnedFd, socket: BorrowedFd<'_>) -> Result<(), Flaw> {
    let attached = Request::new("").and_then(|request| request.call(file, Plain::Attached));
    let attached = attached.map_err(|error| format!("not one of a TAP device: {error}"))?;
    if attached.name() != options.name {
        return Err(format!("one is of {}", attached.name()).into());
    }
    let has = |bit| attached.as_short() & flags(bit) != 0;
    let is_tap = has(libc::IFF_TAP) && has(libc::IFF_NO_PI) && has(libc::IFF_VNET_HDR);
    if !is_tap || has(libc::IFF_DETACH_QUEUE) {
        return Err("one is of a device of another kind".into());
    }
    if has(libc::IFF_NAPI) != options.napi {
        return Err("its `napi` differs".into());
    }
    if options.queues > 1 && !has(libc::IFF_MULTI_QUEUE) {
        return Err("the device has one queue".into());
    }
    match share_a_namespace(file, socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the device is in another network namespace".into()),
        Err(error) => Err(Flaw::of("its network namespace is unknown", &error)),
    }
}

/// Whether the device is in the socket's namespace.
fn share_a_namespace(file: &OwnedFd, socket: BorrowedFd<'_>) -> io::Result<bool> {
    let its = fstat(ioctl::tap_namespace(file)?)?;
    let wanted = fstat(ioctl::socket_namespace(socket)?)?;
    Ok((its.st_dev, its.st_ino) == (wanted.st_dev, wanted.st_ino))
}
