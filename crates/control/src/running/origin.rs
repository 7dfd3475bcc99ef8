//! Where each port comes from: the configuration file, or the API.
//!
//! A reload of the file touches the file's ports only; the API's stay, and are what the state keeps. A change that the API
//! makes to a port of the file is in force until the file is read again.

use super::Running;
use crate::Problem;
use crate::body::{Origin, StepBody};
use crate::config::{Config, PortConfig, PortName};
use crate::plan::Step;
use crate::state;
use std::collections::BTreeSet;
use std::time::Instant;

/// The file's configuration with the API's ports beside it.
pub(super) struct Merged {
    pub(super) config: Config,
    /// Names of those that are the API's.
    pub(super) api: BTreeSet<PortName>,
    /// What had to give way, and why.
    pub(super) notes: Vec<String>,
}

impl Running {
    /// Where a port comes from.
    pub(super) fn origin(&self, name: &PortName) -> Origin {
        if self.api.contains(name) { Origin::Api } else { Origin::File }
    }

    /// The API's ports, by name.
    pub(super) fn api_ports(&self) -> Vec<PortConfig> {
        let ports = self.config.ports.iter().filter(|port| self.api.contains(&port.name));
        let mut ports: Vec<PortConfig> = ports.cloned().collect();
        ports.sort_by(|one, other| one.name.cmp(&other.name));
        ports
    }

    /// The text of the state file.
    pub(crate) fn state_text(&self) -> Result<String, Problem> {
        state::to_text(&self.api_ports())
    }

    /// The steps that [`reload_file`](Running::reload_file) would take.
    pub fn dry_run_file(&self, file: Config) -> Result<Vec<Step>, Problem> {
        file.check()?;
        self.dry_run(&merge(file, self.api_ports()).config)
    }

    /// Makes the file's configuration the one in force, with the API's ports as they are.
    pub fn reload_file(&mut self, file: Config, now: Instant) -> Result<Vec<StepBody>, Problem> {
        self.reload_with(file, self.api_ports(), now)
    }

    /// The same with these as the API's ports.
    pub(super) fn reload_with(
        &mut self,
        file: Config,
        api: Vec<PortConfig>,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        file.check()?;
        self.all_answer()?;
        let merged = merge(file, api);
        let steps = self.enforce(merged.config, merged.api, now)?;
        for note in merged.notes {
            self.events.note(now, note);
        }
        Ok(steps)
    }

    /// Of the ports wanted by the API: those it has added, now or before.
    pub(super) fn api_names(&self, wanted: &Config) -> BTreeSet<PortName> {
        let is_apis = |port: &&PortConfig| {
            self.api.contains(&port.name) || self.config.port(port.name.as_str()).is_none()
        };
        wanted.ports.iter().filter(is_apis).map(|port| port.name.clone()).collect()
    }
}

/// Puts the API's ports beside those of a file that has been checked. Where both cannot be, the file wins.
pub(super) fn merge(file: Config, api: Vec<PortConfig>) -> Merged {
    let mut merged = Merged { config: file, api: BTreeSet::new(), notes: Vec::new() };
    for port in api {
        let name = &port.name;
        if merged.config.port(name.as_str()).is_some() {
            merged.notes.push(format!(
                "port {name} is in the file and was added by the API as well: the file's is in force"
            ));
        } else {
            merged.api.insert(name.clone());
            merged.config.ports.push(port);
        }
    }
    while let Some((name, why)) = merged.misfit() {
        merged.config.ports.retain(|port| port.name != name);
        merged.api.remove(&name);
        merged.notes.push(format!(
            "port {name} was added by the API, does not go with the file and is removed: {why}"
        ));
    }
    merged
}

impl Merged {
    /// Takes back mirrors toward ports that are gone; then the last of the API's ports without which there is nothing, or less,
    /// to refuse.
    fn misfit(&mut self) -> Option<(PortName, String)> {
        self.forget_mirrors();
        let problem = self.config.check().err()?;
        let blamed = self.config.ports.iter().rev().filter(|port| self.api.contains(&port.name));
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
        for port in self.config.ports.iter_mut().filter(|port| self.api.contains(&port.name)) {
            if let Some(target) = port.mirror_to.take_if(|target| !names.contains(target)) {
                let name = &port.name;
                self.notes.push(format!("port {name} mirrors to {target} no more, which is gone"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use crate::memory::MemoryDevices;
    use proptest::prelude::*;

    proptest! {
        /// Two configurations with the same names and devices in part: whatever the API had, the file stands, and nothing else
        /// is refused.
        #[test]
        fn the_file_always_wins(file in generate::config(), api in generate::config()) {
            let known = api.ports.clone();
            let merged = merge(file.clone(), api.ports);
            prop_assert_eq!(merged.config.check(), Ok(()));
            prop_assert_eq!(&merged.config.ports[..file.ports.len()], &file.ports[..]);
            for port in &merged.config.ports[file.ports.len()..] {
                prop_assert!(merged.api.contains(&port.name));
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
            let bodies = running.port_bodies();
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
        assert_eq!(running.state_text(), state::to_text(&[]));
        let told = running.switch_body(now).events;
        assert!(told.iter().any(|event| event.text.contains("the file's is in force")), "{told:?}");
    }
}
