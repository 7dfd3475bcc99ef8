//! The manifest: a list, as JSON in a memfd, that describes each kept descriptor. Systemd and a
//! successor share that memory, so it is pushed once and rewritten with each change. A process that
//! dies while writing leaves a text that the next one refuses. The next one also refuses another
//! version. Then all devices are opened anew.

use config::{self, Device, MacAddress, PortConfig};
use problem::Problem;
use rustix::fs::{MemfdFlags, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Version of the schema below. It changes whenever another Millrace would misinterpret a
/// descriptor.
pub const VERSION: u64 = 4;
/// Longest text that is read, in bytes.
const LONGEST: usize = 4 << 20;

/// The part of a port's configuration on which its descriptors depend. They are used only for a
/// port with an equal part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A TAP device, with a descriptor per queue.
    Tap {
        /// Its name.
        device: String,
        /// Its network namespace.
        netns: Option<PathBuf>,
        /// Queue pairs.
        queues: u16,
        /// Whether the kernel receives frames by NAPI.
        napi: bool,
    },
    /// An interface, or the host's end of a veth pair, with one AF_PACKET queue: the socket of its ring, and the ring's position with
    /// size and number of its slots.
    Packet {
        /// Its name; of a pair that of the container's end.
        interface: String,
        /// Its network namespace.
        netns: Option<PathBuf>,
        /// Whether it takes frames for all stations.
        promiscuous: bool,
        /// The keys that say which VLANs its frames belong to, as written: frames in the ring came
        /// while these held.
        vlans: BTreeMap<String, Value>,
    },
    /// A guest's port, with its socket's descriptor if it listens.
    VhostUser {
        /// All keys with which it was opened, as written.
        keys: BTreeMap<String, Value>,
        /// Device and inode of the socket's file if it listens, because another file may be at the
        /// path by now.
        file: Option<(u64, u64)>,
    },
}

impl What {
    /// Returns that part of a port with so many queues; `None` if ports of its kind are always opened
    /// anew.
    pub(crate) fn of(port: &PortConfig, queues: u16) -> Option<What> {
        match port.device() {
            Device::Tap(device) => Some(What::Tap {
                device: device.to_string(),
                netns: port.netns_path(),
                queues,
                napi: port.napi.unwrap_or(false),
            }),
            // With several queues, steering tables would have to be handed over too, and their
            // flows fenced between the processes.
            // The kernel tells of which device a ring is.
            Device::Packet(interface) | Device::Veth(interface) => {
                (queues == 1).then(|| What::Packet {
                    interface: interface.to_string(),
                    netns: port.netns_path(),
                    promiscuous: port.promiscuous.unwrap_or(true),
                    vlans: keys(port, |key| VLANS.contains(&key)),
                })
            }
            Device::VhostUser(socket) => {
                let listens = port.vhost_client != Some(true);
                let found = std::fs::symlink_metadata(socket.as_path()).ok().filter(|_| listens);
                let file = found.map(|found| (found.dev(), found.ino()));
                Some(What::VhostUser { keys: keys(port, |key| port.reopens(key)), file })
            }
            Device::None | Device::Team(_) | Device::Xdp(_) => None,
        }
    }

    /// Returns how many descriptors there are.
    pub(crate) fn files(&self) -> u16 {
        match self {
            What::Tap { queues, .. } => *queues,
            What::Packet { .. } => 2,
            What::VhostUser { file, .. } => file.is_some().into(),
        }
    }
}

/// Keys that say which VLANs a port's frames belong to.
const VLANS: [&str; 3] = ["vlan", "trunk", "native"];

