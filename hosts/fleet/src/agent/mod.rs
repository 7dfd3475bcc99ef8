//! The agent of a host: follows etcd, gives the host's part to its switch, and reports the result.
//!
//! One thread works in rounds: read the desired state (`reading`), give it to the daemon
//! (`enforcing`), report the host's status (`reporting`). What cannot be reached is left for a
//! later round, and the switch stays as it is. A second thread watches etcd (`watcher`) and only
//! signals that there is something to read, so a lost event does no harm.

mod backoff;
mod claiming;
mod daemon;
mod enforcing;
mod experiment;
mod follow;
mod kept;
mod metrics;
pub(crate) mod mtu;
mod reading;
mod reporting;
mod watcher;
mod written;

use crate::configuration::Host;
use crate::etcd::{Access, Etcd, Lease};
use crate::store::{Revision, Status, Store};
use ::daemon::state::StateDirectory;
use api::body::FindingBody;
use backoff::Backoff;
use config::{MacAddress, PortName};
use daemon::Daemon;
pub use daemon::{LocalSwitch, Look, Switch};
use experiment::Bench;
pub use experiment::Lab;
use kept::Kept;
use metrics::Counts;
use mtu::Paths;
use problem::Problem;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use watcher::News;

/// The finding of a host that does not follow an etcd that went back to an older state.
pub(crate) const GONE_BACK: &str = "etcd_gone_back";

/// The interval between rounds while no news arrives.
const TURN: Duration = Duration::from_secs(1);

/// News is acted on after a random part of this time.
const SPREAD: Duration = Duration::from_millis(300);

/// What an agent works with.
pub struct Options {
    /// The host's name and labels.
    pub host: Host,
    /// How to reach etcd, and as which user.
    pub etcd: Arc<Access>,
    /// The directory in which the last state is kept.
    pub state_directory: PathBuf,
    /// Where to serve metrics; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where the responder for `fleet mtu` listens; none: this host is not probed.
    pub mtu_address: Option<SocketAddr>,
    /// What it takes to take part in experiments; none: this host takes part in none.
    pub lab: Option<Lab>,
}

struct Agent {
    options: Options,
    store: Store,
    daemon: Daemon,
    /// Where the last state is kept, locked for this agent.
    directory: StateDirectory,
    /// The last state, as on disk unless `unkept`.
    kept: Kept,
    /// The revision that was read last, so that it is not fetched again.
    revision: Option<Arc<Revision>>,
    /// The revision that etcd wants on this host.
    wanted: u64,
    /// The revision that the daemon has in force; 0: none, or not known yet.
    applied: u64,
    /// Whether the daemon has yet to be given the ports.
    pending: bool,
    /// When to offer the ports again, if the daemon refused them.
    retry: Option<Instant>,
    /// Why the wanted revision is refused on this host.
    refused: Option<Problem>,
    /// Why the desired state could not be read.
    unreadable: Option<Problem>,
    /// The steps that failed on the switch.
    failed: Option<Problem>,
    /// Claims to be given up once their ports are removed.
    leaving: Vec<(MacAddress, i64)>,
    /// Ports to be prepared for guests that are about to come.
    preparing: Vec<PortName>,
    /// Those of them that the switch has.
    prepared: Vec<PortName>,
    /// Findings about claims.
    claims: Vec<FindingBody>,
    /// Whether there may be something to read.
    unread: bool,
    /// When etcd was read last.
    read_at: Option<Instant>,
    /// Whether `kept` could not be written to disk; then no claim is given up.
    unkept: bool,
    /// While this host is in a step of a running roll-out: how often it writes its status for the
    /// gate.
    in_step: Option<Duration>,
    /// For reading etcd.
    backoff: Backoff,
    /// For reporting, separately: a document that cannot be read must not silence the host.
    reporting: Backoff,
    lease: Option<(Lease, Instant)>,
    reported: Option<(Status, Instant)>,
    registered: bool,
    /// The daemon's version at the last look.
    version: String,
    /// Frames that the daemon had dropped then, by reason; read while this host is in a step of a
    /// roll-out.
    drops: BTreeMap<String, u64>,
    findings: Vec<FindingBody>,
    /// What it did, for the metrics.
    counts: Counts,
    /// The host's part in `fleet mtu`.
    paths: Paths,
    /// The host's part in `fleet validate`.
    bench: Bench,
}

