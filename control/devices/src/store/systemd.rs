// UNSAFETY: descriptors that systemd passes at the start are known by their numbers alone.
//! systemd's descriptor store (`FileDescriptorStoreMax=` in the unit): it passes pushed descriptors
//! to the service's next process, also after a crash, and closes them when the service is stopped
//! and not restarted.
#![allow(unsafe_code)]

use super::message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Timeout of a message to systemd.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager's socket.
pub(super) struct Systemd {
    address: OsString,
}

impl Systemd {
    /// Returns the service manager's socket; `None` if systemd did not start this process, or not
    /// as a service that notifies.
    pub(super) fn from_environment() -> Option<Systemd> {
        std::env::var_os("NOTIFY_SOCKET").map(|address| Systemd { address })
    }

    /// Pushes a descriptor.
    pub(super) fn push(&self, name: &str, file: BorrowedFd<'_>) {
        // systemd must not drop a descriptor that has hung up: a session waits in a socket without
        // a peer.
        let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n");
        if let Err(error) = self.tell(&text, Some(file)) {
            tracing::warn!(target: "control::handover::systemd", "systemd does not keep the descriptor {name}: {error}");
        }
    }

    /// Has systemd close the descriptors with these names. When this returns, they are closed and
    /// their devices are free.
    pub(super) fn remove(&self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let remove = |name| self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None);
        if let Err(error) = names.iter().try_for_each(remove).and_then(|()| self.wait()) {
            tracing::warn!(target: "control::handover::systemd", "systemd did not close kept descriptors: {error}");
        }
    }

    /// Waits until systemd has all pushed descriptors.
    pub(super) fn settle(&self) {
        if let Err(error) = self.wait() {
            tracing::warn!(target: "control::handover::systemd", "systemd may not have kept all descriptors: {error}");
        }
    }

    /// Waits until systemd has processed all messages: it then closes the pipe sent with this one.
    fn wait(&self) -> io::Result<()> {
        let (ours, its) = pipe_with(PipeFlags::CLOEXEC)?;
        self.tell("BARRIER=1\n", Some(its.as_fd()))?;
        drop(its);
        let timeout = Timespec::try_from(NOTIFY_TIMEOUT).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&ours, PollFlags::empty())];
        match poll(&mut polled, Some(&timeout))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn tell(&self, text: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let address = match self.address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&self.address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        set_socket_timeout(&socket, Timeout::Send, Some(NOTIFY_TIMEOUT))?;
        message::send(&socket, text, file)
    }
}

/// Returns the descriptors that systemd passes, with their names. Call it once, before anything
/// else is opened.
pub(super) fn given() -> Vec<(String, OwnedFd)> {
    match sd_notify::listen_fds_with_names() {
        // SAFETY: these numbers were passed for this process to own, and this is the only place
        // that takes them.
        Ok(given) => given.map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) })).collect(),
        Err(error) => {
            tracing::warn!(target: "control::handover::systemd", "the descriptors that systemd passes cannot be taken: {error}");
            Vec::new()
        }
    }
}
