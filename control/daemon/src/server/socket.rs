//! The API's Unix socket: one daemon per path, permissions from the configuration, removed at the
//! end.
//!
//! The directory is opened once. Permissions are set on the open file that was found to be our
//! socket, and the file is removed only while it is still that one, so a directory that others can
//! write to cannot redirect us to another file.

use crate::state::Identity;
use config::SwitchConfig;
use devices::accounts;
use problem::Problem;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fchmod, fstat, open, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Most connections waiting to be accepted.
const BACKLOG: i32 = 4096;

/// A bound socket; its file is removed on drop.
pub(super) struct Socket {
    /// Where it is.
    path: PathBuf,
    /// Where clients look for it.
    meant: PathBuf,
    folder: OwnedFd,
    file: Identity,
    listener: UnixListener,
}

impl Socket {
    /// Binds the path. A socket without a listener is left over from a crash and replaced.
    pub(super) fn bind(path: &Path, config: &SwitchConfig) -> Result<Socket, Problem> {
        Socket::bind_as(path, path, config)
    }

    /// Binds another name in the path's directory, for a path at which a daemon still listens.
    pub(super) fn bind_beside(path: &Path, config: &SwitchConfig) -> Result<Socket, Problem> {
        let mut name = path.as_os_str().to_owned();
        name.push(".next");
        Socket::bind_as(path, Path::new(&name), config)
    }

    fn bind_as(meant: &Path, path: &Path, config: &SwitchConfig) -> Result<Socket, Problem> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(parent).map_err(|error| trouble(path, &error))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(parent, flags, Mode::empty()).map_err(|error| trouble(path, &error))?;
        remove_stale(path, &folder)?;
        let bound = bind_in(path, &folder, config);
        let (listener, file) = bound.map_err(|error| trouble(path, &error))??;
        Ok(Socket { path: path.to_owned(), meant: meant.to_owned(), folder, file, listener })
    }

    /// Gives a socket that was bound beside its path the name that it was meant to have.
    pub(super) fn put_in_place(self) -> Result<Socket, Problem> {
        remove_stale(&self.meant, &self.folder)?;
        renameat(&self.folder, name(&self.path), &self.folder, name(&self.meant))
            .map_err(|error| trouble(&self.meant, &error))?;
        let mut socket = self;
        socket.path = socket.meant.clone();
        Ok(socket)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the listener for the runtime.
    pub(super) fn listener(&self) -> Result<tokio::net::UnixListener, Problem> {
        let listener = self.listener.try_clone().and_then(tokio::net::UnixListener::from_std);
        listener.map_err(|error| trouble(&self.path, &error))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let found = statat(&self.folder, name(&self.path), AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| Identity::from(&found) == self.file) {
            // The file may already be gone; other errors have no remedy here.
            let _ = unlinkat(&self.folder, name(&self.path), AtFlags::empty());
        }
    }
}

type Bound = (UnixListener, Identity);

/// The file is created without any permission, so no client can connect until owner, group and mode
/// are set.
fn bind_in(
    path: &Path,
    folder: &OwnedFd,
    config: &SwitchConfig,
) -> Result<Result<Bound, Problem>, Errno> {
    let socket = new_socket()?;
    fchmod(&socket, Mode::empty())?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name(path), flags, Mode::empty())?;
    let facts = fstat(&file)?;
    let ours = facts.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket || !ours || facts.st_nlink != 1 {
        return Ok(Err(trouble(path, &format!("user {} put another file there", facts.st_uid))));
    }
    let (mode, group) = match access(config) {
        Ok(access) => access,
        Err(problem) => {
            unlinkat(folder, name(path), AtFlags::empty())?;
            return Ok(Err(problem));
        }
    };
    if let Some(group) = group {
        chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    // The link leads to the open file itself.
    chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))?;
    listen(&socket, BACKLOG)?;
    Ok(Ok((UnixListener::from(socket), Identity::from(&facts))))
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Returns the socket's mode and group. If two groups may connect, the mode admits everyone, and
/// [`Access`](crate::peer::Access) decides.
fn access(config: &SwitchConfig) -> Result<(u32, Option<u32>), Problem> {
    let number = |account: &Option<config::Account>| {
        account.as_ref().map(|name| accounts::group(name.as_str())).transpose()
    };
    let (mode, read, admin) =
        (config.socket_mode.0, number(&config.socket_group)?, number(&config.admin_group)?);
    Ok(match (read, admin) {
        (Some(read), Some(admin)) if read != admin => (mode | 0o066, Some(read)),
        (read, admin) => (mode, read.or(admin)),
    })
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

fn remove_stale(path: &Path, folder: &OwnedFd) -> Result<(), Problem> {
    let Ok(facts) = statat(folder, name(path), AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket {
        return Err(Problem::new(format!("{} exists and is not a socket", path.display()))
            .seen("a file of another kind")
            .wanted("a free path for the API's socket")
            .remedy("remove the file, or name another path with --socket"));
    }
    match try_to_connect(path) {
        Ok(()) | Err(Errno::AGAIN) => Err(taken(path)),
        Err(error) if error == Errno::CONNREFUSED || was_left_closed(&facts, error) => {
            unlinkat(folder, name(path), AtFlags::empty()).map_err(|error| trouble(path, &error))
        }
        Err(error) => Err(trouble(path, &error)),
    }
}

/// Refuses if a daemon listens there.
pub(super) fn refuse_taken(path: &Path) -> Result<(), Problem> {
    match try_to_connect(path) {
        Ok(()) | Err(Errno::AGAIN) => Err(taken(path)),
        Err(_) => Ok(()),
    }
}

/// Does not wait: a full backlog also means that a daemon listens.
fn try_to_connect(path: &Path) -> Result<(), Errno> {
    new_socket().and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?))
}

