//! The agent of a host: follows etcd, gives the host's part to its switch, and reports the result.
//!
//! One thread works in rounds: read the desired state (`reading`), give it to the daemon
//! (`enforcing`, with its states in `following`), report the host's status (`reporting`). What
//! cannot be reached is left for a later round, and the switch stays as it is. A second thread
//! watches etcd (`watcher`) and only signals that there is something to read, so a lost event does
//! no harm.

mod backoff;
mod claiming;
mod daemon;
mod enforcing;
mod experiment;
mod follow;
mod following;
mod kept;
mod metrics;
pub(crate) mod mtu;
mod reading;
mod reporting;
mod watcher;
mod written;

use crate::configuration::{Host, configuration};
use crate::etcd::{Access, Etcd};
use crate::store::{Desired, Phase, Revision, Status, Store};
use api::body::{FindingBody, Severity};
use claiming::{Claiming, Decision};
pub use daemon::{LocalSwitch, Look, Switch};
use daemon::{Seen, finding};
use enforcing::Enforcer;
pub(crate) use enforcing::GONE_BACK;
use experiment::Bench;
pub use experiment::Lab;
use follow::{Course, course};
use kept::{Disk, Kept};
use metrics::Counts;
use mtu::Paths;
use problem::Problem;
use reading::Reader;
use reporting::Reporter;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use watcher::News;

/// Interval between rounds while etcd reports no change.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// Largest delay before a round that a change in etcd causes. Each delay is a random part of it.
const MAX_READ_DELAY: Duration = Duration::from_millis(300);

/// Options of an agent.
pub struct Options {
    /// The host's name and labels.
    pub host: Host,
    /// How to reach etcd, and as which user.
    pub etcd: Arc<Access>,
    /// The directory in which the last state is kept.
    pub state_directory: PathBuf,
    /// The address at which metrics are served; `None` if they are not.
    pub metrics: Option<SocketAddr>,
    /// The address at which the responder for `fleet mtu` listens; `None` if this host is not
    /// probed.
    pub mtu_address: Option<SocketAddr>,
    /// Settings for taking part in experiments; `None` if this host takes part in none.
    pub lab: Option<Lab>,
}

struct Agent {
    options: Options,
    store: Store,
    /// The last state, on disk.
    disk: Disk,
    /// Reads the desired state, and remembers what was read last.
    reader: Reader,
    /// The claims on the host's ports.
    claims: Claiming,
    /// The switch.
    enforcer: Enforcer,
    /// Writes this host's registration and status to etcd.
    reporter: Reporter,
    /// Findings about this host.
    findings: Vec<FindingBody>,
    /// Counters for the metrics.
    counts: Counts,
    /// The host's part in `fleet mtu`.
    paths: Paths,
    /// The host's part in `fleet validate`.
    bench: Bench,
}

