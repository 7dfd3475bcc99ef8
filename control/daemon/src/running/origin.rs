//! The origin of each port: the configuration file, the fleet, or the API. In a conflict the file
//! wins, then the fleet.
//!
//! A reload changes only the file's ports, and the fleet's agent only the fleet's; ports of the
//! fleet and the API are stored in the state. A change through the API to a port of the file lasts
//! until the file is reread, one to a port of the fleet until the fleet's ports are replaced.

use crate::state::Added;
use api::body::Origin;
use config::{Config, PortConfig, PortName};
use std::collections::{BTreeMap, BTreeSet};

/// The origins of ports that are not from the file.
pub(super) type Origins = BTreeMap<PortName, Origin>;

/// The file's configuration merged with the added ports.
pub(super) struct Merged {
    pub(super) config: Config,
    pub(super) added: Origins,
    /// Ports that were overridden, with the reasons.
    pub(super) notes: Vec<String>,
}

/// Merges added ports with those of a checked file. In a conflict the file wins, then the first.
pub(super) fn merge(file: Config, added: Added) -> Merged {
    let mut names: BTreeSet<PortName> = file.ports.iter().map(|port| port.name.clone()).collect();
    let mut merged = Merged { config: file, added: Origins::new(), notes: Vec::new() };
    for (origin, port) in added {
        let name = &port.name;
        if !names.insert(name.clone()) {
            let winner = merged.added.get(name).copied().unwrap_or_default().named();
            let by = origin.by();
            merged.notes.push(format!(
                "port {name} is in {winner} and was also added {by}: {winner}'s is used"
            ));
        } else {
            merged.added.insert(name.clone(), origin);
            merged.config.ports.push(port);
        }
    }
    while let Some((name, why)) = merged.misfit() {
        merged.config.ports.retain(|port| port.name != name);
        let origin = merged.added.remove(&name).unwrap_or_default();
        let fleet = merged.added.values().any(|origin| *origin == Origin::Fleet);
        let rest = if origin == Origin::Api && fleet { " and the fleet" } else { "" };
        let by = origin.by();
        merged.notes.push(format!(
            "port {name}, added {by}, conflicts with the file{rest} and is removed: {why}"
        ));
    }
    merged
}

impl Merged {
    /// Ends mirrors to ports that are gone. Then finds the last of the added ports without which
    /// nothing, or less, is refused.
    fn misfit(&mut self) -> Option<(PortName, String)> {
        self.forget_mirrors();
        let problem = self.config.check().err()?;
        let is_added = |port: &&PortConfig| self.added.contains_key(&port.name);
        let blamed = self.config.ports.iter().rev().filter(is_added);
        let blamed: Vec<PortName> = blamed.map(|port| port.name.clone()).collect();
        let cures = |name: &&PortName| {
            let mut without = self.config.clone();
            without.ports.retain(|port| port.name != **name);
            without.check().err() != Some(problem.clone())
        };
        let name = blamed.iter().find(cures).or(blamed.first())?;
        Some((name.clone(), problem.error.clone()))
    }

