//! What the API asks for, port by port, as a wanted configuration.

use super::steps::all_done;
use super::{PortDevice, Running};
use crate::Problem;
use crate::config::{PortConfig, with_keys};
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
        let (before, api) = (self.config.clone(), self.api.clone());
        let mut wanted = before.clone();
        wanted.ports.push(port);
        self.reload(wanted, now)?;
        match self.ports.get(&name).map(|port| &port.device) {
            Some(PortDevice::Closed { reason, .. }) => {
                let problem = Problem::new(format!("port {name} does not open")).seen(reason);
                // Also where it was a worker that hangs: the port would open by itself once that answers.
                self.enforce(before, api, now)?;
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
        if let Some(place) = wanted.ports.iter_mut().find(|port| port.name.as_str() == name) {
            *place = merged;
        }
        let was_open = self.port(name)?.1.open().is_some();
        let (before, api) = (self.config.clone(), self.api.clone());
        let steps = self.reload(wanted, now)?;
        let Err(failed) = all_done(&steps) else { return Ok(()) };
        if !was_open {
            return Ok(());
        }
        let back = self.enforce(before, api, now).and_then(|steps| all_done(&steps));
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

/// The port after a change.
pub(super) fn merge(port: &PortConfig, change: &serde_json::Value) -> Result<PortConfig, Problem> {
    let wrong = || {
        Problem::new("the change is not an object")
            .seen(change)
            .wanted("an object with keys of the port")
            .remedy("write {\"mtu\": 9000}; null removes a key")
    };
    with_keys(port, change.as_object().ok_or_else(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::memory::MemoryDevices;
    use datapath::Vlan;
    use serde_json::json;
    use std::time::Duration;

    /// A port that was refused was configured and saved, and opened by itself once the worker answered; a changed one stayed changed.
    #[test]
    fn what_finds_a_hang_and_is_refused_does_not_happen_later() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let config = Config::from_toml("t", "[[port]]\nname='vm1'\ntap='tap1'\n").unwrap();
        let mut running = Running::start(config.clone(), Box::new(devices.clone()), start).unwrap();
        let peer = devices.peer("tap1").unwrap();
        let answers = |running: &mut Running| {
            while running.all_answer().is_err() {
                std::thread::sleep(Duration::from_millis(1));
                running.poll(start);
            }
            running.poll(start);
        };
        let vm2: PortConfig =
            serde_json::from_value(json!({"name": "vm2", "tap": "tap2"})).unwrap();
        let hang = peer.hang();
        let refused = running.add(vm2, start).unwrap_err();
        assert_eq!(refused.error, "port vm2 does not open");
        assert!(refused.seen.contains("does not answer"), "{refused}");
        assert_eq!((running.config(), running.api_ports()), (&config, vec![]));
        drop(hang);
        answers(&mut running);
        assert_eq!(running.switch.ports().len(), 1);

        let vlan = |running: &mut Running, id: u16| {
            running.patch("vm1", &json!({ "vlan": id }), start).map(|()| Vlan::Access(id))
        };
        let in_force = |running: &Running| running.switch.ports().remove(0).settings.vlan;
        let first = in_force(&running);
        let hang = peer.hang();
        // A worker that sleeps reads the letter that wakes it, and hangs then.
        let before = vlan(&mut running, 10).unwrap_or(first);
        vlan(&mut running, 20).unwrap_err();
        drop(hang);
        answers(&mut running);
        assert_eq!(in_force(&running), before);
    }
}
