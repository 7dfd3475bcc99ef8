//! Carries the steps of a plan out on the switch.
//!
//! After its steps of a kind [`settle_around`](Running::settle_around) sends the switch the settings
//! that they changed: those of their ports, and of the ports that mirror to them. At the end of a
//! plan, and with each poll, [`settle`](Running::settle) compares those of all open ports.

use super::port::{OpenPort, PortDevice, RunningPort};
use super::sample::Sample;
use super::stations::Stations;
use super::{Running, parallel_open, team};
use ::ports::{Device, closing, side_by_side};
use config::plan::Step;
use config::{PortConfig, PortName, PortRole};
use datapath::{NewPort, PortId, PortInfo, PortSettings, Switch, SwitchOptions};
use devices::{Opened, Watch};
use std::collections::BTreeSet;
use std::time::Instant;
use tracing::Level;
use wire::Mac;

impl Running {
    /// Carries out steps of one kind. Returns for each why it failed, at least in part.
    pub(super) fn carry_out(&mut self, steps: &[Step], now: Instant) -> Vec<Result<(), String>> {
        let began = Instant::now();
        let mut removed = Vec::new();
        let mut added = Vec::new();
        let mut done: Vec<Result<(), String>> = Vec::new();
        for step in steps {
            match step {
                Step::Remove { port, keys, reopens } => {
                    self.ports.remember_guest_mtu(port, keys);
                    let keeps_device =
                        *reopens && !keys.iter().any(|key| PortConfig::names_device(key));
                    removed.push((port.as_str(), keeps_device));
                }
                Step::Add { port, .. } => added.push(&**port),
                Step::Change { port, .. } => done.push(self.change_port(port, now)),
                // Settings follow `config`, the rest waits for a restart.
                Step::Switch { .. } => done.push(Ok(())),
            }
        }
        done.extend(self.close(&removed, now));
        done.extend(self.open(&added, now + began.elapsed()));
        done
    }

    /// Ends the workers and closes the ports, so that another process can resume with their
    /// devices. After that this process can only end. Returns whether all workers have ended: one
    /// that hangs may still use a device.
    pub(crate) fn give_up(&mut self) -> bool {
        self.end_with(|running| running.ports.hand_over(&running.switch.ports()))
    }

    /// Ends the workers and closes the ports for good. After that this process can only end.
    pub(crate) fn close_all(&mut self) {
        self.end_with(|running| running.ports.clear());
    }

    fn end_with(&mut self, leave: impl FnOnce(&mut Running)) -> bool {
        let mut have_ended = false;
        closing::at_once(|| {
            have_ended = self.switch.stop();
            leave(self);
            // The egress queues go with the switch.
            let none = SwitchOptions { workers: Vec::new(), ..SwitchOptions::default() };
            self.switch = Switch::stepped(none);
        });
        have_ended
    }

    /// Closes those of these ports that there are, all at the same time, and removes the devices of
    /// those that do not keep theirs. Returns why each was not closed.
    fn close(&mut self, names: &[(&str, bool)], now: Instant) -> Vec<Result<(), String>> {
        let closing: BTreeSet<&str> = names.iter().map(|(name, _)| *name).collect();
        let kept: BTreeSet<&str> =
            names.iter().filter(|(_, keeps)| *keeps).map(|(name, _)| *name).collect();
        let addresses = team::addresses_of(&self.ports, &self.switch, &closing);
        let closed: Vec<RunningPort> =
            closing.iter().filter_map(|name| self.ports.remove(name)).collect();
        if closed.is_empty() {
            return vec![Ok(()); names.len()];
        }
        let configs: Vec<PortConfig> = closed.iter().map(|port| port.config.clone()).collect();
        for port in &configs {
            self.captures.fail(&port.name, "the port was closed");
        }
        // No port may still mirror to these numbers, which the next ports get.
        let mut done = self.settle_around(&closing, now);
        let ids = closed.iter().filter_map(|port| Some(port.open()?.id)).collect();
        let began = Instant::now();
        let files = closing::collected(|| {
            if let Err(error) = self.switch.remove_ports(&ids) {
                self.journal.note(Level::ERROR, now, format!("closing ports: {error}"));
                done = Err(error.to_string());
            }
            drop(closed);
        });
        team::forget(&self.ports, &addresses);
        files.close_meanwhile(|| self.pause());
        let now = now + began.elapsed();
        for port in &configs {
            let name = &port.name;
            if !kept.contains(name.as_str())
                && let Err(problem) = self.ports.remove_device(port)
            {
                self.journal.note(Level::ERROR, now, format!("port {name}: {problem}"));
                done = Err(problem.to_string());
            }
            // It could not be opened with them yet.
            self.ports.store().discard_left(name.as_str());
            self.journal.note(Level::INFO, now, format!("port {name} is removed"));
            self.journal.forget(name.as_str());
        }
        vec![done; names.len()]
    }

