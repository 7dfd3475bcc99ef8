//! The running state: the switch, its ports by name, and their configuration.
//!
//! Every change, from the file, the API or a signal, is a wanted [`Config`] that goes through
//! [`plan()`]; `enforce` carries the plan out step by step. One thread owns all of it (see
//! `commands`), so nothing here is locked.

mod acl;
mod addresses;
mod captures;
mod changes;
mod enforce;
mod entries;
mod fair_share;
mod links;
mod loads;
mod moves;
mod origin;
mod parallel_open;
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

use crate::event_log::EventLog;
use crate::settings;
use crate::state::Added;
use ::ports::Nanos;
use api::body::{Origin, StepBody};
use captures::Capturing;
use config::plan::{self, Step, plan};
use config::{Config, PortConfig, PortName, Section, nearest};
use datapath::{DropReason, PortCounters, PortId, PortSettings, Switch};
use devices::{OpenError, Opened, Opener, Watch};
use problem::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tracing::Level;
use wire::Mac;

/// The running switch and what is known about it.
pub struct Running {
    config: Config,
    /// The origins of ports that are not from the file.
    added: BTreeMap<PortName, Origin>,
    /// The configuration at startup, without ports.
    started: Config,
    switch: Switch,
    opener: Box<dyn Opener>,
    /// Opened devices whose ports are added next.
    ahead: BTreeMap<PortName, Result<Opened, OpenError>>,
    ports: BTreeMap<PortName, RunningPort>,
    /// The plan whose steps are being carried out.
    in_work: Option<enforce::InWork>,
    /// What to do between two steps; `None` while it is done.
    at_each_step: Option<enforce::AtEachStep>,
    /// The last capture on each port, running or ended.
    captures: BTreeMap<PortName, Capturing>,
    /// Shared with each capture's stream, to count them.
    capture_streams: Arc<()>,
    /// The wall clock at 0 of the workers' clock, which stands at one second when the switch
    /// starts.
    epoch: SystemTime,
    events: EventLog,
    vmmq: vmmq::Vmmq,
    /// By port name, if the port was reopened with another MTU: the MTU with which its guest was
    /// started.
    guest_mtus: BTreeMap<String, u16>,
    /// Why `[metrics]` or `[web]` is not served.
    listener_troubles: BTreeMap<Section, Problem>,
    /// How often ports that are not from the file were changed.
    kept_changes: u64,
    reloads: Reloads,
    /// The revision of the fleet that was applied in full last; none since the start, or after a
    /// failed step.
    fleet_revision: Option<u64>,
}

/// Results of rereading the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reloads {
    /// Times that it succeeded in full.
    pub(crate) done: u64,
    /// Times that the file was refused or a step failed.
    pub(crate) failed: u64,
    /// Whether the last time succeeded in full. The start counts as a success.
    pub(crate) last_succeeded: bool,
    /// When it last succeeded in full.
    pub(crate) success_at: SystemTime,
}

/// A port of the configuration.
struct RunningPort {
    config: PortConfig,
    device: PortDevice,
    /// The device's address when it was first opened.
    first_mac: Option<Mac>,
}

enum PortDevice {
    Open(Box<OpenPort>),
    /// Not open, with the reason.
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
    /// Front ends that had connected by the last poll.
    connections: u64,
    /// The NUMA node of its guest's memory, if known.
    home: Option<usize>,
    /// The settings last sent to the switch.
    settings: PortSettings,
    /// For an uplink with indirection tables: the vNICs that have one.
    stations: uplinks::Stations,
    /// Why the guest's link is down (`follow-uplink`).
    link_down: Option<String>,
    /// For a team: the addresses pinned to members, as last sent.
    pins: Vec<(Mac, String)>,
    /// The counters and rates of the last poll.
    last: Sample,
}

/// Drop reasons that are findings while recent.
const DROPS_TOLD: [DropReason; 4] =
    [DropReason::TooBig, DropReason::DhcpGuard, DropReason::RouterGuard, DropReason::IpGuard];

#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    counters: PortCounters,
    /// When drops for each reason in [`DROPS_TOLD`] were last seen.
    dropped_at: [Option<Instant>; DROPS_TOLD.len()],
    rates: api::body::RatesBody,
    /// Busy time of each queue, and its share of the time since the previous poll, in percent.
    busy: Vec<Nanos>,
    loads: Vec<f64>,
}

