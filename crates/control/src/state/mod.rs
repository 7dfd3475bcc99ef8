//! The state file: ports that were added through the API, so that they are there again after a restart.
//!
//! The `Keeper`'s thread writes it, whole and beside the old one, and renames it: a process that is killed, or a host that
//! loses power, leaves the old file or the new one. What cannot be read is set aside under another name, with a message, and
//! the daemon starts. Every step is taken in one open directory, which is locked, so two daemons never share it.

mod directory;
mod keeper;
mod place;

use crate::Problem;
use crate::config::{self, PortConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use directory::StateDirectory;
pub(crate) use keeper::{Keeper, Writer, open};
pub(crate) use place::directory;

/// Of the schema below. A file of another version is set aside.
const VERSION: u64 = 1;
/// Longest file that is read, in bytes.
const LONGEST: u64 = 64 << 20;

#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    ports: &'a [PortConfig],
}

/// Ports are read one by one, so that one that cannot be read costs no other.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
    ports: Vec<Value>,
}

/// What a state file said.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// The ports that could be read.
    pub ports: Vec<PortConfig>,
    /// What could not be read, and why.
    pub refused: Vec<Problem>,
}

/// The file's text for these ports.
pub fn to_text(ports: &[PortConfig]) -> Result<String, Problem> {
    serde_json::to_string_pretty(&Written { version: VERSION, ports })
        .map(|text| text + "\n")
        .map_err(|error| Problem::new("writing the state").seen(error))
}

/// Reads a file's bytes, whatever they are.
pub fn from_bytes(bytes: &[u8]) -> Kept {
    let read: Versioned = match config::from_json(bytes) {
        Ok(read) => read,
        Err(problem) => return Kept { ports: Vec::new(), refused: vec![problem] },
    };
    if read.version != VERSION {
        let problem = Problem::new("it has another version")
            .seen(read.version)
            .wanted(VERSION)
            .remedy("start the Millrace that wrote it, or add its ports again");
        return Kept { ports: Vec::new(), refused: vec![problem] };
    }
    let mut kept = Kept::default();
    for (place, port) in read.ports.into_iter().enumerate() {
        match config::from_value::<PortConfig>(port) {
            Ok(port) => kept.ports.push(port),
            Err(problem) => kept.refused.push(problem.at(format!("port {}", place + 1))),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(config in generate::config()) {
            let text = to_text(&config.ports).unwrap();
            prop_assert_eq!(from_bytes(text.as_bytes()), Kept { ports: config.ports, refused: vec![] });
        }

        #[test]
        fn a_file_that_was_cut_is_refused_whole(config in generate::config(), at: prop::sample::Index) {
            let text = to_text(&config.ports).unwrap();
            // Without its last line feed it is whole.
            let cut = &text.as_bytes()[..at.index(text.len() - 1)];
            let kept = from_bytes(cut);
            prop_assert!(kept.ports.is_empty() && kept.refused.len() == 1, "{:?}", kept);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, text: String) {
            let _ = (from_bytes(&bytes), from_bytes(text.as_bytes()));
        }

        #[test]
        fn a_changed_byte_costs_no_more_than_it_changes(config in generate::config(), at: prop::sample::Index, byte: u8) {
            let mut bytes = to_text(&config.ports).unwrap().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let kept = from_bytes(&bytes);
            let lost = config.ports.len() - kept.ports.iter().filter(|port| config.ports.contains(port)).count();
            prop_assert!(lost <= 1 || !kept.refused.is_empty(), "{:?}", kept);
        }

        #[test]
        fn another_version_is_refused(config in generate::config(), version: u64) {
            prop_assume!(version != VERSION);
            let text = to_text(&config.ports).unwrap();
            let text = text.replacen("\"version\": 1", &format!("\"version\": {version}"), 1);
            let kept = from_bytes(text.as_bytes());
            prop_assert!(kept.ports.is_empty());
            prop_assert_eq!(&kept.refused[0].seen, &version.to_string());
        }
    }

    /// A key that an older Millrace does not know costs its port and no other.
    #[test]
    fn one_port_that_cannot_be_read_costs_no_other() {
        let text = r#"{"version": 1, "ports": [{"name": "a", "tap": "t", "knob": 1}, {"name": "b", "tap": "u"}]}"#;
        let kept = from_bytes(text.as_bytes());
        assert_eq!(kept.ports[0].name.as_str(), "b");
        assert!(kept.refused[0].error.starts_with("port 1: unknown key"), "{:?}", kept.refused);
    }
}