    fn change_port(&mut self, port: &PortConfig, now: Instant) -> Result<(), String> {
        let store = self.ports.store();
        let Some(running) = self.ports.get_mut(&port.name) else { return Ok(()) };
        let done = running.change_team(port);
        if let Err(reason) = &done {
            self.journal.note(Level::WARN, now, format!("port {}: {reason}", port.name));
        }
        let changed = running.change_device(port);
        store.note_change(port);
        if let Err(problem) = changed {
            self.journal.note(Level::WARN, now, format!("port {}: {problem}", port.name));
            return Err(problem.to_string());
        }
        done
    }

    /// Opens ports, all at the same time, or keeps them as broken with the reason. Returns why each
    /// was not opened.
    pub(super) fn open(&mut self, ports: &[&PortConfig], now: Instant) -> Vec<Result<(), String>> {
        let began = Instant::now();
        if ports.len() > 1 {
            let ahead = parallel_open::apart(ports);
            let open = self.ports.open_ahead(&ahead);
            let opened = side_by_side::map_meanwhile(&ahead, |port| open(port), || self.pause());
            self.ports.keep_ahead(&ahead, opened);
        }
        let now = now + began.elapsed();
        let (mut prepared, mut new) = (Vec::new(), Vec::new());
        for port in ports {
            let known = self.ports.get(&port.name);
            let mut first_mac = known.and_then(|known| known.first_mac);
            let ready = self.prepare(port, &mut first_mac, now).map(|(ready, device)| {
                let (name, settings) = (port.name.to_string(), ready.settings.clone());
                new.push(NewPort { name, device, settings });
                ready
            });
            prepared.push((ready, first_mac));
        }
        let count = new.len();
        let ids: Vec<Result<PortId, String>> = match self.switch.add_ports(new) {
            Ok(ids) => ids.into_iter().map(|id| id.map_err(|error| error.to_string())).collect(),
            Err(error) => vec![Err(error.to_string()); count],
        };
        let mut ids = ids.into_iter();
        let mut results = Vec::new();
        for (port, (ready, first_mac)) in ports.iter().copied().zip(prepared) {
            let opened = ready.and_then(|ready| {
                let id = ids.next().unwrap_or_else(|| Err("the switch did not take it".to_owned()));
                let opened = id.and_then(|id| self.opened(ready, id));
                opened.map_err(|reason| (reason, false))
            });
            results.push(opened.as_ref().map(drop).map_err(|(reason, _)| reason.clone()));
            self.put(port, opened, first_mac, now);
        }
        results
    }

    /// Keeps a port with its device, or with the reason why that is not open.
    fn put(
        &mut self,
        port: &PortConfig,
        opened: Result<OpenPort, (String, bool)>,
        first_mac: Option<Mac>,
        now: Instant,
    ) {
        let device = match opened {
            Ok(open) => {
                let text = format!("port {} is open: {}", port.name, port.device());
                self.journal.note(Level::INFO, now, text);
                for text in open.degraded.iter().chain(open.watch.exposed()) {
                    tracing::warn!(target: "control::running::steps", "port {}: {text}", port.name);
                }
                PortDevice::Open(Box::new(open))
            }
            Err((reason, denied)) => {
                // Recorded once for the same reason.
                let known = self.ports.get(&port.name).and_then(RunningPort::closed);
                if known != Some(reason.as_str()) {
                    let text = format!("port {} is broken: {reason}", port.name);
                    self.journal.note(Level::ERROR, now, text);
                }
                PortDevice::Closed { reason, denied }
            }
        };
        self.ports.put(RunningPort { config: port.clone(), device, first_mac });
    }

