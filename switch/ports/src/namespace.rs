// UNSAFETY: `unshare` is unsafe because it can separate threads from shared descriptors; here it
// separates only the network namespace.
//! Opens descriptors in network namespaces other than the process's own.
//!
//! A namespace belongs to a thread, and descriptors keep the one they were opened in. So a port
//! gets its descriptors from the namespace of its device (`make`, `attach`) and does everything
//! else here. A scratch thread enters the namespace, opens the descriptor and ends; the caller's
//! own thread never moves. The scratch thread belongs to a [`helper`] if this process gave up the
//! right to enter namespaces.
//!
//! [`within`] and [`fresh`] run any function this way, if the process may enter namespaces.
#![allow(unsafe_code)]

pub mod helper;
mod request;

use crate::bpf::{self, Hook};
use crate::kernel_path::program as kernel_path;
use crate::packet::steering::program;
use request::Refused;
pub(crate) use request::Wanted;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

/// Device file that makes TAP devices.
pub(crate) const TAP: &str = "/dev/net/tun";

/// Why a descriptor could not be made.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The namespace cannot be entered.
    Namespace {
        /// The path given.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It cannot be made there.
    Making(io::Error),
}

/// Returns a descriptor of the network namespace at `netns`, or of the calling thread's where there
/// is none.
pub(crate) fn make(netns: Option<&Path>, wanted: Wanted) -> Result<OwnedFd, Refusal> {
    ask(netns, wanted, &[])
}

/// Attaches an XDP program to an interface of that namespace until the link is closed, at the
/// latest when the process ends. Fails with EBUSY or EEXIST if another program is attached.
pub(crate) fn attach(
    netns: Option<&Path>,
    program: BorrowedFd<'_>,
    interface: u32,
    hook: Hook,
) -> Result<OwnedFd, Refusal> {
    ask(netns, Wanted::Attached { interface, hook }, &[program])
}

fn ask(netns: Option<&Path>, wanted: Wanted, files: &[BorrowedFd<'_>]) -> Result<OwnedFd, Refusal> {
    let Some(path) = netns else { return here(wanted, files).map_err(Refusal::Making) };
    let made = match helper::get() {
        Some(helper) => helper.ask(path, wanted, files),
        None => there(path, wanted, files),
    };
    made.map_err(|refused| match refused {
        Refused::Entry(source) => Refusal::Namespace { path: path.to_owned(), source },
        Refused::Making(source) => Refusal::Making(source),
    })
}

/// Makes the descriptor in the namespace at this path.
fn there(path: &Path, wanted: Wanted, files: &[BorrowedFd<'_>]) -> Result<OwnedFd, Refused> {
    let made = within(Some(path), || here(wanted, files)).map_err(Refused::Entry)?;
    made.map_err(Refused::Making)
}

/// Makes the descriptor in the namespace of this thread.
fn here(wanted: Wanted, files: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let socket =
        |family, kind, flags| socket_with(family, kind, SocketFlags::CLOEXEC | flags, None);
    let waiting = SocketFlags::empty();
    Ok(match wanted {
        Wanted::Tap => {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::open(TAP, flags, Mode::empty())?
        }
        Wanted::Links => socket(AddressFamily::INET, SocketType::DGRAM, waiting)?,
        // Protocol 0 is NETLINK_ROUTE.
        Wanted::Changes => socket(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::NONBLOCK)?,
        Wanted::Packet => socket(AddressFamily::PACKET, SocketType::RAW, SocketFlags::NONBLOCK)?,
        Wanted::Xdp => socket(AddressFamily::XDP, SocketType::RAW, SocketFlags::NONBLOCK)?,
        Wanted::Attached { interface, hook } => {
            let [program] = files else { return Err(io::ErrorKind::InvalidInput.into()) };
            bpf::attach(*program, interface, hook)?
        }
        Wanted::Steering => {
            let maps = files.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            program::load(maps)?
        }
        Wanted::Judge => {
            let maps = files.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            kernel_path::load_judge(maps)?
        }
    })
}

/// Runs `work` in the network namespace at `path` (`/run/netns/NAME`, `/proc/PID/ns/net`), or on
/// this thread if `None`.
///
/// # Errors
///
/// Fails if the path cannot be opened, the process may not enter the namespace, or no thread can be
/// started.
pub fn within<T: Send>(path: Option<&Path>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(path) = path else { return Ok(work()) };
    // The flag avoids waiting at a FIFO in its place.
    let namespace = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    on_scratch_thread(
        move || Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?),
        work,
    )
}

/// Runs `work` in a new network namespace, which ends with the last thread and descriptor that uses
/// it.
///
/// # Errors
/// Fails if the process may not make one.
pub fn fresh<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_scratch_thread(
        // SAFETY: descriptors stay shared; only the network namespace of the scratch thread
        // changes.
        || Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?),
        work,
    )
}

fn on_scratch_thread<T: Send>(
    enter: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let scratch =
            thread::Builder::new().spawn_scoped(scope, move || enter().map(|()| work()))?;
        scratch.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_an_error_and_work_does_not_run() {
        let result = within(Some(Path::new("/run/netns/there is no such")), || panic!("ran"));
        assert_eq!(result.err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_fifo_in_a_namespace_s_place_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert!(within(Some(&path), || panic!("ran")).is_err());
    }

    #[test]
    fn without_a_path_work_runs_here() {
        let here = std::thread::current().id();
        assert_eq!(within(None, || std::thread::current().id()).unwrap(), here);
    }
}