/// Returns the wanted ones of the keys with which a port is configured.
fn keys(port: &PortConfig, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Value> {
    let written = serde_json::to_value(port).unwrap_or_default();
    let all = written.as_object().into_iter().flatten();
    let wanted = all.filter(|(key, _)| is_wanted(key));
    wanted.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The list: each port by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// What each port's descriptors are.
    pub ports: BTreeMap<String, What>,
    /// The address that a port must keep although its configuration has none. Without it a port
    /// starts with any address.
    #[serde(default)]
    pub addresses: BTreeMap<String, MacAddress>,
}

impl List {
    /// Removes a port from the list.
    pub(super) fn remove(&mut self, port: &str) {
        self.ports.remove(port);
        self.addresses.remove(port);
    }
}

#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    #[serde(flatten)]
    list: &'a List,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// The memfd that holds the list.
pub(super) struct Manifest(OwnedFd);

impl Manifest {
    /// Returns the manifest of an earlier process.
    pub(super) fn of(file: OwnedFd) -> Manifest {
        Manifest(file)
    }

    /// Creates an empty manifest.
    ///
    /// # Errors
    /// No memfd can be created.
    pub(super) fn new() -> io::Result<Manifest> {
        Ok(Manifest(memfd_create("millrace-handover", MemfdFlags::CLOEXEC)?))
    }

    /// Writes the list of kept descriptors, replacing the old one.
    ///
    /// # Errors
    /// The memfd cannot be written.
    pub(super) fn write(&self, list: &List) -> io::Result<()> {
        let text = serde_json::to_vec(&Written { version: VERSION, list })?;
        // At any moment the file holds the old list, the new list, or no valid JSON.
        ftruncate(&self.0, 0)?;
        let mut written = 0;
        while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
            written += pwrite(&self.0, rest, written as u64)?;
        }
        Ok(())
    }

    /// Reads the list.
    ///
    /// # Errors
    /// The file is not a memfd, cannot be read, or does not hold a list of this version.
    pub(super) fn read(&self) -> Result<List, Problem> {
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new("the list of kept descriptors cannot be read").seen(error)
        };
        // Only a memfd is read: a file on FUSE, for example, could block the read for as long as
        // its owner likes.
        if fcntl_get_seals(&self.0).is_err() {
            return Err(failed(&"not a memory file"));
        }
        let mut bytes = vec![0; LONGEST + 1];
        let mut len = 0;
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match pread(&self.0, rest, len as u64).map_err(|error| failed(&error))? {
                0 => break,
                count => len += count,
            }
        }
        parse(bytes.get(..len).filter(|text| text.len() <= LONGEST).unwrap_or_default())
    }
}

impl AsFd for Manifest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parses a list from arbitrary bytes.
///
/// # Errors
/// The bytes are not a list, or it has another version.
pub fn parse(text: &[u8]) -> Result<List, Problem> {
    let Version { version } = config::from_json(text)?;
    if version != VERSION {
        return Err(Problem::new("another version of Millrace kept the descriptors")
            .seen(format!("version {version} of the list"))
            .wanted(VERSION)
            .remedy("none needed: all devices are opened anew"));
    }
    config::from_json(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tap(queues: u16) -> List {
        let what = What::Tap { device: "tap0".into(), netns: None, queues, napi: false };
        let address = MacAddress(wire::Mac([2, 0, 0, 0, 0, 1]));
        List {
            ports: [("a".to_owned(), what)].into(),
            addresses: [("a".to_owned(), address)].into(),
        }
    }

    #[test]
    fn a_list_without_addresses_is_read() {
        let list = parse(br#"{"version":4,"ports":{}}"#).unwrap();
        assert_eq!(list, List::default());
    }

    #[test]
    fn a_shorter_list_takes_the_place_of_a_longer_one() {
        let manifest = Manifest::new().unwrap();
        for list in [tap(10_000), tap(1), List::default()] {
            manifest.write(&list).unwrap();
            assert_eq!(manifest.read(), Ok(list));
        }
    }

    /// A file of FUSE held up the start of the next daemon.
    #[test]
    fn a_list_is_read_from_memory_only() {
        let regular = std::fs::File::open("/proc/self/status").unwrap();
        let (pipe, _) = std::io::pipe().unwrap();
        for other in [OwnedFd::from(regular), pipe.into()] {
            let problem = Manifest::of(other).read().unwrap_err().to_string();
            assert!(problem.contains("not a memory file"), "{problem}");
        }
    }

    #[test]
    fn an_older_and_a_newer_version_are_refused_whatever_else_they_say() {
        for version in [0, 1, 2, 3, VERSION + 1, u64::MAX] {
            let text = format!(r#"{{"version":{version},"sessions":[1]}}"#);
            let problem = parse(text.as_bytes()).unwrap_err();
            assert!(problem.error.contains("another version"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn what_is_cut_off_is_refused(queues in any::<u16>(), part in 0.0..1.0f64) {
            let list = tap(queues);
            let text = serde_json::to_vec(&Written { version: VERSION, list: &list }).unwrap();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let len = (text.len() as f64 * part) as usize;
            prop_assert!(parse(&text[..len]).is_err());
            prop_assert_eq!(parse(&text), Ok(list));
        }
    }
}