    /// Opens a port's device.
    ///
    /// The device's address at its first opening counts as configured. A container can recreate its
    /// device with an address of its choice, for example the gateway's; from then on the port
    /// counts as one without an address.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be opened, and whether this process may not.
    fn prepare(
        &mut self,
        port: &PortConfig,
        first_mac: &mut Option<Mac>,
        now: Instant,
    ) -> Result<(Ready, Device), (String, bool)> {
        let opened = self.ports.open_device(port);
        let Opened { device, degraded, watch, earlier_mac } =
            opened.map_err(|error| (error.reason, error.denied))?;
        let (mtu, mut mac) = (device.mtu, device.mac);
        let held = earlier_mac.filter(|_| mac.is_none());
        if mac.is_some() {
            *first_mac = first_mac.or(earlier_mac).or(mac);
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
        let own = settings.mac.filter(|_| is_vnic && self.has_started);
        if let Some(own) = own {
            device.live.announce(settings.announced().frames(own));
        }
        let announces = own.is_some();
        Ok((Ready { mtu, mac, held, degraded, watch, settings, announces }, device))
    }

    /// Returns a port that the switch has.
    fn opened(&mut self, ready: Ready, id: PortId) -> Result<OpenPort, String> {
        let Ready { mtu, mac, held, degraded, watch, settings, announces } = ready;
        if let Some(mac) = held {
            self.switch.hold_mac(id, mac).map_err(|error| error.to_string())?;
        }
        Ok(OpenPort {
            id,
            mtu,
            mac,
            degraded,
            watch,
            home: None,
            announces,
            settings,
            stations: Stations::default(),
            link_down: None,
            front_ends: (0, false),
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

    /// Does this for these ports and those that mirror to them, whether they are still there or not.
    ///
    /// # Errors
    ///
    /// The last of the ports that could not be changed, with the reason.
    pub(super) fn settle_around(
        &mut self,
        names: &BTreeSet<&str>,
        now: Instant,
    ) -> Result<(), String> {
        let is_around = |other: &PortName, port: &RunningPort| {
            let mirror_to = port.config.mirror_to.as_ref();
            mirror_to.is_some_and(|target| names.contains(target.as_str()))
                || names.contains(other.as_str())
        };
        self.settle_those(is_around, now)
    }

    fn settle_those(
        &mut self,
        is_meant: impl Fn(&PortName, &RunningPort) -> bool,
        now: Instant,
    ) -> Result<(), String> {
        let (mut names, mut changes) = (Vec::new(), Vec::new());
        for (name, running) in self.ports.iter().filter(|(name, port)| is_meant(name, port)) {
            if let Some(open) = running.open() {
                let config = &running.config;
                let mirror = self.ports.mirror_of(config);
                let settings = self.desired.settings(config, open.mtu, open.mac, mirror);
                if settings != open.settings {
                    names.push(name.clone());
                    changes.push((open.id, settings));
                }
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let done = self.switch.change_ports(changes.clone());
        let done = done.map_err(|error| format!("{}: {error}", list(&names)));
        if let Err(text) = &done {
            self.journal.note(Level::ERROR, now, text.clone());
        }
        // A worker that turned out to hang has the message, and will process it.
        let infos = if done.is_ok() { Vec::new() } else { self.switch.ports() };
        for (name, (id, settings)) in names.iter().zip(changes) {
            let is_told = done.is_ok() || has_settings(&infos, id, &settings);
            let port = self.ports.get_mut(name).filter(|_| is_told);
            if let Some(open) = port.and_then(RunningPort::open_mut) {
                open.announces |= open.settings.mac != settings.mac;
                open.settings = settings;
            }
        }
        done
    }
}

/// A port whose device is open, before the switch has it.
struct Ready {
    mtu: u16,
    mac: Option<Mac>,
    /// The address that its guest had in an earlier process.
    held: Option<Mac>,
    degraded: Vec<String>,
    watch: Box<dyn Watch>,
    settings: PortSettings,
    announces: bool,
}

fn has_settings(infos: &[PortInfo], id: PortId, settings: &PortSettings) -> bool {
    infos.iter().any(|port| port.id == id && port.settings == *settings)
}

/// Names ports, at most a few.
fn list(names: &[PortName]) -> String {
    match names {
        [one] => format!("port {one}"),
        [one, ..] => format!("port {one} and {} more", names.len() - 1),
        [] => "no port".to_owned(),
    }
}
