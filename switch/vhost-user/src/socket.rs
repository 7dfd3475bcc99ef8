//! The socket at which a session listens: made with the configured mode and owner, and removed at
//! the end.

use crate::options::Access;
use crate::{Options, SessionError};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, open};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A listening socket and its file, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Arc<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file we made.
    made: Option<(u64, u64)>,
    /// Whether an earlier process made the socket.
    pub(crate) is_adopted: bool,
}

impl Listener {
    /// Listens at the configured path, and replaces a stale socket file. Fails if the path is in
    /// use or the socket cannot be made.
    pub(crate) fn bind(options: &Options) -> Result<Listener, SessionError> {
        let path = options.socket.clone();
        remove_stale(&path, options.access)?;
        let socket = Arc::new(UnixListener::bind(&path).map_err(failed("listen at", &path))?);
        let made = identity(&path);
        let listener = Listener { socket, path, made, is_adopted: false };
        permit(&listener.path, options.access)?;
        let doing = "set up";
        listener.socket.set_nonblocking(true).map_err(failed(doing, &listener.path))?;
        Ok(listener)
    }

    /// Continues with the socket of an earlier process. Fails if it does not listen at the
    /// configured path, or its owner is not the configured one.
    pub(crate) fn adopt(options: &Options, socket: OwnedFd) -> io::Result<Listener> {
        let is_ours = is_unix_stream(&socket)? && socket_acceptconn(&socket)?;
        let socket = Arc::new(UnixListener::from(socket));
        let path = options.socket.clone();
        if !is_ours || socket.local_addr()?.as_pathname() != Some(&path) {
            return Err(io::Error::other("it does not listen on that path"));
        }
        if !belongs_to(&path, options.access)? {
            return Err(io::Error::other("its user or group differs from the configured one"));
        }
        let made = identity(&path);
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, path, made, is_adopted: true })
    }

    /// Whether the file that we made is no longer at the path, so that no front end finds us.
    pub(crate) fn is_lost(&self) -> bool {
        self.made.is_some() && identity(&self.path) != self.made
    }

    /// Leaves the file to the next process: dropping this does not remove it.
    pub(crate) fn leave(&mut self) {
        self.made = None;
    }
}

/// Whether a socket file has the configured owner and group. The numbers behind their names may
/// have changed.
fn belongs_to(path: &Path, access: Access) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let is = |wanted: Option<u32>, seen| wanted.is_none_or(|wanted| wanted == seen);
    Ok(is(access.owner, found.uid()) && is(access.group, found.gid()))
}

/// Whether a descriptor of any kind is a Unix stream socket.
pub(crate) fn is_unix_stream(file: impl AsFd) -> io::Result<bool> {
    let (domain, kind) = (socket_domain(&file)?, socket_type(&file)?);
    Ok(domain == AddressFamily::UNIX && kind == SocketType::STREAM)
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

/// Connects without waiting: with a full backlog a listener that accepts no connection would block
/// for ever.
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

/// Removes a socket file if it is stale. It is stale if connections are refused, as no other error
/// proves that no process listens, and if it belongs to this process's user or the configured
/// owner. Fails if a file at the path is not stale.
fn remove_stale(path: &Path, access: Access) -> Result<(), SessionError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let path_of = || path.to_owned();
    if !found.file_type().is_socket() {
        return Err(SessionError::NotASocket { path: path_of() });
    }
    let not_ours = |why| Err(SessionError::NotOurs { path: path_of(), why });
    let answer = match (connect(path), access.owner) {
        (Err(error), Some(owner)) if error.kind() == io::ErrorKind::PermissionDenied => {
            connect_as_owner(path, owner)
        }
        (answer, _) => answer,
    };
    match answer.map_err(|error| Errno::from_io_error(&error)) {
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

/// Connects to a socket file that belongs to the configured owner, to which this process may lack
/// access if it is not root. So it becomes the file's owner for the attempt, and gives the file
/// back if a process listens.
fn connect_as_owner(path: &Path, owner: u32) -> io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let facts = fstat(&file)?;
    let is_socket = FileType::from_raw_mode(facts.st_mode) == FileType::Socket;
    if !is_socket || facts.st_uid != owner || facts.st_nlink != 1 {
        return Err(Errno::ACCESS.into());
    }
    let give = |user| chownat(&file, "", Some(user), None, AtFlags::EMPTY_PATH);
    give(geteuid())?;
    let answer = connect(path);
    if !answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        give(Uid::from_raw(owner))?;
    }
    answer
}

/// Sets mode and owner of a socket file that this process has just made. Both are set on the file
/// that was found to be a socket of ours and not by its path: a user that may write to the
/// directory could put a link to any file there meanwhile.
///
/// # Errors
/// Fails if the file is not a socket of this process's user, or its mode or owner cannot be set.
pub fn permit(path: &Path, access: Access) -> Result<(), SessionError> {
    if access == Access::default() {
        return Ok(());
    }
    let refused = |doing| {
        let failed = failed(doing, path);
        move |error: Errno| failed(error.into())
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(refused("find"))?;
    let facts = fstat(&file).map_err(refused("look at"))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket {
        return Err(SessionError::NotASocket { path: path.to_owned() });
    }
    if facts.st_uid != geteuid().as_raw() || facts.st_nlink != 1 {
        let why = format!("user {} created it meanwhile", facts.st_uid);
        return Err(SessionError::NotOurs { path: path.to_owned(), why });
    }
    if let Some(mode) = access.mode {
        // The link leads to the open file itself. The socket's own fchmod before bind would be cut
        // by the umask.
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(link, Mode::from_raw_mode(mode)).map_err(refused("set the permissions of"))?;
    }
    if access.owner.is_some() || access.group.is_some() {
        let (owner, group) = (access.owner.map(Uid::from_raw), access.group.map(Gid::from_raw));
        chownat(&file, "", owner, group, AtFlags::EMPTY_PATH)
            .map_err(refused("change the owner of"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// The owner of the directory put a link there between bind and chmod, and so became the owner
    /// of any file.
    #[test]
    fn what_a_link_leads_to_keeps_its_mode_and_owner() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("precious"), "").unwrap();
        let _socket = UnixListener::bind(path("other")).unwrap();
        let access = Access { mode: Some(0o666), owner: Some(geteuid().as_raw()), group: None };
        for name in ["precious", "other"] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
            let link = path(&format!("to-{name}"));
            symlink(path(name), &link).unwrap();
            let refused = permit(&link, access).unwrap_err();
            assert!(matches!(refused, SessionError::NotASocket { .. }), "{refused}");
            assert_eq!(fs::metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(permit(&path("precious"), access).is_err());
        permit(&path("other"), access).unwrap();
        assert_eq!(fs::metadata(path("other")).unwrap().permissions().mode() & 0o777, 0o666);
        fs::hard_link(path("other"), path("linked")).unwrap();
        assert!(permit(&path("linked"), access).is_err());
    }
}
