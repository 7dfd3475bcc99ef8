//! The MAC address of a TAP device or veth that the switch makes: the same each time, so that neighbours
//! that remember it reach the device after a restart.
//!
//! It follows from the host's machine-id, the daemon's state directory and the port, so two ports of
//! one host differ, and two daemons do. The machine-id must not be shown (machine-id(5)): what is
//! kept is a hash of it that only Millrace uses, and an address shows 46 bits of another hash.

use config::PortConfig;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::Mac;

/// The files of systemd and of D-Bus.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// A hash that no other daemon has.
pub(crate) struct Identity([u8; 32]);

impl Identity {
    /// Returns the identity of the daemon with this state directory; `None` if the host has no
    /// machine-id.
    pub(crate) fn of_host(state: &Path) -> Option<Identity> {
        let read = |path| Identity::new(&std::fs::read_to_string(path).ok()?, state);
        MACHINE_ID.iter().find_map(read)
    }

    /// Returns the identity by the text of a machine-id; `None` if that is empty, or `uninitialized`
    /// as before the first boot.
    fn new(machine_id: &str, state: &Path) -> Option<Identity> {
        let id = machine_id.trim_end();
        let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        // The same for a directory that does not exist yet.
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        let host = hash(&[b"millrace tap address", id.as_bytes()]);
        is_id.then(|| Identity(hash(&[&host, state.as_os_str().as_bytes()])))
    }

    /// Returns the address of a port's device: locally administered, of one station.
    pub(crate) fn mac_of(&self, port: &PortConfig) -> Mac {
        let netns = port.netns_path().unwrap_or_default();
        let hash = hash(&[&self.0, port.name.as_str().as_bytes(), netns.as_os_str().as_bytes()]);
        let [a, b, c, d, e, f, ..] = hash;
        Mac::local([a, b, c, d, e, f])
    }
}

/// Returns a hash of parts that contain no zero byte; a first part of fixed length may.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.join(&0)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;

    const ID: &str = "0123456789abcdef0123456789abcdef\n";

    fn mac(id: &str, state: &str, port: &str) -> Mac {
        let config = Config::from_toml("t", &format!("[[port]]\ntap='tap0'\n{port}")).unwrap();
        Identity::new(id, Path::new(state)).unwrap().mac_of(&config.ports[0])
    }

    /// A device had another address after each restart, and its neighbours the old one.
    #[test]
    fn an_address_is_the_same_each_time_and_another_for_all_else() {
        let first = || mac(ID, "/var/lib/millrace", "name='a'");
        assert_eq!(first(), first());
        let others = [
            mac(&ID.replace('0', "1"), "/var/lib/millrace", "name='a'"),
            mac(ID, "/run/second.state", "name='a'"),
            mac(ID, "/var/lib/millrace", "name='b'"),
            mac(ID, "/var/lib/millrace", "name='a'\nnetns='a'"),
            mac(ID, "/var/lib/millrace", "name='a'\nnetns='b'"),
        ];
        let all: std::collections::HashSet<_> = others.into_iter().chain([first()]).collect();
        assert_eq!(all.len(), 6);
        for Mac([first, ..]) in all {
            assert_eq!(first & 3, 2, "locally administered, of one station");
        }
    }

    #[test]
    fn a_host_without_a_machine_id_has_no_identity() {
        for text in ["", "\n", "uninitialized\n", "0123456789abcdef\n"] {
            assert!(Identity::new(text, Path::new("/")).is_none(), "{text:?}");
        }
    }
}