/// Runs the agent until the process ends.
///
/// # Errors
/// Fails if the state directory cannot be used, metrics cannot be served, or a thread cannot be
/// started.
pub fn run(options: Options, switch: Box<dyn Switch>) -> Result<Infallible, Problem> {
    let (news_sender, news) = channel();
    let mut agent = Agent::new(options, switch, news_sender.clone())?;
    watcher::start(&agent.options.etcd, news_sender)?;
    let board = agent.options.metrics.map(metrics::start).transpose()?;
    loop {
        agent.round(Instant::now());
        if let Some(board) = &board {
            board.show(agent.figures());
        }
        match news.recv_timeout(ROUND_INTERVAL) {
            Ok(first) => {
                // All hosts hear of a change at once. The delay spreads their reads, and one read
                // serves the changes that arrive meanwhile.
                std::thread::sleep(MAX_READ_DELAY.mul_f64(fastrand::f64()));
                std::iter::once(first).chain(news.try_iter()).for_each(|it| agent.reader.hear(it))
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The watcher has ended: etcd is then only read from time to time.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(ROUND_INTERVAL),
        }
    }
}

impl Agent {
    fn new(
        options: Options,
        switch: Box<dyn Switch>,
        news_sender: Sender<News>,
    ) -> Result<Agent, Problem> {
        let disk = Disk::open(&options.state_directory)?;
        if let Err(error) = experiment::clear(&options.state_directory) {
            tracing::warn!("files of an experiment that was broken off stay: {error}");
        }
        let (host, revision) = (&options.host, disk.kept().revision);
        tracing::info!(
            "host {} ({}) starts with revision {revision} of the fleet",
            host.name,
            crate::configuration::labels(host),
        );
        let (lab, directory) = (options.lab.clone(), &options.state_directory);
        Ok(Agent {
            store: Store::new(Etcd::new(Arc::clone(&options.etcd))?),
            disk,
            reader: Reader::new(revision),
            claims: Claiming::default(),
            enforcer: Enforcer::new(switch),
            reporter: Reporter::default(),
            findings: Vec::new(),
            counts: Counts::default(),
            paths: Paths::new(&host.name, options.mtu_address, news_sender.clone()),
            bench: Bench::new(&host.name, lab, directory, news_sender),
            options,
        })
    }

    fn round(&mut self, now: Instant) {
        self.read(now);
        self.enforce(now);
        self.report(now);
        self.answer_mtu(now);
        self.answer_experiment(now);
    }

    /// Reads the desired state, if there may be something new.
    fn read(&mut self, now: Instant) {
        if !self.reader.begin(now) {
            return;
        }
        match self.follow() {
            Ok(()) => self.reader.succeed(now),
            Err(problem) => self.reader.fail(problem, self.disk.kept().revision, now),
        }
    }

    /// Reads the desired state, and adopts it for this host if it is to be followed.
    fn follow(&mut self) -> Result<(), Problem> {
        // An agent that may not be this host does not act for it.
        self.register()?;
        let wanted = self.store.wanted()?;
        self.paths.hear(wanted.mtu.as_ref());
        self.bench.hear(&self.store, wanted.experiment.as_ref())?;
        let (read, kept) = (&wanted.desired, self.disk.kept());
        let mut next = kept.clone();
        let host = &self.options.host.name;
        let runs = |it: &&Desired| it.phase == Phase::Running && it.reaches(host);
        let running = read.document.as_ref().filter(runs);
        self.reader.in_step = running.map(|desired| reporting::fresh(desired.hosts.len()));
        (next.cluster, next.etcd_revision) = (read.cluster, read.etcd_revision);
        match course(kept, read, host) {
            Course::Hold(held) => {
                if kept.held.is_none() {
                    tracing::warn!("{}", held.why);
                    self.reporter.forget_lease();
                }
                next.held = Some(held);
            }
            Course::Follow(number) => {
                if kept.held.is_some() {
                    self.reader.forget_revision();
                    tracing::info!("follows etcd again, at revision {number} of the fleet");
                }
                (next.held, next.desired_at) = (None, read.mod_revision);
                self.reader.wanted = number;
                let revision = self.reader.revision(&self.store, number)?;
                let (claims, had) = (&wanted.claims, &next.claims);
                let decision = self.claims.claim(&self.store, host, &revision, claims, had)?;
                self.configure(&revision, &decision, &mut next);
            }
        }
        if self.disk.keep(next) {
            self.enforcer.change();
        }
        Ok(())
    }

    /// Makes the host's configuration. If that is refused the host stays as it is, and reports why.
    fn configure(&mut self, revision: &Revision, decision: &Decision, next: &mut Kept) {
        let host = &self.options.host;
        let made = configuration(&revision.model, host, &decision.claimed(&host.name));
        self.enforcer.judge(made.as_ref().err().cloned());
        if let Ok(config) = made {
            let class = crate::configuration::class_of(&revision.model, host).ok().flatten();
            next.workers = class.and_then(|class| class.workers.clone());
            next.ports = config.ports;
            next.revision = revision.number;
            next.claims.clone_from(&decision.carry);
        }
    }

    /// Gives the switch its ports if that is pending, and notes its state.
    fn enforce(&mut self, now: Instant) {
        let kept = self.disk.kept();
        let seen = match self.enforcer.enforce(kept, &self.reader, &mut self.counts, now) {
            Ok(seen) => seen,
            Err(problem) => {
                self.findings = vec![finding(Severity::Error, "daemon_unreachable", problem)];
                return;
            }
        };
        if self.enforcer.is_settled()
            && !self.disk.is_behind()
            && !self.claims.give_up(&self.store, &self.options.host.name)
        {
            self.reader.read_again();
        }
        self.enforcer.note(&seen, self.claims.preparing(), self.reader.in_step.is_some());
        self.findings = self.judge(seen);
    }

    /// Returns the findings of the agent, then those of the switch.
    fn judge(&self, seen: Seen) -> Vec<FindingBody> {
        let kept = self.disk.kept();
        let mut findings = Vec::new();
        findings.extend(self.enforcer.refusal());
        findings.extend(self.reader.finding());
        findings.extend(self.enforcer.failure());
        findings.extend(kept.held.as_ref().map(enforcing::gone_back));
        findings.extend(enforcing::certificates(&self.options.etcd));
        findings.extend_from_slice(self.claims.findings());
        findings.extend(self.enforcer.changed_on_host(&seen, kept));
        findings.extend(seen.findings(kept));
        findings
    }

    /// Writes the status if it has changed, and keeps the lease alive.
    fn report(&mut self, now: Instant) {
        if !self.reporter.is_due(now) {
            return;
        }
        match self.write_status(now) {
            Ok(()) => self.reporter.succeed(),
            Err(problem) => self.reporter.fail(&problem, self.reader.is_readable(), now),
        }
    }

    fn write_status(&mut self, now: Instant) -> Result<(), Problem> {
        self.counts.renewals += u64::from(self.reporter.keep_lease(&self.store, now)?);
        let lease = self.reporter.lease_or_grant(&self.store, now)?;
        self.register()?;
        let (host, written) = (&self.options.host.name, (self.status(), lease));
        self.reporter.write(&self.store, host, written, self.reader.in_step, now)
    }

    fn register(&mut self) -> Result<(), Problem> {
        self.reporter.register(&self.store, &self.options.host, self.disk.kept().agent)
    }

    fn status(&self) -> Status {
        Status {
            revision: self.enforcer.applied(),
            wanted: self.reader.wanted,
            findings: self.findings.clone(),
            prepared: self.enforcer.prepared.clone(),
            drops: self.enforcer.drops.clone(),
            mtu_responder: self.paths.responder(),
            lab: self.options.lab.as_ref().map(|lab| lab.address),
            version: self.enforcer.version.clone(),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            at: crate::now(),
        }
    }

    /// Writes the answer to a check of MTUs. If that fails it is tried again in a later round.
    fn answer_mtu(&mut self, now: Instant) {
        self.paths.listen(now);
        if !self.reporter.is_due(now) {
            return;
        }
        if let Err(problem) = self.paths.write_answer(&self.store, self.reporter.lease()) {
            self.reporter.put_off(now);
            tracing::debug!("the answer to a check of MTUs was not written: {problem}");
        }
    }

    /// Writes the answer to an experiment. If that fails it is tried again in a later round.
    fn answer_experiment(&mut self, now: Instant) {
        if !self.reporter.is_due(now) {
            return;
        }
        if let Err(problem) = self.bench.write_answer(&self.store, self.reporter.lease()) {
            self.reporter.put_off(now);
            tracing::debug!("the answer to an experiment was not written: {problem}");
        }
    }
}
