//! The socket at which a successor asks for this process's descriptors. It lies beside the API's
//! socket and serves only processes of the same user.

use devices::store::{VERSION, message};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Longest time to wait for a successor's greeting, which it sends at once.
const GREETING_TIMEOUT: Duration = Duration::from_millis(100);

/// The socket; its file is removed on drop.
pub(crate) struct Listener {
    path: PathBuf,
    /// A SEQPACKET socket, although the type is one for streams: the runtime only accepts.
    socket: UnixListener,
}

/// Returns the path, beside the API's socket.
pub(super) fn path(api: &Path) -> PathBuf {
    let mut path = api.as_os_str().to_owned();
    path.push(".handover");
    path.into()
}

/// Returns a successor's first message.
pub(super) fn greeting() -> String {
    format!("millrace hand-over {VERSION}")
}

impl Listener {
    /// Listens beside the API's socket, which this process holds. A file at that path is left over
    /// from a crash and is replaced.
    ///
    /// # Errors
    /// The old file cannot be removed, or the socket cannot be bound.
    pub(crate) fn bind(api: &Path) -> io::Result<Listener> {
        let path = path(api);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The file is made with the socket's own mode.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        listen(&socket, 1)?;
        Ok(Listener { path, socket: UnixListener::from_std(socket.into())? })
    }

    /// Waits for the next admitted successor and returns its connection.
    pub(crate) async fn next(&self) -> OwnedFd {
        loop {
            let accepted = self.socket.accept().await;
            let Ok(connection) = accepted.and_then(|(connection, _)| blocking(connection)) else {
                // For example for lack of descriptors: pause before the next attempt.
                tokio::time::sleep(GREETING_TIMEOUT).await;
                continue;
            };
            match admit(&connection) {
                Ok(()) => return connection,
                Err(reason) => {
                    tracing::warn!(target: "control::handover::listener", "a hand-over was refused: {reason}");
                    // The successor may be gone.
                    let _ = message::send(&connection, &format!("refused: {reason}"), None);
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may already be gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn blocking(connection: UnixStream) -> io::Result<OwnedFd> {
    let connection = connection.into_std()?;
    connection.set_nonblocking(false)?;
    Ok(connection.into())
}

/// Admits a process of the same user and version. The error is the reason for refusal.
fn admit(connection: &OwnedFd) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let (peer, own) = (socket_peercred(connection), rustix::process::geteuid());
    let peer = peer.map_err(|error| error.to_string())?;
    if peer.uid != own {
        let (peer, own) = (peer.uid.as_raw(), own.as_raw());
        return Err(format!("it runs as user {peer}, this daemon as user {own}"));
    }
    set_socket_timeout(connection, Timeout::Recv, Some(GREETING_TIMEOUT))
        .map_err(|error| error.to_string())?;
    let (said, _) = message::receive(connection).map_err(failed)?.ok_or("it sent no greeting")?;
    if said != greeting() {
        return Err(format!("it sent `{said}`, this daemon expects `{}`", greeting()));
    }
    Ok(())
}
