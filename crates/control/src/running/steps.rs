//! The steps of a plan, carried out on the switch.
//!
//! After each step [`settle`](Running::settle) tells the switch what every open port shall be, so that a mirror that comes
//! or goes, or a device whose MTU changed, needs no care of its own.

use super::uplinks::Stations;
use super::{OpenPort, PortDevice, Running, RunningPort, Sample};
use crate::Problem;
use crate::body::{StepBody, StepOutcome};
use crate::config::{PortConfig, PortName, SwitchConfig};
use crate::plan::Step;
use datapath::{PortId, PortSettings};
use std::time::{Duration, Instant};
use wire::Mac;

/// How long all sessions together may take to come to a boundary between messages: a front end may have sent half a message.
const PATIENCE: Duration = Duration::from_millis(200);

impl Running {
    /// Takes a step; the error says why it could not be taken, or not whole.
    pub(super) fn carry_out(&mut self, step: &Step, now: Instant) -> Result<(), String> {
        match step {
            Step::Remove { port, keys, .. } => {
                self.remember_guest_mtu(port, keys);
                self.close(port, now)
            }
            Step::Change { port, .. } => self.change(port, now),
            // Settings follow `config`, the rest waits for a restart.
            Step::Switch { .. } => Ok(()),
            Step::Add { port, .. } => self.open((**port).clone(), now),
        }
    }

    /// A guest's driver reads the MTU when it starts, not when its port is opened anew.
    fn remember_guest_mtu(&mut self, name: &str, keys: &[String]) {
        let port = self.ports.iter().find(|(other, _)| other.as_str() == name);
        let open =
            port.and_then(|(_, port)| port.open().filter(|_| port.config.vhost_user.is_some()));
        match open.filter(|open| open.connections > 0) {
            Some(open) if keys.iter().any(|key| key == "mtu") => {
                self.guest_mtus.entry(name.to_owned()).or_insert(open.settings.mtu);
            }
            Some(_) if !keys.is_empty() => {}
            _ => drop(self.guest_mtus.remove(name)),
        }
    }

    /// Ends the workers and closes the ports, so that another process may go on with their devices. Then there is nothing left to
    /// do but to end.
    pub(crate) fn give_up(&mut self) {
        self.switch.stop();
        self.ports.values().filter_map(RunningPort::open).for_each(|open| open.watch.suspend());
        let until = Instant::now() + PATIENCE;
        for port in self.ports.values_mut() {
            if let PortDevice::Open(open) = &mut port.device {
                open.watch.hand_over(until);
            }
        }
        self.ports.clear();
    }

    fn close(&mut self, name: &str, now: Instant) -> Result<(), String> {
        let found = self.ports.iter().find(|(other, _)| other.as_str() == name);
        let Some(name) = found.map(|(name, _)| name.clone()) else { return Ok(()) };
        let addresses = self.addresses_of(&name);
        let running = self.ports.remove(&name);
        self.end_capture(&name, "the port was closed");
        // No other port may still mirror to a number that the next port gets.
        let mut done = self.settle(now);
        if let Some(RunningPort { device: PortDevice::Open(open), .. }) = running
            && let Err(error) = self.switch.remove_port(open.id)
        {
            self.events.note(now, format!("port {name}: {error}"));
            done = Err(error.to_string());
        }
        self.forget_in_teams(&addresses);
        self.events.note(now, format!("port {name} is removed"));
        self.events.forget(name.as_str());
        done
    }

    fn change(&mut self, port: &PortConfig, now: Instant) -> Result<(), String> {
        let done = self.change_team(port);
        if let Err(reason) = &done {
            self.events.note(now, format!("port {}: {reason}", port.name));
        }
        let Some(running) = self.ports.get_mut(&port.name) else { return Ok(()) };
        let mtu = port.mtu.filter(|mtu| running.config.mtu != Some(*mtu));
        running.config = port.clone();
        if let (PortDevice::Open(open), Some(mtu)) = (&mut running.device, mtu) {
            match open.watch.set_mtu(mtu.0) {
                Ok(()) => open.mtu = open.watch.state().mtu,
                Err(problem) => {
                    self.events.note(now, format!("port {}: {problem}", port.name));
                    return Err(problem.to_string());
                }
            }
        }
        done
    }

