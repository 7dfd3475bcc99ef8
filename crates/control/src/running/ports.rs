//! What the API asks for, port by port, as a wanted configuration.

use super::steps::all_done;
use super::{PortDevice, Running};
use crate::Problem;
use crate::config::PortConfig;
use std::time::Instant;

impl Running {
    /// Takes one more port. Unlike a port of the file, one that does not open is refused.
    pub fn add(&mut self, port: PortConfig, now: Instant) -> Result<(), Problem> {
        let name = port.name.clone();
        if self.ports.contains_key(&name) {
            return Err(Problem::new(format!("port {name} exists"))
                .seen(&name)
                .wanted("a name that no port has")
                .remedy(format!("choose another name, or `millrace port remove {name}` first")));
        }
        let mut wanted = self.config.clone();
        wanted.ports.push(port);
        self.reload(wanted, now)?;
        match self.ports.get(&name).map(|port| &port.device) {
            Some(PortDevice::Closed { reason, .. }) => {
                let problem = Problem::new(format!("port {name} does not open")).seen(reason);
                self.remove(name.as_str(), now)?;
                Err(problem
                    .wanted("a device that can be opened")
                    .remedy("fix the cause and add the port again"))
            }
            _ => Ok(()),
        }
    }

    /// Changes keys of one port: `change` is a JSON merge patch (RFC 7396) with the keys of the file. All of it is done or none:
    /// where a step fails, the port goes back to what it was, unless it was broken before.
    pub fn patch(
        &mut self,
        name: &str,
        change: &serde_json::Value,
        now: Instant,
    ) -> Result<(), Problem> {
        let port = self.config.port(name).ok_or_else(|| self.no_such_port(name))?;
        let merged = merge(port, change)?;
        if merged.name.as_str() != name {
            return Err(Problem::new(format!("port {name} cannot be renamed"))
                .seen(&merged.name)
                .wanted(name)
                .remedy("add a port with the new name and remove this one"));
        }
        let mut wanted = self.config.clone();
        wanted.ports.retain(|port| port.name.as_str() != name);
        wanted.ports.push(merged);
        let was_open = self.port(name)?.1.open().is_some();
        let before = self.config.clone();
        let steps = self.reload(wanted, now)?;
        let Err(failed) = all_done(&steps) else { return Ok(()) };
        if !was_open {
            return Ok(());
        }
        let back = self.reload(before, now).and_then(|steps| all_done(&steps));
        let wanted = match back {
            Ok(()) => "the port is as it was before".to_owned(),
            Err(problem) => format!("the port was to be as before, and is not: {}", problem.seen),
        };
        Err(Problem::new(format!("port {name} cannot be changed"))
            .seen(failed.seen)
            .wanted(wanted)
            .remedy("fix the cause and change the port again"))
    }

    /// Gives a port up. Ports that mirror to it stop doing so.
    pub fn remove(&mut self, name: &str, now: Instant) -> Result<(), Problem> {
        if self.config.port(name).is_none() {
            return Err(self.no_such_port(name));
        }
        let mut wanted = self.config.clone();
        wanted.ports.retain(|port| port.name.as_str() != name);
        for port in &mut wanted.ports {
            if port.mirror_to.as_ref().is_some_and(|target| target.as_str() == name) {
                port.mirror_to = None;
            }
        }
        self.reload(wanted, now).and_then(|steps| all_done(&steps))
    }
}

/// RFC 7396 on one level, which is all a port has.
pub(super) fn merge(port: &PortConfig, change: &serde_json::Value) -> Result<PortConfig, Problem> {
    let wrong = || {
        Problem::new("the change is not an object")
            .seen(change)
            .wanted("an object with keys of the port")
            .remedy("write {\"mtu\": 9000}; null removes a key")
    };
    let change_map = change.as_object().ok_or_else(wrong)?;
    let mut merged = serde_json::to_value(port).unwrap_or_default();
    let keys = merged.as_object_mut().ok_or_else(wrong)?;
    for (key, value) in change_map {
        if value.is_null() {
            keys.remove(key);
        } else {
            keys.insert(key.clone(), value.clone());
        }
    }
    crate::config::from_value(merged)
}
