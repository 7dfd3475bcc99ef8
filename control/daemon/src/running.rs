//! The running state: the switch, its ports by name, and their configuration.
//!
//! Every change, from the file, the API or a signal, is a wanted [`Config`] that goes through
//! [`plan()`](config::plan::plan); `enforce` carries the plan out step by step. One thread owns all
//! of it (see `commands`), so nothing here is locked.
//!
//! Each part of it has a file of its own with what it knows and does by itself: `desired`, `ports`,
//! `captures`, `vmmq` and `journal`. A `report` reads them for the API. What takes several parts,
//! such as a step of a plan or a poll, is done by [`Running`].

pub(crate) mod acl;
mod addresses;
mod captures;
mod changes;
mod desired;
mod enforce;
mod entries;
mod fair_share;
mod flows;
mod history;
mod journal;
mod kernel_path;
mod links;
mod loads;
mod moves;
mod origin;
mod parallel_open;
pub(crate) mod pictures;
mod poll;
mod port;
mod ports;
pub(crate) mod queues;
mod reload;
mod report;
pub(crate) mod rsc;
pub(crate) mod rss;
mod sample;
mod single_port;
mod stations;
mod steps;
pub(crate) mod team;
pub(crate) mod trace;
mod uplinks;
mod vmmq;

use self::ports::Ports;
use crate::flows::Flows;
use crate::history::History;
use crate::page_keys::PageKeys;
use crate::settings;
use crate::state::Added;
use captures::Captures;
use config::{Config, Scale};
use datapath::Switch;
use desired::Desired;
use devices::Opener;
use journal::Journal;
pub(crate) use journal::Reloads;
use problem::Problem;
use report::Report;
use std::time::{Duration, Instant, SystemTime};
use vmmq::Vmmq;

/// The running switch and what is known about it.
pub struct Running {
    /// Handlers ask it for dry runs.
    pub(crate) desired: Desired,
    switch: Switch,
    /// By name; those in the switch with their devices.
    pub(crate) ports: Ports,
    pub(crate) captures: Captures,
    vmmq: Vmmq,
    /// What passed lately; the server writes it to the disk.
    pub(crate) history: History,
    flows: Flows,
    /// Handlers issue and end them.
    pub(crate) page_keys: PageKeys,
    /// How many findings there were, and when they were counted.
    findings: Option<(Instant, u64)>,
    /// The server and handlers note here what they did.
    pub(crate) journal: Journal,
    /// What to do between two steps; `None` while it is done.
    at_each_step: Option<enforce::AtEachStep>,
    /// Whether the ports of the start are open. Those are not announced: the network knows them.
    has_started: bool,
    /// Whether there is a kernel path.
    pub(crate) kernel_path: kernel_path::State,
}

impl Running {
    /// Starts the switch and opens the ports. A port that cannot be opened is `broken`, and retried
    /// at each poll.
    ///
    /// # Errors
    ///
    /// Fails if the workers cannot be started.
    pub fn start(
        config: Config,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        Running::start_with(config, Added::new(), opener, now)
    }

    /// Starts the switch with the stored ports of the fleet and the API as well.
    ///
    /// # Errors
    ///
    /// Fails if a rule is broken or the workers cannot be started.
    pub(crate) fn start_with(
        config: Config,
        kept: Added,
        opener: Box<dyn Opener>,
        now: Instant,
    ) -> Result<Running, Problem> {
        config.check()?;
        let mut switch = Switch::start(settings::of_switch(&config.switch)).map_err(|error| {
            Problem::new(error.to_string())
                .remedy("correct `workers` in [switch]; `lscpu -e` shows the cores")
        })?;
        let kernel_path = kernel_path::load(&config, &mut switch, &*opener);
        let started = SystemTime::now();
        let mut running = Running {
            desired: Desired::new(Config { ports: Vec::new(), ..config.clone() }),
            switch,
            ports: Ports::new(opener, Scale::of(&config.switch.workers)),
            // The workers' clock stands at one second when the switch starts.
            captures: Captures::new(started - Duration::from_secs(1)),
            vmmq: Vmmq::new(now),
            history: History::new(now, started),
            flows: Flows::default(),
            page_keys: PageKeys::default(),
            findings: None,
            journal: Journal::new(now, started),
            at_each_step: None,
            has_started: false,
            kernel_path,
        };
        // Hold frames, so that those from ports already open reach ports that open later.
        running.switch.hold();
        running.reload_with(config, kept, now)?;
        running.switch.let_go();
        running.has_started = true;
        Ok(running)
    }

    /// The running configuration.
    pub fn config(&self) -> &Config {
        self.desired.config()
    }

    /// Refuses while a worker does not answer, because no change would take effect.
    ///
    /// # Errors
    ///
    /// Fails with the worker that does not answer.
    pub(crate) fn all_answer(&self) -> Result<(), Problem> {
        self.switch.all_answer().map_err(|error| {
            Problem::new(error.to_string()).wanted("a worker that ends its turn within 2 s").remedy(
                "wait, or restart the daemon; systemd with a watchdog restarts it by itself",
            )
        })
    }

    /// Forgets learned addresses: all, or those of a port. A port that is not open has none.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub(crate) fn forget_macs(&mut self, port: Option<&str>) -> Result<(), Problem> {
        let Some(name) = port else {
            self.switch.forget_macs(None);
            return Ok(());
        };
        let open = self.ports.port(name)?.1.open().map(|open| open.id);
        open.into_iter().for_each(|id| self.switch.forget_macs(Some(id)));
        Ok(())
    }

    /// Reads the switch, for reports about it and its ports.
    pub(crate) fn report(&self) -> Report<'_> {
        Report::new(&self.desired, &self.ports, &self.switch)
    }
}