    fn forget_mirrors(&mut self) {
        let names: BTreeSet<PortName> =
            self.config.ports.iter().map(|port| port.name.clone()).collect();
        for port in &mut self.config.ports {
            if let Some(target) = port.mirror_to.take_if(|target| !names.contains(target)) {
                let name = &port.name;
                self.notes
                    .push(format!("port {name} no longer mirrors to {target}, which is gone"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Running;
    use super::*;
    use crate::state;
    use config::generate;
    use proptest::prelude::*;
    use std::time::Instant;
    use test_devices::MemoryDevices;

    proptest! {
        /// Two configurations with the same names and devices in part: whatever the API had, the
        /// file stands, and nothing else is refused.
        #[test]
        fn the_file_always_wins(file in generate::config(), api in generate::config(), split: prop::sample::Index) {
            let known = api.ports.clone();
            let fleet = split.index(known.len() + 1);
            let origin = |place| if place < fleet { Origin::Fleet } else { Origin::Api };
            let added = known.iter().enumerate().map(|(place, port)| (origin(place), port.clone()));
            let merged = merge(file.clone(), added.collect());
            prop_assert_eq!(merged.config.check(), Ok(()));
            prop_assert_eq!(&merged.config.ports[..file.ports.len()], &file.ports[..]);
            for port in &merged.config.ports[file.ports.len()..] {
                prop_assert!(merged.added.contains_key(&port.name));
            }
            let given_up = known.len() + file.ports.len() - merged.config.ports.len();
            prop_assert!(merged.notes.len() >= given_up, "{:?}", merged.notes);
        }
    }

    fn read(text: &str) -> Config {
        Config::from_toml("t", text).unwrap()
    }

    #[test]
    fn a_reload_touches_the_file_s_ports_only() {
        let now = Instant::now();
        let file = "[[port]]\nname='a'\ntap='t'\n";
        let mut running =
            Running::start(read(file), Box::new(MemoryDevices::default()), now).unwrap();
        running.add(read("[[port]]\nname='b'\ntap='u'").ports.remove(0), now).unwrap();
        let origins = |running: &Running| {
            let bodies = running.report().ports();
            bodies.into_iter().map(|port| (port.name, port.origin)).collect::<Vec<_>>()
        };
        let both = [("a".to_owned(), Origin::File), ("b".to_owned(), Origin::Api)];
        assert_eq!(origins(&running), both);
        assert_eq!(running.reload_file(read(file), now), Ok(Vec::new()));
        assert_eq!(origins(&running), both);
        let steps = running.reload_file(read("[[port]]\nname='c'\ntap='v'"), now).unwrap();
        assert_eq!(steps.len(), 2, "a goes, c comes");
        let kept = state::from_bytes(running.state_text().unwrap().as_bytes());
        assert_eq!(kept.ports[0].name.as_str(), "b");
        // The file takes the name, and the port is the file's from then on.
        running.reload_file(read("[[port]]\nname='b'\ntap='w'"), now).unwrap();
        assert_eq!(origins(&running), [("b".to_owned(), Origin::File)]);
        assert_eq!(running.state_text(), state::to_text(&[], &[]));
        let told = running.switch_body(now).events;
        assert!(told.iter().any(|event| event.text.contains("the file's is used")), "{told:?}");
    }

    /// By name and by device the file wins over the fleet, and the fleet over the API.
    #[test]
    fn the_fleet_replaces_its_own_ports_and_gives_way_only_to_the_file() {
        let now = Instant::now();
        let file = "[[port]]\nname='f'\ntap='t-f'\n";
        let mut running =
            Running::start(read(file), Box::new(MemoryDevices::default()), now).unwrap();
        for port in ["name='a'\ntap='t-a'", "name='b'\ntap='t-b'", "name='c'\ntap='t-c'"] {
            running.add(read(&format!("[[port]]\n{port}")).ports.remove(0), now).unwrap();
        }
        let wanted = "[[port]]\nname='f'\ntap='x'\n[[port]]\nname='a'\ntap='y'\n[[port]]\nname='g'\ntap='t-b'\n";
        running.replace_fleet(read(wanted).ports, now).unwrap();
        let origins = |running: &Running| {
            let mut bodies = running.report().ports();
            bodies.sort_by(|one, other| one.name.cmp(&other.name));
            bodies.into_iter().map(|port| (port.name, port.origin)).collect::<Vec<_>>()
        };
        let named = |name: &str, origin| (name.to_owned(), origin);
        let (fleet, api) = (Origin::Fleet, Origin::Api);
        let all = [named("a", fleet), named("c", api), named("f", Origin::File), named("g", fleet)];
        assert_eq!(origins(&running), all);
        let told = running.switch_body(now).events;
        let has = |words: &str| told.iter().any(|event| event.text.contains(words));
        assert!(has("port f is in the file and was also added by the fleet"), "{told:?}");
        assert!(
            has("port b, added through the API, conflicts with the file and the fleet"),
            "{told:?}"
        );
        // A reload keeps the fleet's ports, a change through the API keeps their origin, and an
        // empty list removes them.
        running.reload_file(read(file), now).unwrap();
        running.patch("g", &serde_json::json!({"mtu": 9000}), now).unwrap();
        assert_eq!(origins(&running), all);
        let kept = state::from_bytes(running.state_text().unwrap().as_bytes());
        let names = |ports: &[PortConfig]| {
            ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((names(&kept.fleet).as_str(), names(&kept.ports).as_str()), ("a g", "c"));
        running.replace_fleet(Vec::new(), now).unwrap();
        assert_eq!(origins(&running), [named("c", api), named("f", Origin::File)]);
    }

    /// The mirror was taken for a fault of the API's port, which was removed.
    #[test]
    fn a_mirror_of_the_file_to_a_port_of_the_fleet_ends_with_that_port_and_costs_no_other() {
        let now = Instant::now();
        let file = "[[port]]\nname='f'\ntap='t-f'\n";
        let mut running =
            Running::start(read(file), Box::new(MemoryDevices::default()), now).unwrap();
        running.add(read("[[port]]\nname='c'\ntap='t-c'").ports.remove(0), now).unwrap();
        let gone = ["", "[[port]]\nname='g'\ntap='t-f'\n"];
        for wanted in gone {
            running.replace_fleet(read("[[port]]\nname='g'\ntap='t-g'").ports, now).unwrap();
            running.patch("f", &serde_json::json!({"mirror-to": "g"}), now).unwrap();
            let ports = if wanted.is_empty() { Vec::new() } else { read(wanted).ports };
            running.replace_fleet(ports, now).unwrap();
            let config = running.config();
            assert_eq!(config.port("f").unwrap().mirror_to, None);
            assert!(config.port("c").is_some() && config.port("g").is_none(), "{config:?}");
        }
    }
}
