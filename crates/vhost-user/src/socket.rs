//! The socket a session lives at: made, owned and permitted as configured, and removed again.

use crate::options::Access;
use crate::{Options, SessionError};
use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket file of ours; it goes when this does.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens. A socket file that nobody listens at is a relic, and replaced.
    pub(crate) fn bind(options: &Options) -> Result<Listener, SessionError> {
        let path = options.socket.clone();
        remove_stale(&path)?;
        let socket = UnixListener::bind(&path).map_err(failed("listen at", &path))?;
        let listener = Listener { socket, path };
        permit(&listener.path, options.access)?;
        let doing = "set up";
        listener.socket.set_nonblocking(true).map_err(failed(doing, &listener.path))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SessionError {
    let path = path.to_owned();
    move |source| SessionError::Io { doing, path, source }
}

fn remove_stale(path: &Path) -> Result<(), SessionError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(SessionError::NotASocket { path: path.to_owned() });
    }
    if UnixStream::connect(path).is_ok() {
        return Err(SessionError::InUse { path: path.to_owned() });
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