    /// Opens a port, or keeps it as broken with the reason.
    pub(super) fn open(&mut self, port: PortConfig, now: Instant) -> Result<(), String> {
        let name = port.name.clone();
        let first_mac = self.ports.get(&name).and_then(|running| running.first_mac);
        let device = match self.try_open(&port, first_mac, now) {
            Ok(open) => {
                self.events.note(now, format!("port {name} is open: {}", port.device()));
                PortDevice::Open(Box::new(open))
            }
            Err((reason, denied)) => {
                self.note_broken(&name, &reason, now);
                PortDevice::Closed { reason, denied }
            }
        };
        let own = match &device {
            PortDevice::Open(open) => open.mac,
            PortDevice::Closed { .. } => None,
        };
        let done = match &device {
            PortDevice::Open(_) => Ok(()),
            PortDevice::Closed { reason, .. } => Err(reason.clone()),
        };
        self.ports.insert(name, RunningPort { config: port, device, first_mac: first_mac.or(own) });
        done
    }

    /// A port that stays broken for the same reason is no news.
    fn note_broken(&mut self, name: &PortName, reason: &str, now: Instant) {
        let known = match self.ports.get(name).map(|running| &running.device) {
            Some(PortDevice::Closed { reason: known, .. }) => known == reason,
            _ => false,
        };
        if !known {
            self.events.note(now, format!("port {name} is broken: {reason}"));
        }
    }

    /// The address of a device is taken for configured at its first opening. A container can make its device anew with an
    /// address of its choice, the gateway's say: from then on the port is as one without an address.
    fn try_open(
        &mut self,
        port: &PortConfig,
        first_mac: Option<Mac>,
        now: Instant,
    ) -> Result<OpenPort, (String, bool)> {
        let opened = self.opener.open(port).map_err(|error| (error.reason, error.denied))?;
        let mtu = opened.device.mtu;
        let mut mac = opened.device.mac;
        if let (Some(first), Some(seen)) = (first_mac, mac.filter(|seen| first_mac != Some(*seen)))
        {
            mac = None;
            let text = format!(
                "port {}: its device came back with address {seen}, it had {first}, so the port insists on none: \
                 set `mac`, or remove and add the port",
                port.name
            );
            self.events.note_of(port.name.as_str(), now, text);
        }
        // Where its guest's session goes on there is one already.
        let connections = opened.watch.state().connections;
        let settings = self.settings(port, mtu, mac);
        let id = self
            .switch
            .add_port(port.name.as_str(), opened.device, settings.clone())
            .map_err(|error| (error.to_string(), false))?;
        Ok(OpenPort {
            id,
            mtu,
            mac,
            degraded: opened.degraded,
            watch: opened.watch,
            connections,
            home: None,
            settings,
            stations: Stations::default(),
            link_down: None,
            pins: Vec::new(),
            last: Sample::default(),
        })
    }

    fn settings(&self, port: &PortConfig, mtu: u16, mac: Option<Mac>) -> PortSettings {
        let mirror = port.mirror_to.as_ref().and_then(|target| self.ports.get(target));
        let mirror = match mirror.map(|running| &running.device) {
            Some(PortDevice::Open(open)) => Some(open.id),
            _ => None,
        };
        // The table keeps the size that it was started with.
        let mac_entries = self.started.switch.mac_entries;
        let switch = SwitchConfig { mac_entries, ..self.config.switch.clone() };
        port.settings(&switch, mtu, mac, mirror)
    }

    /// Tells the switch what differs from what it was told last; the error is the last one.
    pub(super) fn settle(&mut self, now: Instant) -> Result<(), String> {
        let mut done = Ok(());
        let mut changes = Vec::new();
        for (name, running) in &self.ports {
            if let PortDevice::Open(open) = &running.device {
                let settings = self.settings(&running.config, open.mtu, open.mac);
                if settings != open.settings {
                    changes.push((name.clone(), open.id, settings));
                }
            }
        }
        for (name, id, settings) in changes {
            if let Err(error) = self.switch.change_port(id, settings.clone()) {
                self.events.note(now, format!("port {name}: {error}"));
                done = Err(format!("port {name}: {error}"));
            }
            // A worker that was found to hang by this has its letter, and will obey it.
            let is_told = done.is_ok() || self.has_settings(id, &settings);
            if let Some(RunningPort { device: PortDevice::Open(open), .. }) =
                self.ports.get_mut(&name).filter(|_| is_told)
            {
                open.settings = settings;
            }
        }
        done
    }

    fn has_settings(&self, id: PortId, settings: &PortSettings) -> bool {
        self.switch.ports().iter().any(|port| port.id == id && port.settings == *settings)
    }
}

/// The first of these steps that failed, as a problem.
pub(super) fn all_done(steps: &[StepBody]) -> Result<(), Problem> {
    let failed = steps.iter().find(|step| step.outcome == StepOutcome::Failed);
    failed.map_or(Ok(()), |step| {
        Err(Problem::new("the change is configured and could not be carried out")
            .seen(&step.reason)
            .wanted("a device and a switch that take it")
            .remedy("fix the cause, or take the change back; `millrace check` tells what is wrong"))
    })
}
