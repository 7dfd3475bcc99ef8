//! Carries the steps of a plan out on the switch.
//!
//! After each step [`settle_around`](Running::settle_around) sends the switch the settings that the
//! step changed: those of its port, and of the ports that mirror to it. At the end of a plan, and
//! with each poll, [`settle`](Running::settle) compares those of all open ports.

use super::uplinks::Stations;
use super::{OpenPort, PortDevice, Running, RunningPort, Sample};
use crate::settings;
use ::ports::closing;
use api::body::{StepBody, StepOutcome};
use config::plan::Step;
use config::{MacAddress, PortConfig, PortName, SwitchConfig};
use datapath::{PortId, PortSettings, Switch, SwitchOptions};
use problem::Problem;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Level;
use wire::Mac;

/// Longest time for all sessions together to reach a message boundary: a front end may have sent
/// half a message.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(200);

impl Running {
    /// Carries out a step; the error says why that failed, at least in part.
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

    /// A guest's driver reads the MTU when it starts, not when its port is reopened.
    fn remember_guest_mtu(&mut self, name: &str, keys: &[String]) {
        let port = self.ports.iter().find(|(other, _)| other.as_str() == name);
        let open =
            port.and_then(|(_, port)| port.open().filter(|_| port.config.device().is_guest()));
        match open.filter(|open| open.connections > 0) {
            Some(open) if keys.iter().any(|key| key == "mtu") => {
                self.guest_mtus.entry(name.to_owned()).or_insert(open.settings.mtu);
            }
            Some(_) if !keys.is_empty() => {}
            _ => drop(self.guest_mtus.remove(name)),
        }
    }

    /// Ends the workers and closes the ports, so that another process can resume with their
    /// devices. After that this process can only end. Returns whether all workers have ended: one
    /// that hangs may still use a device.
    pub(crate) fn give_up(&mut self) -> bool {
        let mut have_ended = false;
        closing::at_once(|| {
            have_ended = self.switch.stop();
            self.opener.store().note_addresses(self.addresses_to_keep());
            let open = self.ports.values().filter_map(RunningPort::open);
            open.for_each(|open| open.watch.suspend());
            let until = Instant::now() + HAND_OVER_TIMEOUT;
            for port in self.ports.values_mut() {
                if let PortDevice::Open(open) = &mut port.device {
                    open.watch.hand_over(until);
                }
            }
            self.ports.clear();
            // The egress queues go with the switch.
            let none = SwitchOptions { workers: Vec::new(), ..SwitchOptions::default() };
            self.switch = Switch::stepped(none);
        });
        have_ended
    }

    /// The addresses that ports without a configured one are held to.
    pub(super) fn addresses_to_keep(&self) -> BTreeMap<String, MacAddress> {
        let infos = self.infos();
        let of = |(name, running): (&PortName, &RunningPort)| {
            let info =
                infos.iter().find(|info| Some(info.id) == running.open().map(|open| open.id));
            let mac = running.first_mac.or(info.and_then(|info| info.held_mac))?;
            Some((name.to_string(), MacAddress(mac)))
        };
        self.ports.iter().filter_map(of).collect()
    }

    fn close(&mut self, name: &str, now: Instant) -> Result<(), String> {
        let found = self.ports.iter().find(|(other, _)| other.as_str() == name);
        let Some(name) = found.map(|(name, _)| name.clone()) else { return Ok(()) };
        let addresses = self.addresses_of(&name);
        let running = self.ports.remove(&name);
        self.end_capture(&name, "the port was closed");
        // No port may still mirror to this number, which the next port gets.
        let mut done = self.settle_around(name.as_str(), now);
        if let Some(RunningPort { device: PortDevice::Open(open), .. }) = running
            && let Err(error) = self.switch.remove_port(open.id)
        {
            self.events.note(Level::ERROR, now, format!("port {name}: {error}"));
            done = Err(error.to_string());
        }
        self.forget_in_teams(&addresses);
        // It could not be opened with them yet.
        self.opener.store().discard_left(name.as_str());
        self.events.note(Level::INFO, now, format!("port {name} is removed"));
        self.events.forget(name.as_str());
        done
    }

    fn change(&mut self, port: &PortConfig, now: Instant) -> Result<(), String> {
        let done = self.change_team(port);
        if let Err(reason) = &done {
            self.events.note(Level::WARN, now, format!("port {}: {reason}", port.name));
        }
        let Some(running) = self.ports.get_mut(&port.name) else { return Ok(()) };
        let mtu = port.mtu.filter(|mtu| running.config.mtu != Some(*mtu));
        running.config = port.clone();
        self.opener.store().note_change(port);
        if let (PortDevice::Open(open), Some(mtu)) = (&mut running.device, mtu) {
            match open.watch.set_mtu(mtu.0) {
                Ok(()) => open.mtu = open.watch.state().mtu,
                Err(problem) => {
                    self.events.note(Level::WARN, now, format!("port {}: {problem}", port.name));
                    return Err(problem.to_string());
                }
            }
        }
        done
    }

