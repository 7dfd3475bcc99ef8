//! Carries the steps of a plan out on the switch.
//!
//! After each step [`settle_around`](Running::settle_around) sends the switch the settings that the
//! step changed: those of its port, and of the ports that mirror to it. At the end of a plan, and
//! with each poll, [`settle`](Running::settle) compares those of all open ports.

use super::port::{OpenPort, PortDevice, RunningPort};
use super::sample::Sample;
use super::stations::Stations;
use super::{Running, team};
use ::ports::closing;
use config::plan::Step;
use config::{PortConfig, PortName, PortRole};
use datapath::{PortId, PortSettings, Switch, SwitchOptions};
use std::time::Instant;
use tracing::Level;
use wire::Mac;

impl Running {
    /// Carries out a step; the error says why that failed, at least in part.
    pub(super) fn carry_out(&mut self, step: &Step, now: Instant) -> Result<(), String> {
        match step {
            Step::Remove { port, keys, .. } => {
                self.ports.remember_guest_mtu(port, keys);
                self.close(port, now)
            }
            Step::Change { port, .. } => self.change_port(port, now),
            // Settings follow `config`, the rest waits for a restart.
            Step::Switch { .. } => Ok(()),
            Step::Add { port, .. } => self.open((**port).clone(), now),
        }
    }

    /// Ends the workers and closes the ports, so that another process can resume with their
    /// devices. After that this process can only end. Returns whether all workers have ended: one
    /// that hangs may still use a device.
    pub(crate) fn give_up(&mut self) -> bool {
        let mut have_ended = false;
        closing::at_once(|| {
            have_ended = self.switch.stop();
            self.ports.hand_over(&self.switch.ports());
            // The egress queues go with the switch.
            let none = SwitchOptions { workers: Vec::new(), ..SwitchOptions::default() };
            self.switch = Switch::stepped(none);
        });
        have_ended
    }

    fn close(&mut self, name: &str, now: Instant) -> Result<(), String> {
        let found = self.ports.find(name);
        let Some(name) = found.map(|(name, _)| name.clone()) else { return Ok(()) };
        let addresses = team::addresses_of(&self.ports, &self.switch, &name);
        let running = self.ports.remove(&name);
        self.captures.fail(&name, "the port was closed");
        // No port may still mirror to this number, which the next port gets.
        let mut done = self.settle_around(name.as_str(), now);
        if let Some(RunningPort { device: PortDevice::Open(open), .. }) = running
            && let Err(error) = self.switch.remove_port(open.id)
        {
            self.journal.note(Level::ERROR, now, format!("port {name}: {error}"));
            done = Err(error.to_string());
        }
        team::forget(&self.ports, &addresses);
        // It could not be opened with them yet.
        self.ports.store().discard_left(name.as_str());
        self.journal.note(Level::INFO, now, format!("port {name} is removed"));
        self.journal.forget(name.as_str());
        done
    }

    fn change_port(&mut self, port: &PortConfig, now: Instant) -> Result<(), String> {
        let store = self.ports.store();
        let Some(running) = self.ports.get_mut(&port.name) else { return Ok(()) };
        let done = running.change_team(port);
        if let Err(reason) = &done {
            self.journal.note(Level::WARN, now, format!("port {}: {reason}", port.name));
        }
        let mtu = port.mtu.filter(|mtu| running.config.mtu != Some(*mtu));
        running.config = port.clone();
        store.note_change(port);
        if let (Some(open), Some(mtu)) = (running.open_mut(), mtu) {
            match open.watch.set_mtu(mtu.0) {
                Ok(()) => open.mtu = open.watch.state().mtu,
                Err(problem) => {
                    self.journal.note(Level::WARN, now, format!("port {}: {problem}", port.name));
                    return Err(problem.to_string());
                }
            }
        }
        done
    }

    /// Opens a port, or keeps it as broken with the reason.
    ///
    /// # Errors
    ///
    /// Returns the reason if the device cannot be opened; the port is kept as broken.
    pub(super) fn open(&mut self, port: PortConfig, now: Instant) -> Result<(), String> {
        let known = self.ports.get(&port.name);
        let mut first_mac = known.and_then(|known| known.first_mac);
        let (device, done) = match self.try_open(&port, &mut first_mac, now) {
            Ok(open) => {
                let text = format!("port {} is open: {}", port.name, port.device());
                self.journal.note(Level::INFO, now, text);
                for text in &open.degraded {
                    tracing::warn!(target: "control::running::steps", "port {}: {text}", port.name);
                }
                (PortDevice::Open(Box::new(open)), Ok(()))
            }
            Err((reason, denied)) => {
                // Recorded once for the same reason.
                let known = self.ports.get(&port.name).and_then(RunningPort::closed);
                if known != Some(reason.as_str()) {
                    let text = format!("port {} is broken: {reason}", port.name);
                    self.journal.note(Level::ERROR, now, text);
                }
                (PortDevice::Closed { reason: reason.clone(), denied }, Err(reason))
            }
        };
        self.ports.put(RunningPort { config: port, device, first_mac });
        done
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
        let opened = self.ports.open_device(port);
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
            self.journal.note_of(Level::WARN, port.name.as_str(), now, text);
        }
        let settings = self.desired.settings(port, mtu, mac, self.ports.mirror_of(port));
        let is_vnic = port.role() == PortRole::Vnic && !port.device().is_guest();
        let announces = is_vnic && self.has_started;
        let own = settings.mac.filter(|_| announces);
        if let Some(own) = own {
            opened.device.live.announce(settings.announced().frames(own));
        }
        let id = self
            .switch
            .add_port(port.name.as_str(), opened.device, settings.clone())
            .and_then(|id| held.map_or(Ok(id), |mac| self.switch.hold_mac(id, mac).map(|()| id)))
            .map_err(|error| (error.to_string(), false))?;
        Ok(OpenPort {
            id,
            mtu,
            mac,
            degraded: opened.degraded,
            watch: opened.watch,
            home: None,
            announces: own.is_some(),
            settings,
            stations: Stations::default(),
            link_down: None,
            pins: Vec::new(),
            last: Sample::default(),
        })
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
            if let Some(open) = running.open() {
                let config = &running.config;
                let mirror = self.ports.mirror_of(config);
                let settings = self.desired.settings(config, open.mtu, open.mac, mirror);
                if settings != open.settings {
                    changes.push((name.clone(), open.id, settings));
                }
            }
        }
        for (name, id, settings) in changes {
            if let Err(error) = self.switch.change_port(id, settings.clone()) {
                self.journal.note(Level::ERROR, now, format!("port {name}: {error}"));
                done = Err(format!("port {name}: {error}"));
            }
            // A worker that turned out to hang has the message, and will process it.
            let is_told = done.is_ok() || has_settings(&self.switch, id, &settings);
            let port = self.ports.get_mut(&name).filter(|_| is_told);
            if let Some(open) = port.and_then(RunningPort::open_mut) {
                open.announces |= open.settings.mac != settings.mac;
                open.settings = settings;
            }
        }
        done
    }
}

fn has_settings(switch: &Switch, id: PortId, settings: &PortSettings) -> bool {
    switch.ports().iter().any(|port| port.id == id && port.settings == *settings)
}
