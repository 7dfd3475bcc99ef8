//! The API's changes to single ports, as a wanted configuration.

use super::port::RunningPort;
use super::reload::all_done;
use super::{Running, addresses};
use config::{PortConfig, with_keys};
use problem::Problem;
use std::time::Instant;

impl Running {
    /// Adds a port. Unlike a port from the file, a port whose device cannot be opened is refused.
    ///
    /// # Errors
    ///
    /// Fails if a worker does not answer, if the name or an address is taken, or if the device
    /// cannot be opened.
    pub fn add(&mut self, port: PortConfig, now: Instant) -> Result<(), Problem> {
        let name = port.name.clone();
        if self.ports.get(&name).is_some() {
            return Err(Problem::new(format!("port {name} exists already"))
                .seen(&name)
                .wanted("an unused name")
                .remedy(format!("choose another name, or `millrace port remove {name}` first")));
        }
        addresses::conflict(&self.ports, &port).map_or(Ok(()), Err)?;
        let (before, added) = self.desired.snapshot();
        let mut wanted = before.clone();
        wanted.ports.push(port);
        self.reload(wanted, now)?;
        match self.ports.get(&name).and_then(RunningPort::closed) {
            Some(reason) => {
                let problem = Problem::new(format!("port {name} cannot be opened")).seen(reason);
                // Also if a worker hangs: otherwise the port would open by itself once that
                // answers.
                self.enforce(before, added, now)?;
                Err(problem
                    .wanted("a device that can be opened")
                    .remedy("fix the cause and add the port again"))
            }
            None => Ok(()),
        }
    }

    /// Changes keys of one port: `change` is a JSON merge patch (RFC 7396) with the keys of the
    /// file. It is done completely or not at all: if a step fails, the port returns to its previous
    /// settings, unless it was broken before.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, if a key or value is refused, or if a step fails.
    pub fn patch(
        &mut self,
        name: &str,
        change: &serde_json::Value,
        now: Instant,
    ) -> Result<(), Problem> {
        let port = self.config().port(name).ok_or_else(|| self.ports.no_such(name))?;
        let merged = merge(port, change)?;
        if merged.name.as_str() != name {
            return Err(Problem::new(format!("port {name} cannot be renamed"))
                .seen(&merged.name)
                .wanted(name)
                .remedy("add a port with the new name, and remove this one"));
        }
        // A conflict that existed before does not block other changes.
        let before = addresses::conflict(&self.ports, port);
        let conflict = addresses::conflict(&self.ports, &merged);
        let conflict = conflict.filter(|now| before.as_ref() != Some(now));
        conflict.map_or(Ok(()), Err)?;
        let mut wanted = self.config().clone();
        if let Some(place) = wanted.ports.iter_mut().find(|port| port.name.as_str() == name) {
            *place = merged;
        }
        let was_open = self.ports.port(name)?.1.open().is_some();
        let (before, added) = self.desired.snapshot();
        let steps = self.reload(wanted, now)?;
        let Err(failed) = all_done(&steps) else { return Ok(()) };
        if !was_open {
            return Ok(());
        }
        let back = self.enforce(before, added, now).and_then(|steps| all_done(&steps));
        let wanted = match back {
            Ok(()) => "the port has its previous settings".to_owned(),
            Err(problem) => {
                format!("the port could not return to its previous settings: {}", problem.seen)
            }
        };
        Err(Problem::new(format!("port {name} cannot be changed"))
            .seen(failed.seen)
            .wanted(wanted)
            .remedy("fix the cause and change the port again"))
    }

    /// Removes a port. Ports that mirror to it stop doing so.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, or if a step fails.
    pub(crate) fn remove(&mut self, name: &str, now: Instant) -> Result<(), Problem> {
        self.change(now, |ports, wanted| {
            ports.wanted(wanted, name)?;
            wanted.ports.retain(|port| port.name.as_str() != name);
            for port in &mut wanted.ports {
                if port.mirror_to.as_ref().is_some_and(|target| target.as_str() == name) {
                    port.mirror_to = None;
                }
            }
            Ok(())
        })
    }
}

/// The port after a change.
///
/// # Errors
///
/// Fails if the change is no object, or if a key or value is refused.
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
    use config::Config;
    use datapath::Vlan;
    use serde_json::json;
    use std::time::Duration;
    use test_devices::{Fate, MemoryDevices};

    /// A device that outlives the process stays when its port opens anew with other queues.
    #[test]
    fn what_was_made_for_a_port_goes_with_it_and_with_its_device() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let config = "[[port]]\nname='c1'\nveth='eth0'\nnetns='c1'\n";
        let config = Config::from_toml("t", config).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        running.patch("c1", &json!({"queues": 2}), start).unwrap();
        assert!(devices.removed().is_empty());
        running.patch("c1", &json!({"netns": "c2"}), start).unwrap();
        assert_eq!(devices.removed(), ["c1"]);
        // One that is broken may have left something as well.
        devices.set("eth0", Fate::Gone);
        running.poll(start);
        running.remove("c1", start).unwrap();
        assert_eq!(devices.removed(), ["c1", "c1"]);
        let refused = json!({"name": "c2", "veth": "eth0"});
        running.add(serde_json::from_value(refused).unwrap(), start).unwrap_err();
        assert_eq!(devices.removed(), ["c1", "c1", "c2"]);
    }

    /// A port that was refused was configured and saved, and opened by itself once the worker
    /// answered; a changed one stayed changed.
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
        assert_eq!(refused.error, "port vm2 cannot be opened");
        assert!(refused.seen.contains("does not answer"), "{refused}");
        assert_eq!((running.config(), running.added_ports()), (&config, vec![]));
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
