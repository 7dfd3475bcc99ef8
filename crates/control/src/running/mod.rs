//! What runs: the switch, its ports by name, and the configuration they came from.
//!
//! Every change, from the file, the API or a signal, comes in as a wanted [`Config`] and goes through [`plan`]. After
//! each step [`settle`](Running::settle) tells the switch what every open port shall be, so that a mirror that comes or
//! goes, or a device whose MTU changed, needs no care of its own.

mod look;
mod report;
mod rsc;

use crate::Problem;
use crate::config::{Config, PortConfig, PortName, SwitchConfig};
use crate::devices::{Opener, Watch};
use crate::journal::Journal;
use crate::plan::{self, Step, plan};
use datapath::{PortCounters, PortId, PortSettings, PortState, Switch};
use std::collections::BTreeMap;
use std::time::Instant;
use wire::Mac;

/// The running switch and what is known about it.
pub struct Running {
    config: Config,
    /// `[switch]` as the workers were started with it.
    started: SwitchConfig,
    switch: Switch,
    opener: Box<dyn Opener>,
    ports: BTreeMap<PortName, Live>,
    journal: Journal,
}

/// A port of the configuration.
struct Live {
    config: PortConfig,
    place: Place,
}

enum Place {
    Open(Box<OpenPort>),
    /// Not open, and why.
    Closed {
        reason: String,
        denied: bool,
    },
}

/// A port in the switch.
struct OpenPort {
    id: PortId,
    /// The device's own MTU, in bytes.
    mtu: u16,
    mac: Option<Mac>,
    degraded: Vec<String>,
    watch: Box<dyn Watch>,
    /// What the switch was told last.
    settings: PortSettings,
    /// What the switch was told last about the link.
    state: PortState,
    /// The counters and rates of the last look.
    last: Sample,
}

#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    counters: PortCounters,
    rates: crate::body::RatesBody,
}

impl Running {
    /// Starts the switch and opens the ports. A port that does not open is `broken`, and tried again at each look.
    pub fn start(
        config: Config,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        config.check()?;
        let switch = Switch::start(config.switch.options()).map_err(|error| {
            Problem::new(error.to_string())
                .remedy("correct `workers` in [switch]; `lscpu -e` shows the cores")
        })?;
        let bare = Config { switch: config.switch.clone(), ports: Vec::new() };
        let mut running = Running {
            config: bare,
            started: config.switch.clone(),
            switch,
            opener,
            ports: BTreeMap::new(),
            journal: Journal::new(now),
        };
        running.reload(config, now)?;
        Ok(running)
    }

    /// What is in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The steps to a wanted configuration, without carrying them out.
    pub fn dry_run(&self, wanted: &Config) -> Result<Vec<Step>, Problem> {
        wanted.check()?;
        Ok(plan(&self.config, wanted))
    }

    /// Makes a wanted configuration the one in force. Ports that do not differ are not touched.
    pub fn reload(&mut self, wanted: Config, now: Instant) -> Result<Vec<Step>, Problem> {
        let steps = self.dry_run(&wanted)?;
        self.config = wanted;
        for step in &steps {
            self.carry_out(step, now);
            self.settle(now);
        }
        Ok(steps)
    }

    /// Takes one more port. Unlike a port of the file, one that does not open is refused.
    pub fn add(&mut self, port: PortConfig, now: Instant) -> Result<(), Problem> {
        let name = port.name.clone();
        if self.ports.contains_key(&name) {
            return Err(Problem::new(format!("port {name} exists"))
                .seen(&name)
                .wanted("a name no port has")
                .remedy(format!("choose another name, or `millrace port remove {name}` first")));
        }
        let mut wanted = self.config.clone();
        wanted.ports.push(port);
        self.reload(wanted, now)?;
        match self.ports.get(&name).map(|live| &live.place) {
            Some(Place::Closed { reason, .. }) => {
                let problem = Problem::new(format!("port {name} does not open")).seen(reason);
                self.remove(name.as_str(), now)?;
                Err(problem
                    .wanted("a device that can be opened")
                    .remedy("correct what was seen and add the port again"))
            }
            _ => Ok(()),
        }
    }

    /// Changes keys of one port: `change` is a JSON merge patch (RFC 7396) with the keys of the file.
    pub fn patch(
        &mut self,
        name: &str,
        change: &serde_json::Value,
        now: Instant,
    ) -> Result<Vec<Step>, Problem> {
        let port = self.config.port(name).ok_or_else(|| self.no_such_port(name))?;
        let merged = merge(port, change)?;
        if merged.name.as_str() != name {
            return Err(Problem::new(format!("port {name} cannot be renamed"))
                .seen(&merged.name)
                .wanted(name)
                .remedy("add a port of the other name and remove this one"));
        }
        let mut wanted = self.config.clone();
        wanted.ports.retain(|port| port.name.as_str() != name);
        wanted.ports.push(merged);
        self.reload(wanted, now)
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
        self.reload(wanted, now).map(drop)
    }

