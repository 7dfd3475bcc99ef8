//! Where a successor asks for what this process has: a socket beside the API's, for processes of the same user alone.

use super::manifest::VERSION;
use super::message;
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

/// How long a successor may take to say what it is: it says so at once.
const PATIENCE: Duration = Duration::from_millis(100);

/// The socket; its file goes when this does.
pub(crate) struct Listener {
    path: PathBuf,
    /// Of packets, not of a stream: the runtime accepts and no more.
    socket: UnixListener,
}

/// Beside the API's socket.
pub(super) fn path(api: &Path) -> PathBuf {
    let mut path = api.as_os_str().to_owned();
    path.push(".handover");
    path.into()
}

/// What a successor says first.
pub(super) fn greeting() -> String {
    format!("millrace hand-over {VERSION}")
}

impl Listener {
    /// Listens beside the API's socket, which this process has: what else is there is left over from a crash.
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

    /// The next successor that may have everything.
    pub(crate) async fn next(&self) -> OwnedFd {
        loop {
            let accepted = self.socket.accept().await;
            let Ok(connection) = accepted.and_then(|(connection, _)| blocking(connection)) else {
                // For want of descriptors, say: the next try is not at once.
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            match admit(&connection) {
                Ok(()) => return connection,
                Err(reason) => {
                    tracing::warn!("a hand-over was refused: {reason}");
                    // It may have gone.
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

/// Whether it is one of this user that speaks the same version; else why not.
fn admit(connection: &OwnedFd) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let (peer, own) = (socket_peercred(connection), rustix::process::geteuid());
    let peer = peer.map_err(|error| error.to_string())?;
    if peer.uid != own {
        let (peer, own) = (peer.uid.as_raw(), own.as_raw());
        return Err(format!("it runs as user {peer}, this daemon as user {own}"));
    }
    set_socket_timeout(connection, Timeout::Recv, Some(PATIENCE))
        .map_err(|error| error.to_string())?;
    let (said, _) = message::receive(connection).map_err(failed)?.ok_or("it said nothing")?;
    if said != greeting() {
        return Err(format!("it says `{said}`, this daemon speaks `{}`", greeting()));
    }
    Ok(())
}
