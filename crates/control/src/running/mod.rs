//! What runs: the switch, its ports by name, and the configuration they came from.
//!
//! Every change, from the file, the API or a signal, comes in as a wanted [`Config`] and goes through [`plan()`]; `steps`
//! carries it out.

mod acl;
mod captures;
mod changes;
mod entries;
mod level;
mod links;
mod loads;
mod moves;
mod origin;
mod poll;
mod ports;
mod queues;
mod report;
mod rsc;
mod rss;
mod steps;
mod team;
mod trace;
mod uplinks;
mod vmmq;

use crate::Problem;
use crate::body::StepBody;
use crate::config::{Config, PortConfig, PortName, nearest};
use crate::daemon::Section;
use crate::devices::{Opener, Watch};
use crate::event_log::EventLog;
use crate::plan::{self, Step, plan};
use ::ports::Nanos;
use captures::Capturing;
use datapath::{DropReason, PortCounters, PortId, PortSettings, Switch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use wire::Mac;

/// The running switch and what is known about it.
pub struct Running {
    config: Config,
    /// Ports that the API has added; the others are the file's.
    api: BTreeSet<PortName>,
    /// What is no port's as the daemon was started with it: without ports.
    started: Config,
    switch: Switch,
    opener: Box<dyn Opener>,
    ports: BTreeMap<PortName, RunningPort>,
    /// The last capture at each port, also when it has ended.
    captures: BTreeMap<PortName, Capturing>,
    /// Shared with each capture's stream, to count them.
    capture_streams: Arc<()>,
    /// The wall clock at 0 of the workers' clock, which stands at one second when the switch starts.
    epoch: SystemTime,
    events: EventLog,
    vmmq: vmmq::Vmmq,
    /// By the name of a port that was opened anew with another MTU: the one that its guest was started with.
    guest_mtus: BTreeMap<String, u16>,
    /// Why `[metrics]` or `[web]` is not served, if it is not.
    listener_troubles: BTreeMap<Section, Problem>,
    /// How many times the API's ports were changed.
    kept_changes: u64,
    reloads: Reloads,
}

/// How it went when the file was read again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reloads {
    /// Times that all of it was done.
    pub(crate) done: u64,
    /// Times that it was refused, or that a step failed.
    pub(crate) failed: u64,
    /// Whether the last time was one of the first kind. The start counts as one.
    pub(crate) last_succeeded: bool,
    /// When that was last so.
    pub(crate) success_at: SystemTime,
}

/// A port of the configuration.
struct RunningPort {
    config: PortConfig,
    device: PortDevice,
    /// The address that its device had when it was opened for the first time.
    first_mac: Option<Mac>,
}

enum PortDevice {
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
    /// Front ends that had connected at the last look.
    connections: u64,
    /// The NUMA node of its guest's memory, if known.
    home: Option<usize>,
    /// What the switch was told last.
    settings: PortSettings,
    /// Where it is an uplink with tables of its own: whose they are.
    stations: uplinks::Stations,
    /// Why its guest is to see its link down, where it is (`follow-uplink`).
    link_down: Option<String>,
    /// Where it is a team: the addresses pinned to members, as it was told last.
    pins: Vec<(Mac, String)>,
    /// The counters and rates of the last look.
    last: Sample,
}

/// Drops that are findings as long as they are recent.
const DROPS_TOLD: [DropReason; 4] =
    [DropReason::TooBig, DropReason::DhcpGuard, DropReason::RouterGuard, DropReason::IpGuard];

#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    counters: PortCounters,
    /// When drops of each reason of [`DROPS_TOLD`] were seen last.
    dropped_at: [Option<Instant>; DROPS_TOLD.len()],
    rates: crate::body::RatesBody,
    /// Busy time of each queue, and its share of the time since the look before, in percent.
    busy: Vec<Nanos>,
    loads: Vec<f64>,
}

impl Running {
    /// Starts the switch and opens the ports. A port that does not open is `broken`, and tried again at each look.
    pub fn start(
        config: Config,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        Running::start_with(config, Vec::new(), opener, now)
    }