fn taken(path: &Path) -> Problem {
    Problem::new(format!("a daemon already listens on {}", path.display()))
        .seen("an answer on the socket")
        .wanted("one daemon per socket")
        .remedy("stop the other daemon, or name another path with --socket")
}

/// Whether a daemon of this user was killed between bind and listen: only root may connect to a
/// socket without permissions.
fn was_left_closed(facts: &Stat, error: Errno) -> bool {
    let is_ours = facts.st_uid == rustix::process::geteuid().as_raw();
    error == Errno::ACCESS && is_ours && facts.st_mode & 0o777 == 0
}

fn trouble(path: &Path, error: &dyn Display) -> Problem {
    Problem::new(format!("the API's socket {} cannot be created", path.display()))
        .seen(error)
        .wanted("a directory that this process can write to")
        .remedy("run as root, or name another path with --socket or MILLRACE_SOCKET")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/api.sock");
        let config = SwitchConfig::default();
        let first = Socket::bind(&path, &config).unwrap();
        assert_eq!(mode(&path), 0o660);
        let problem = Socket::bind(&path, &config).err().unwrap();
        assert!(problem.error.contains("already listens"), "{problem}");
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Socket::bind(&path, &config).unwrap();
    }

    /// A daemon that took over bound its socket after the other had ended.
    #[test]
    fn a_socket_is_bound_while_another_has_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let config = SwitchConfig::default();
        let first = Socket::bind(&path, &config).unwrap();
        let next = Socket::bind_beside(&path, &config).unwrap();
        let file = next.file;
        assert!(Socket::bind_beside(&path, &config).is_err(), "one at a time");
        drop(first);
        let next = next.put_in_place().unwrap();
        assert_eq!((next.path(), Identity::of(&path)), (path.as_path(), Some(file)));
        assert_eq!(try_to_connect(&path), Ok(()));
        let third = Socket::bind_beside(&path, &config).unwrap();
        assert!(third.put_in_place().err().unwrap().error.contains("already listens"));
        drop(next);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn another_kind_of_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        fs::write(&path, "precious").unwrap();
        let problem = Socket::bind(&path, &SwitchConfig::default()).err().unwrap();
        assert!(problem.error.contains("not a socket"), "{problem}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    /// The daemon that ended removed the socket of the next one.
    #[test]
    fn the_socket_of_another_daemon_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let first = Socket::bind(&path, &SwitchConfig::default()).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[test]
    fn a_group_that_may_change_gets_the_socket_or_everybody_may_connect() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let own = rustix::process::getegid().as_raw();
        let account = |number: u32| number.to_string().parse().ok();
        let config = |read, admin| SwitchConfig {
            socket_group: read,
            admin_group: admin,
            ..SwitchConfig::default()
        };
        for (config, wanted) in [
            (config(None, account(own)), 0o660),
            (config(account(own), account(own)), 0o660),
            (config(account(own), account(own + 1)), 0o666),
        ] {
            let socket = Socket::bind(&path, &config).unwrap();
            assert_eq!((mode(&path), fs::metadata(&path).unwrap().gid()), (wanted, own));
            drop(socket);
        }
    }
}
