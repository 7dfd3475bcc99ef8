//! The socket a session lives at: made, owned and permitted as configured, and removed again.

use crate::options::Access;
use crate::{Options, SessionError};
use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A socket file of ours; it goes when this does.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Arc<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file we made.
    made: Option<(u64, u64)>,
}

impl Listener {
    /// Listens. A socket file that is stale is replaced.
    pub(crate) fn bind(options: &Options) -> Result<Listener, SessionError> {
        let path = options.socket.clone();
        remove_stale(&path, options.access)?;
        let socket = Arc::new(UnixListener::bind(&path).map_err(failed("listen at", &path))?);
        let made = identity(&path);
        let listener = Listener { socket, path, made };
        permit(&listener.path, options.access)?;
        let doing = "set up";
        listener.socket.set_nonblocking(true).map_err(failed(doing, &listener.path))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have put another socket there since.
        if self.made.is_some() && identity(&self.path) == self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Connects without waiting: with a full backlog a listener that accepts no connection would block for ever.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SessionError {
    let path = path.to_owned();
    move |source| SessionError::Io { doing, path, source }
}

/// Removes a stale socket file: connections are refused (no other error proves that no process listens), and it belongs to
/// this process's user or to the configured owner.
fn remove_stale(path: &Path, access: Access) -> Result<(), SessionError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let path_of = || path.to_owned();
    if !found.file_type().is_socket() {
        return Err(SessionError::NotASocket { path: path_of() });
    }
    let not_ours = |why| Err(SessionError::NotOurs { path: path_of(), why });
    match connect(path).map_err(|error| Errno::from_io_error(&error)) {
        Ok(_) | Err(Some(Errno::AGAIN)) => return Err(SessionError::InUse { path: path_of() }),
        Err(Some(Errno::CONNREFUSED)) => {}
        Err(Some(Errno::NOENT)) => return Ok(()),
        Err(error) => {
            let error = error.map_or_else(|| "no reason".to_owned(), |error| error.to_string());
            return not_ours(format!("connecting to it fails with {error}"));
        }
    }
    let owner = found.uid();
    if owner != geteuid().as_raw() && access.owner != Some(owner) {
        return not_ours(format!("it belongs to user {owner}"));
    }
    fs::remove_file(path).map_err(failed("remove the stale socket", path))
}

fn permit(path: &Path, access: Access) -> Result<(), SessionError> {
    if let Some(mode) = access.mode {
        chmod(path, Mode::from_raw_mode(mode))
            .map_err(|error| failed("set the permissions of", path)(error.into()))?;
    }
    if access.owner.is_some() || access.group.is_some() {
        let (owner, group) = (access.owner.map(Uid::from_raw), access.group.map(Gid::from_raw));
        chown(path, owner, group)
            .map_err(|error| failed("change the owner of", path)(error.into()))?;
    }
    Ok(())
}
