//! Chooses the directory in which the state is stored.

use crate::api_socket::default_path;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the named directory. Without a name that is the user's own for the daemon at the default
/// socket, and one beside the socket for any other daemon, so that two daemons never share state by
/// default.
pub(crate) fn directory(named: Option<PathBuf>, socket: &Path) -> PathBuf {
    let usual = || (socket == default_path()).then(users_own).flatten();
    named.or_else(usual).unwrap_or_else(|| {
        let mut beside = OsString::from(socket);
        beside.push(".state");
        beside.into()
    })
}

/// Returns `/var/lib/millrace` for root, `$XDG_STATE_HOME/millrace` for others.
fn users_own() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/millrace".into());
    }
    xdg_state()
}

/// Returns the program's directory in that of the user's state, by XDG's rules.
pub fn xdg_state() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("millrace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_at_another_socket_has_a_directory_of_its_own() {
        let socket = Path::new("/tmp/a/api.sock");
        assert_eq!(directory(None, socket), Path::new("/tmp/a/api.sock.state"));
        assert_eq!(directory(Some("/srv/state".into()), socket), Path::new("/srv/state"));
        if rustix::process::geteuid().is_root() {
            assert_eq!(directory(None, &default_path()), Path::new("/var/lib/millrace"));
        }
    }
}