impl Running {
    /// Starts the switch and opens the ports. A port that cannot be opened is `broken`, and retried
    /// at each poll.
    pub fn start(
        config: Config,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        Running::start_with(config, Added::new(), opener, now)
    }

    /// Does the same, with the stored ports of the fleet and the API.
    pub(crate) fn start_with(
        config: Config,
        kept: Added,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        config.check()?;
        let switch = Switch::start(settings::of_switch(&config.switch)).map_err(|error| {
            Problem::new(error.to_string())
                .remedy("correct `workers` in [switch]; `lscpu -e` shows the cores")
        })?;
        let bare = Config { ports: Vec::new(), ..config.clone() };
        let mut running = Running {
            started: bare.clone(),
            config: bare,
            added: BTreeMap::new(),
            switch,
            opener,
            ahead: BTreeMap::new(),
            ports: BTreeMap::new(),
            in_work: None,
            at_each_step: None,
            captures: BTreeMap::new(),
            capture_streams: Arc::default(),
            epoch: SystemTime::now() - Duration::from_secs(1),
            events: EventLog::new(now),
            vmmq: vmmq::Vmmq::new(now),
            guest_mtus: BTreeMap::new(),
            listener_troubles: BTreeMap::new(),
            kept_changes: 0,
            fleet_revision: None,
            reloads: Reloads {
                done: 0,
                failed: 0,
                last_succeeded: true,
                success_at: SystemTime::now(),
            },
        };
        // Hold frames, so that those from ports already open reach ports that open later.
        running.switch.hold();
        running.reload_with(config, kept, now)?;
        running.switch.let_go();
        Ok(running)
    }

    /// The running configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The steps to a wanted configuration, without carrying them out.
    pub fn dry_run(&self, wanted: &Config) -> Result<Vec<Step>, Problem> {
        wanted.check()?;
        Ok(plan(&self.config, wanted))
    }

    /// Makes the API's wanted configuration the running one. Ports that do not differ are not
    /// touched; added ones belong to the API.
    pub fn reload(&mut self, wanted: Config, now: Instant) -> Result<Vec<StepBody>, Problem> {
        self.all_answer()?;
        let added = self.origins_of(&wanted);
        self.enforce(wanted, added, now)
    }

    /// Refuses while a worker does not answer, because no change would take effect.
    pub(crate) fn all_answer(&self) -> Result<(), Problem> {
        self.switch.all_answer().map_err(|error| {
            Problem::new(error.to_string()).wanted("a worker that ends its turn within 2 s").remedy(
                "wait, or restart the daemon; systemd with a watchdog restarts it by itself",
            )
        })
    }

    /// Keeps an event for `status` and the log.
    pub(crate) fn note(&mut self, level: Level, now: Instant, text: String) {
        self.events.note(level, now, text);
    }

    /// How often ports that are not from the file were changed. If this grows, the state on the
    /// disk is out of date.
    pub(crate) fn kept_changes(&self) -> u64 {
        self.kept_changes
    }

    /// Counts the result of rereading the file.
    pub(crate) fn note_reload(&mut self, succeeded: bool) {
        self.reloads.last_succeeded = succeeded;
        if succeeded {
            self.reloads.done += 1;
            self.reloads.success_at = SystemTime::now();
        } else {
            self.reloads.failed += 1;
        }
    }

    /// The results of rereading the file.
    pub(crate) fn reloads(&self) -> Reloads {
        self.reloads
    }

    /// When the switch started.
    pub(crate) fn started(&self) -> SystemTime {
        self.epoch + Duration::from_secs(1)
    }

    /// Records whether a section is served. The first failure is an event.
    pub(crate) fn note_listener(
        &mut self,
        section: Section,
        trouble: Option<Problem>,
        now: Instant,
    ) {
        let before = self.listener_troubles.remove(&section);
        match (&trouble, before) {
            (Some(problem), None) => self.note(Level::WARN, now, problem.to_string()),
            (None, Some(_)) => self.note(Level::INFO, now, section.served(true).to_owned()),
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

    /// The problem if no port could be opened for lack of a privilege.
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
                    "run as root or as the systemd unit, or run `setcap cap_net_admin,cap_net_raw+ep` on the binary",
                )
        })
    }

    /// Changed keys that take effect at the next start.
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
