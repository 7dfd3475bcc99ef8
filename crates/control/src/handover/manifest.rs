//! What each kept descriptor is, as JSON in a memfd: systemd and a successor hold the same memory, so it is pushed once and
//! written again with each change. A process that dies while it writes leaves a text that is refused, as is one of another
//! version: then all is opened anew.

use crate::Problem;
use crate::config::{self, Namespace, PortConfig};
use rustix::fs::{FileType, MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Of the schema below. It changes whenever an older or newer Millrace would take a descriptor for something else.
pub(super) const VERSION: u64 = 2;
/// Longest text that is read, in bytes.
const LONGEST: usize = 4 << 20;

/// All of a port's configuration that its descriptors depend on. They are used for a port that has the same, and no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A TAP device, with a descriptor for each queue.
    Tap {
        /// Its name.
        device: String,
        /// Where it is.
        netns: Option<PathBuf>,
        /// Queue pairs.
        queues: u16,
        /// Whether the kernel takes frames through NAPI.
        napi: bool,
    },
    /// A guest's port, with the descriptor of its socket if it listens.
    VhostUser {
        /// All keys by which it was opened, as they are written.
        keys: BTreeMap<String, Value>,
        /// Device and inode of the socket's file, where it listens: at the path may be another one by now.
        file: Option<(u64, u64)>,
    },
}

impl What {
    /// Of a port; `None`: its kind is always opened anew.
    pub(crate) fn of(port: &PortConfig) -> Option<What> {
        if let Some(socket) = &port.vhost_user {
            let listens = port.vhost_client != Some(true);
            let found = std::fs::symlink_metadata(socket.as_path()).ok().filter(|_| listens);
            let file = found.map(|found| (found.dev(), found.ino()));
            return Some(What::VhostUser { keys: keys(port), file });
        }
        let device = port.tap.as_ref()?.as_str().to_owned();
        Some(What::Tap {
            device,
            netns: port.netns.as_ref().map(Namespace::path),
            queues: port.queues.map_or(1, |queues| queues.0),
            napi: port.napi.unwrap_or(false),
        })
    }

    /// How many descriptors there are.
    pub(crate) fn files(&self) -> u16 {
        match self {
            What::Tap { queues, .. } => *queues,
            What::VhostUser { file, .. } => file.is_some().into(),
        }
    }
}

/// What takes opening a port anew where it changes.
fn keys(port: &PortConfig) -> BTreeMap<String, Value> {
    let written = serde_json::to_value(port).unwrap_or_default();
    let all = written.as_object().into_iter().flatten();
    let reopening = all.filter(|(key, _)| port.reopens(key));
    reopening.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    ports: &'a BTreeMap<String, What>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Deserialize)]
struct Read {
    ports: BTreeMap<String, What>,
}

/// The memfd.
pub(super) struct Manifest(OwnedFd);

impl Manifest {
    /// One that an earlier process has written.
    pub(super) fn of(file: OwnedFd) -> Manifest {
        Manifest(file)
    }

    pub(super) fn new() -> io::Result<Manifest> {
        Ok(Manifest(memfd_create("millrace-handover", MemfdFlags::CLOEXEC)?))
    }

    /// Writes what is kept, in the place of what was.
    pub(super) fn write(&self, ports: &BTreeMap<String, What>) -> io::Result<()> {
        let text = serde_json::to_vec(&Written { version: VERSION, ports })?;
        // What is there at each moment is no JSON, or the old one, or the new one.
        ftruncate(&self.0, 0)?;
        let mut written = 0;
        while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
            written += pwrite(&self.0, rest, written as u64)?;
        }
        Ok(())
    }

    /// Reads what it says.
    pub(super) fn read(&self) -> Result<BTreeMap<String, What>, Problem> {
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new("the list of what was kept cannot be read").seen(error)
        };
        let kind = fstat(&self.0).map(|facts| FileType::from_raw_mode(facts.st_mode));
        if kind != Ok(FileType::RegularFile) {
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

/// Reads the text of a list, whatever it is: what each port's descriptors are.
pub fn parse(text: &[u8]) -> Result<BTreeMap<String, What>, Problem> {
    let Version { version } = config::from_json(text)?;
    if version != VERSION {
        return Err(Problem::new("it was kept by another version of Millrace")
            .seen(format!("version {version} of the list"))
            .wanted(VERSION)
            .remedy("nothing is to be done: all is opened anew"));
    }
    Ok(config::from_json::<Read>(text)?.ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tap(queues: u16) -> BTreeMap<String, What> {
        let what = What::Tap { device: "tap0".into(), netns: None, queues, napi: false };
        BTreeMap::from([("a".to_owned(), what)])
    }

    #[test]
    fn a_shorter_list_takes_the_place_of_a_longer_one() {
        let manifest = Manifest::new().unwrap();
        for ports in [tap(10_000), tap(1), BTreeMap::new()] {
            manifest.write(&ports).unwrap();
            assert_eq!(manifest.read(), Ok(ports));
        }
    }

    #[test]
    fn an_older_and_a_newer_version_are_refused_whatever_else_they_say() {
        for version in [0, 1, VERSION + 1, u64::MAX] {
            let text = format!(r#"{{"version":{version},"sessions":[1]}}"#);
            let problem = parse(text.as_bytes()).unwrap_err();
            assert!(problem.error.contains("another version"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn what_is_cut_off_is_refused(queues in any::<u16>(), part in 0.0..1.0f64) {
            let ports = tap(queues);
            let text = serde_json::to_vec(&Written { version: VERSION, ports: &ports }).unwrap();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let len = (text.len() as f64 * part) as usize;
            prop_assert!(parse(&text[..len]).is_err());
            prop_assert_eq!(parse(&text), Ok(ports));
        }
    }
}