/// Runs until the process ends.
pub fn run(options: Options, switch: Box<dyn Switch>) -> Result<Infallible, Problem> {
    let (bell, news) = channel();
    let mut agent = Agent::new(options, switch, bell.clone())?;
    watcher::start(&agent.options.etcd, bell)?;
    let board = agent.options.metrics.map(metrics::start).transpose()?;
    loop {
        agent.turn(Instant::now());
        if let Some(board) = &board {
            board.show(agent.figures());
        }
        match news.recv_timeout(TURN) {
            Ok(first) => {
                // All hosts hear at once. The delay spreads their reads, and news that arrives
                // meanwhile shares one read.
                std::thread::sleep(SPREAD.mul_f64(fastrand::f64()));
                std::iter::once(first).chain(news.try_iter()).for_each(|it| agent.hear(it))
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The watcher has ended: etcd is then only read from time to time.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TURN),
        }
    }
}

impl Agent {
    fn new(
        options: Options,
        switch: Box<dyn Switch>,
        bell: Sender<News>,
    ) -> Result<Agent, Problem> {
        let directory = StateDirectory::make(&options.state_directory, kept::FILE)?;
        let (mut kept, trouble) = kept::read(&directory)?;
        if let Err(error) = experiment::clear(&options.state_directory) {
            tracing::warn!("files of an experiment that was broken off stay: {error}");
        }
        let unkept = kept.agent == 0;
        if unkept {
            kept.agent = fastrand::u64(1..);
        }
        if let Some(problem) = trouble {
            tracing::warn!("{problem}");
        }
        tracing::info!(
            "host {} ({}) starts with revision {} of the fleet",
            options.host.name,
            crate::configuration::labels(&options.host),
            kept.revision
        );
        Ok(Agent {
            store: Store::new(Etcd::new(Arc::clone(&options.etcd))?),
            daemon: Daemon::of(switch),
            directory,
            revision: None,
            wanted: kept.revision,
            applied: 0,
            pending: false,
            retry: None,
            refused: None,
            unreadable: None,
            failed: None,
            leaving: Vec::new(),
            preparing: Vec::new(),
            prepared: Vec::new(),
            claims: Vec::new(),
            unread: true,
            read_at: None,
            unkept,
            in_step: None,
            backoff: Backoff::default(),
            reporting: Backoff::default(),
            lease: None,
            reported: None,
            registered: false,
            version: String::new(),
            drops: BTreeMap::new(),
            findings: Vec::new(),
            counts: Counts::default(),
            paths: Paths::new(&options.host.name, options.mtu_address, bell.clone()),
            bench: Bench::new(
                &options.host.name,
                options.lab.clone(),
                &options.state_directory,
                bell,
            ),
            options,
            kept,
        })
    }

    fn turn(&mut self, now: Instant) {
        self.read(now);
        self.enforce(now);
        self.report(now);
        self.answer_mtu(now);
        self.answer_experiment(now);
    }

    fn hear(&mut self, news: News) {
        self.unread |= news != News::Answer;
        if let News::Compacted(revision) = news {
            tracing::info!(
                "etcd compacted its history before revision {revision}: reading all keys again"
            );
        }
    }

    /// Records that etcd did not answer, or refused.
    fn lost(&mut self, problem: &Problem, now: Instant) {
        let delay = self.backoff.failed(now);
        if self.backoff.is_first() {
            let revision = self.kept.revision;
            tracing::warn!("{problem}\nThe switch carries on with fleet revision {revision}.");
        } else {
            tracing::debug!("{problem}; next attempt in {delay:?}");
        }
    }

    fn reached(&mut self) {
        self.unreadable = None;
        if self.backoff.succeeded() {
            tracing::info!("etcd answers again");
        }
    }
}
