// UNSAFETY: `unshare` is unsafe because it can part threads from shared descriptors; here it parts the network alone.
//! Doing something in another network namespace.
//!
//! A namespace belongs to a thread, and descriptors keep the one they were opened in. So devices and sockets are opened
//! on a scratch thread that enters the namespace and ends; the caller's own thread never moves.
#![allow(unsafe_code)]

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Runs `work` in the network namespace at `path` (`/run/netns/NAME`, `/proc/PID/ns/net`), or here where there is none.
pub fn within<T: Send>(path: Option<&Path>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(path) = path else { return Ok(work()) };
    // A FIFO in its place is not waited for.
    let namespace = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    on_scratch_thread(
        move || Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?),
        work,
    )
}

/// Runs `work` in a new network namespace, which ends with the last thread and descriptor that uses it.
pub fn fresh<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_scratch_thread(
        // SAFETY: descriptors stay shared; only the network namespace of the scratch thread changes.
        || Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?),
        work,
    )
}

fn on_scratch_thread<T: Send>(
    enter: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| match scope.spawn(move || enter().map(|()| work())).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
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
