//! The state file: ports added through the API or by the fleet, so that they survive a restart.
//!
//! The `Keeper`'s thread writes a new file beside the old one and renames it: a killed process, or
//! a host that loses power, leaves the old file or the new one. A file that cannot be read is set
//! aside under another name, with a message, and the daemon starts. All accesses use one open,
//! locked directory, so two daemons never share it. The history of traffic is a second file there,
//! written in the same way now and then; without it nothing but the past is lost.

mod directory;
mod keeper;
mod place;

use api::body::Origin;
use config::{self, PortConfig};
use problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use directory::Identity;
pub use directory::StateDirectory;
pub(crate) use keeper::{Found, Keeper, Writer, open, trusted};
pub(crate) use place::directory;
pub use place::xdg_state;

/// The daemon's state file.
const FILE: &str = "ports.json";
/// The file of the history of traffic. Its format is that of `crate::history`.
const HISTORY: &str = "history";
/// Version of the schema below. A file with another version is set aside.
const VERSION: u64 = 1;
/// Longest file that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// Ports that are not from the configuration file: those of the fleet, then those of the API.
pub(crate) type Added = Vec<(Origin, PortConfig)>;

#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    ports: &'a [PortConfig],
    /// An older Millrace does not know this key and drops these ports.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    fleet: &'a [PortConfig],
}

/// Ports are read one by one, so that an unreadable one does not affect others.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
    ports: Vec<Value>,
    #[serde(default)]
    fleet: Vec<Value>,
}

/// The contents of a state file.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// The API's ports that could be read.
    pub ports: Vec<PortConfig>,
    /// The fleet's ports that could be read.
    pub fleet: Vec<PortConfig>,
    /// The problems with unreadable ports.
    pub refused: Vec<Problem>,
}

/// Returns the file's text for these ports.
///
/// # Errors
/// The ports cannot be serialised.
pub fn to_text(ports: &[PortConfig], fleet: &[PortConfig]) -> Result<String, Problem> {
    serde_json::to_string_pretty(&Written { version: VERSION, ports, fleet })
        .map(|text| text + "\n")
        .map_err(|error| Problem::new("the state cannot be written").seen(error))
}

/// Parses a file's bytes, which may be arbitrary.
pub fn from_bytes(bytes: &[u8]) -> Kept {
    let read: Versioned = match config::from_json(bytes) {
        Ok(read) => read,
        Err(problem) => return Kept { refused: vec![problem], ..Kept::default() },
    };
    if read.version != VERSION {
        let problem = Problem::new("the state has another version")
            .seen(read.version)
            .wanted(VERSION)
            .remedy("start the Millrace that wrote it, or add its ports again");
        return Kept { refused: vec![problem], ..Kept::default() };
    }
    let mut kept = Kept::default();
    let lists =
        [("port", read.ports, &mut kept.ports), ("fleet's port", read.fleet, &mut kept.fleet)];
    for (name, values, ports) in lists {
        for (place, port) in values.into_iter().enumerate() {
            match config::from_value::<PortConfig>(port) {
                Ok(port) => ports.push(port),
                Err(problem) => kept.refused.push(problem.at(format!("{name} {}", place + 1))),
            }
        }
    }
    kept
}

impl Kept {
    /// Returns all ports, with their origins.
    pub(crate) fn added(&self) -> Added {
        let of = |origin, ports: &[PortConfig]| {
            ports.iter().map(move |port| (origin, port.clone())).collect::<Added>()
        };
        [of(Origin::Fleet, &self.fleet), of(Origin::Api, &self.ports)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::generate;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(config in generate::config(), fleet in generate::config()) {
            let text = to_text(&config.ports, &fleet.ports).unwrap();
            let kept = Kept { ports: config.ports, fleet: fleet.ports, refused: vec![] };
            prop_assert_eq!(from_bytes(text.as_bytes()), kept);
        }

        #[test]
        fn a_file_that_was_cut_is_refused_whole(config in generate::config(), at: prop::sample::Index) {
            let text = to_text(&config.ports, &[]).unwrap();
            // Only the last line feed may be missing.
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
            let mut bytes = to_text(&config.ports, &[]).unwrap().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let kept = from_bytes(&bytes);
            let lost = config.ports.len() - kept.ports.iter().filter(|port| config.ports.contains(port)).count();
            prop_assert!(lost <= 1 || !kept.refused.is_empty(), "{:?}", kept);
        }

        #[test]
        fn another_version_is_refused(config in generate::config(), version: u64) {
            prop_assume!(version != VERSION);
            let text = to_text(&config.ports, &[]).unwrap();
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