    /// No port could be opened because this process may not: what would help.
    pub fn denied(&self) -> Option<Problem> {
        let mut reasons = self.ports.values().map(|live| match &live.place {
            Place::Closed { reason, denied: true } => Some(reason),
            _ => None,
        });
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then(|| {
            Problem::new("no port could be opened: this process lacks a privilege")
                .seen(first)
                .wanted("CAP_NET_ADMIN, and CAP_NET_RAW for packet ports")
                .remedy(
                    "run as root or as the systemd unit, or `setcap cap_net_admin,cap_net_raw+ep` on the binary",
                )
        })
    }

    /// Keys of `[switch]` that were changed and take effect when the daemon starts again.
    fn restart_needed(&self) -> Vec<String> {
        plan::restart_keys(&self.started, &self.config.switch)
    }

    fn no_such_port(&self, name: &str) -> Problem {
        let names: Vec<&str> = self.ports.keys().map(PortName::as_str).collect();
        let near = names.iter().min_by_key(|other| strsim::damerau_levenshtein(name, other));
        let remedy = match near {
            Some(near) if strsim::damerau_levenshtein(name, near) <= 2 => {
                format!("did you mean `{near}`?")
            }
            _ => "`millrace port list` shows the ports there are".to_owned(),
        };
        let wanted =
            if names.is_empty() { "no port is there yet".to_owned() } else { names.join(", ") };
        Problem::new(format!("there is no port {name}")).seen(name).wanted(wanted).remedy(remedy)
    }

    fn carry_out(&mut self, step: &Step, now: Instant) {
        match step {
            Step::Remove { port, .. } => self.close(port, now),
            Step::Change { port, .. } => self.change(port, now),
            // Settings follow `config`, the rest waits for a restart.
            Step::Switch { .. } => {}
            Step::Add { port, .. } => self.open((**port).clone(), now),
        }
    }

    fn close(&mut self, name: &str, now: Instant) {
        let found = self.ports.iter().find(|(other, _)| other.as_str() == name);
        let Some(name) = found.map(|(name, _)| name.clone()) else { return };
        let live = self.ports.remove(&name);
        // No other port may still mirror to a number that the next port gets.
        self.settle(now);
        if let Some(Live { place: Place::Open(open), .. }) = live
            && let Err(error) = self.switch.remove_port(open.id)
        {
            self.journal.note(now, format!("port {name}: {error}"));
        }
        self.journal.note(now, format!("port {name} is removed"));
    }

    fn change(&mut self, port: &PortConfig, now: Instant) {
        let Some(live) = self.ports.get_mut(&port.name) else { return };
        let mtu = port.mtu.filter(|mtu| live.config.mtu != Some(*mtu));
        live.config = port.clone();
        if let (Place::Open(open), Some(mtu)) = (&mut live.place, mtu) {
            match open.watch.set_mtu(mtu.0) {
                Ok(()) => open.mtu = open.watch.look().mtu,
                Err(problem) => {
                    self.journal.note(now, format!("port {}: {problem}", port.name));
                }
            }
        }
    }

    /// Opens a port, or keeps it as broken with the reason.
    fn open(&mut self, port: PortConfig, now: Instant) {
        let name = port.name.clone();
        let place = match self.try_open(&port) {
            Ok(open) => {
                self.journal.note(now, format!("port {name} is open: {}", port.device()));
                Place::Open(Box::new(open))
            }
            Err((reason, denied)) => {
                self.journal.note(now, format!("port {name} is broken: {reason}"));
                Place::Closed { reason, denied }
            }
        };
        self.ports.insert(name, Live { config: port, place });
    }

    fn try_open(&mut self, port: &PortConfig) -> Result<OpenPort, (String, bool)> {
        let opened = self.opener.open(port).map_err(|error| (error.reason, error.denied))?;
        let (mtu, mac) = (opened.device.mtu, opened.device.mac);
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
            settings,
            state: PortState::Up,
            last: Sample::default(),
        })
    }

    fn settings(&self, port: &PortConfig, mtu: u16, mac: Option<Mac>) -> PortSettings {
        let mirror = port.mirror_to.as_ref().and_then(|target| self.ports.get(target));
        let mirror = match mirror.map(|live| &live.place) {
            Some(Place::Open(open)) => Some(open.id),
            _ => None,
        };
        port.settings(self.config.switch.rsc, mtu, mac, mirror)
    }

    /// Tells the switch what differs from what it was told last.
    fn settle(&mut self, now: Instant) {
        let mut changes = Vec::new();
        for (name, live) in &self.ports {
            if let Place::Open(open) = &live.place {
                let settings = self.settings(&live.config, open.mtu, open.mac);
                if settings != open.settings {
                    changes.push((name.clone(), open.id, settings));
                }
            }
        }
        for (name, id, settings) in changes {
            if let Err(error) = self.switch.change_port(id, settings.clone()) {
                self.journal.note(now, format!("port {name}: {error}"));
                continue;
            }
            if let Some(Live { place: Place::Open(open), .. }) = self.ports.get_mut(&name) {
                open.settings = settings;
            }
        }
    }
}

/// RFC 7396 on one level, which is all a port has.
fn merge(port: &PortConfig, change: &serde_json::Value) -> Result<PortConfig, Problem> {
    let wrong = || {
        Problem::new("the change is no object")
            .seen(change)
            .wanted("an object with keys of the port")
            .remedy("write {\"mtu\": 9000}; null takes a key away")
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