    /// Opens a port, or keeps it as broken with the reason.
    pub(super) fn open(&mut self, port: PortConfig, now: Instant) -> Result<(), String> {
        let name = port.name.clone();
        let mut first_mac = self.ports.get(&name).and_then(|running| running.first_mac);
        let device = match self.try_open(&port, &mut first_mac, now) {
            Ok(open) => {
                self.events.note(
                    Level::INFO,
                    now,
                    format!("port {name} is open: {}", port.device()),
                );
                for text in &open.degraded {
                    tracing::warn!(target: "control::running::steps", "port {name}: {text}");
                }
                PortDevice::Open(Box::new(open))
            }
            Err((reason, denied)) => {
                self.note_broken(&name, &reason, now);
                PortDevice::Closed { reason, denied }
            }
        };
        let done = match &device {
            PortDevice::Open(_) => Ok(()),
            PortDevice::Closed { reason, .. } => Err(reason.clone()),
        };
        self.ports.insert(name, RunningPort { config: port, device, first_mac });
        done
    }

    /// Records a broken port, unless it was already broken for the same reason.
    fn note_broken(&mut self, name: &PortName, reason: &str, now: Instant) {
        let known = match self.ports.get(name).map(|running| &running.device) {
            Some(PortDevice::Closed { reason: known, .. }) => known == reason,
            _ => false,
        };
        if !known {
            self.events.note(Level::ERROR, now, format!("port {name} is broken: {reason}"));
        }
    }

    /// The device's address at its first opening counts as configured. A container can recreate its
    /// device with an address of its choice, for example the gateway's; from then on the port
    /// counts as one without an address.
    fn try_open(
        &mut self,
        port: &PortConfig,
        first_mac: &mut Option<Mac>,
        now: Instant,
    ) -> Result<OpenPort, (String, bool)> {
        let ahead = self.ahead.remove(&port.name);
        let opened = ahead.unwrap_or_else(|| self.opener.open(port));
        let opened = opened.map_err(|error| (error.reason, error.denied))?;
        let mtu = opened.device.mtu;
        let mut mac = opened.device.mac;
        let held = opened.earlier_mac.filter(|_| mac.is_none());
        if mac.is_some() {
            *first_mac = first_mac.or(opened.earlier_mac).or(mac);
        }
        if let (Some(first), Some(seen)) =
            (*first_mac, mac.filter(|seen| *first_mac != Some(*seen)))
        {
            mac = None;
            let text = format!(
                "port {}: its device returned with address {seen} instead of {first}, so the port no longer trusts its \
                 address: set `mac`, or remove and add the port",
                port.name
            );
            self.events.note_of(Level::WARN, port.name.as_str(), now, text);
        }
        // A resumed session counts as a connection.
        let connections = opened.watch.state().connections;
        let settings = self.settings(port, mtu, mac);
        let id = self
            .switch
            .add_port(port.name.as_str(), opened.device, settings.clone())
            .and_then(|id| {
                held.map_or(Ok(id), |mac| self.switch.set_held_mac(id, Some(mac)).map(|()| id))
            })
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
        // The table keeps its size from startup.
        let mac_entries = self.started.switch.mac_entries;
        let switch = SwitchConfig { mac_entries, ..self.config.switch.clone() };
        settings::of_port(port, &switch, mtu, mac, mirror)
    }

    /// Sends the switch every setting that has changed since it was last sent.
    ///
    /// # Errors
    ///
    /// The last of the ports that could not be changed, with the reason.
    pub(super) fn settle(&mut self, now: Instant) -> Result<(), String> {
        self.settle_those(|_, _| true, now)
    }

    /// Does this for one port and those that mirror to it, whether it is still there or not.
    ///
    /// # Errors
    ///
    /// The last of the ports that could not be changed, with the reason.
    pub(super) fn settle_around(&mut self, name: &str, now: Instant) -> Result<(), String> {
        let is_around = |other: &PortName, port: &RunningPort| {
            let mirror_to = port.config.mirror_to.as_ref();
            other.as_str() == name || mirror_to.is_some_and(|target| target.as_str() == name)
        };
        self.settle_those(is_around, now)
    }

    fn settle_those(
        &mut self,
        is_meant: impl Fn(&PortName, &RunningPort) -> bool,
        now: Instant,
    ) -> Result<(), String> {
        let mut done = Ok(());
        let mut changes = Vec::new();
        for (name, running) in self.ports.iter().filter(|(name, port)| is_meant(name, port)) {
            if let PortDevice::Open(open) = &running.device {
                let settings = self.settings(&running.config, open.mtu, open.mac);
                if settings != open.settings {
                    changes.push((name.clone(), open.id, settings));
                }
            }
        }
        for (name, id, settings) in changes {
            if let Err(error) = self.switch.change_port(id, settings.clone()) {
                self.events.note(Level::ERROR, now, format!("port {name}: {error}"));
                done = Err(format!("port {name}: {error}"));
            }
            // A worker that turned out to hang has the message, and will process it.
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

/// The first failed step as a problem.
pub(super) fn all_done(steps: &[StepBody]) -> Result<(), Problem> {
    let failed = steps.iter().find(|step| step.outcome == StepOutcome::Failed);
    failed.map_or(Ok(()), |step| {
        Err(Problem::new("the change is configured but could not be carried out")
            .seen(&step.reason)
            .wanted("a device and a switch that accept it")
            .remedy("fix the cause, or undo the change; `millrace check` shows the cause"))
    })
}
