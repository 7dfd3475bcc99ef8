//! The API's Unix socket: one daemon a path, permissions that follow the configuration, and nothing left behind.

use crate::config::SwitchConfig;
use crate::{Problem, accounts};
use ports::vhost::{Access, permit};
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where the API listens by default: `/run/millrace/api.sock` for root, below `$XDG_RUNTIME_DIR` for others.
pub fn default_path() -> PathBuf {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("millrace/api.sock")
}

/// A bound socket; its file goes when this does.
pub(super) struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Binds the path. A socket without a listener is left over from a crash and replaced.
    pub(super) fn bind(path: &Path, config: &SwitchConfig) -> Result<Socket, Problem> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            fs::create_dir_all(directory).map_err(|error| trouble(path, &error))?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(|error| trouble(path, &error))?;
        let socket = Socket { path: path.to_owned(), listener };
        socket.protect(config)?;
        Ok(socket)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// For the runtime.
    pub(super) fn listener(&self) -> Result<tokio::net::UnixListener, Problem> {
        let listener = self.listener.try_clone().and_then(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        });
        listener.map_err(|error| trouble(&self.path, &error))
    }

    fn protect(&self, config: &SwitchConfig) -> Result<(), Problem> {
        let group = config.socket_group.as_ref().map(|name| accounts::group(name.as_str()));
        let access =
            Access { mode: Some(config.socket_mode.0), owner: None, group: group.transpose()? };
        permit(&self.path, access).map_err(|error| trouble(&self.path, &error))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The file may already be gone; other errors have no remedy here.
        let _ = fs::remove_file(&self.path);
    }
}

fn remove_stale(path: &Path) -> Result<(), Problem> {
    let Ok(facts) = fs::symlink_metadata(path) else { return Ok(()) };
    if !facts.file_type().is_socket() {
        return Err(Problem::new(format!("{} exists and is not a socket", path.display()))
            .seen("another kind of file")
            .wanted("a free path for the API's socket")
            .remedy("remove the file, or name another path with --socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Problem::new(format!("a daemon already listens on {}", path.display()))
            .seen("an answer on the socket")
            .wanted("one daemon a socket")
            .remedy("stop the other one, or name another path with --socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| trouble(path, &error))
        }
        Err(error) => Err(trouble(path, &error)),
    }
}

fn trouble(path: &Path, error: &dyn Display) -> Problem {
    Problem::new(format!("the API's socket {} cannot be created", path.display()))
        .seen(error)
        .wanted("a directory this process can write to")
        .remedy("run as root, or name another path with --socket or MILLRACE_SOCKET")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/api.sock");
        let config = SwitchConfig::default();
        let first = Socket::bind(&path, &config).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let problem = Socket::bind(&path, &config).err().unwrap();
        assert!(problem.error.contains("already listens"), "{problem}");
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Socket::bind(&path, &config).unwrap();
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
}