    /// The same with the ports that the API had added, as the state has kept them.
    pub fn start_with(
        config: Config,
        kept: Vec<PortConfig>,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        config.check()?;
        let switch = Switch::start(config.switch.options()).map_err(|error| {
            Problem::new(error.to_string())
                .remedy("correct `workers` in [switch]; `lscpu -e` shows the cores")
        })?;
        let bare = Config { ports: Vec::new(), ..config.clone() };
        let mut running = Running {
            started: bare.clone(),
            config: bare,
            api: BTreeSet::new(),
            switch,
            opener,
            ports: BTreeMap::new(),
            captures: BTreeMap::new(),
            capture_streams: Arc::default(),
            epoch: SystemTime::now() - Duration::from_secs(1),
            events: EventLog::new(now),
            vmmq: vmmq::Vmmq::new(now),
            guest_mtus: BTreeMap::new(),
            listener_troubles: BTreeMap::new(),
            kept_changes: 0,
            reloads: Reloads {
                done: 0,
                failed: 0,
                last_succeeded: true,
                success_at: SystemTime::now(),
            },
        };
        // A frame from a port that is open already finds its way to one that is not open yet.
        running.switch.hold();
        running.reload_with(config, kept, now)?;
        running.switch.let_go();
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

    /// Makes a configuration that the API wants the one in force. Ports that do not differ are not touched; those that come
    /// are the API's.
    pub fn reload(&mut self, wanted: Config, now: Instant) -> Result<Vec<StepBody>, Problem> {
        self.all_answer()?;
        let api = self.api_names(&wanted);
        self.enforce(wanted, api, now)
    }

    /// Makes this the configuration in force. Where a worker hangs, what its steps do not reach is reached once it answers.
    fn enforce(
        &mut self,
        wanted: Config,
        api: BTreeSet<PortName>,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        let steps = self.dry_run(&wanted)?;
        for step in &steps {
            changes::log(&self.config, &wanted, step);
        }
        let kept = self.api_ports();
        self.config = wanted;
        self.api = api;
        self.kept_changes += u64::from(self.api_ports() != kept);
        let taken = steps.into_iter().map(|step| {
            let done = self.carry_out(&step, now);
            let settled = self.settle(now);
            StepBody::taken(step, done.and(settled))
        });
        let taken = taken.collect();
        self.settle_vnics(now);
        self.settle_pins();
        Ok(taken)
    }

    /// Refuses while a worker does not answer: no change would be in force.
    pub(crate) fn all_answer(&self) -> Result<(), Problem> {
        self.switch.all_answer().map_err(|error| {
            Problem::new(error.to_string())
                .wanted("a worker that ends its turn within 2 s")
                .remedy("wait, or restart the daemon; where systemd runs it with a watchdog, it restarts it by itself")
        })
    }

    /// Keeps an event for `status` and the log.
    pub(crate) fn note(&mut self, now: Instant, text: String) {
        self.events.note(now, text);
    }

    /// How many times the API's ports were changed: the state on the disk is another one where this is.
    pub(crate) fn kept_changes(&self) -> u64 {
        self.kept_changes
    }

    /// Counts how it went when the file was read again.
    pub(crate) fn note_reload(&mut self, succeeded: bool) {
        self.reloads.last_succeeded = succeeded;
        if succeeded {
            self.reloads.done += 1;
            self.reloads.success_at = SystemTime::now();
        } else {
            self.reloads.failed += 1;
        }
    }

    /// How often the file was read again, and how it went.
    pub(crate) fn reloads(&self) -> Reloads {
        self.reloads
    }

    /// When the switch started.
    pub(crate) fn started(&self) -> SystemTime {
        self.epoch + Duration::from_secs(1)
    }

    /// Whether a section is served. The first time that it is not is an event.
    pub(crate) fn note_listener(
        &mut self,
        section: Section,
        trouble: Option<Problem>,
        now: Instant,
    ) {
        let before = self.listener_troubles.remove(&section);
        match (&trouble, before) {
            (Some(problem), None) => self.note(now, problem.to_string()),
            (None, Some(_)) => self.note(now, section.served(true).to_owned()),
            _ => {}
        }
        self.listener_troubles.extend(trouble.map(|problem| (section, problem)));
    }

    /// Ports that are not open, each with its reason.
    pub(crate) fn closed_ports(&self) -> Vec<(String, String)> {
        let closed = self.ports.iter().filter_map(|(name, port)| match &port.device {
            PortDevice::Closed { reason, .. } => Some((name.to_string(), reason.clone())),
            PortDevice::Open(_) => None,
        });
        closed.collect()
    }

    /// No port could be opened because this process may not: what would help.
    pub fn denied(&self) -> Option<Problem> {
        let mut reasons = self.ports.values().map(|port| match &port.device {
            PortDevice::Closed { reason, denied: true } => Some(reason),
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

    /// Keys that were changed and take effect when the daemon starts again.
    fn restart_needed(&self) -> Vec<String> {
        plan::restart_keys(&self.started, &self.config)
    }

    fn no_such_port(&self, name: &str) -> Problem {
        let names: Vec<&str> = self.ports.keys().map(PortName::as_str).collect();
        let remedy = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`millrace port list` shows all ports".to_owned(),
        };
        let wanted =
            if names.is_empty() { "there are no ports yet".to_owned() } else { names.join(", ") };
        Problem::new(format!("there is no port {name}")).seen(name).wanted(wanted).remedy(remedy)
    }
}
