//! `fleet validate`: makes the agents of two hosts run an experiment of the lab, and returns the
//! receiver's report.
//!
//! As with `fleet mtu`, request and answers go through etcd. First the sender's agent listens, then
//! the receiver's agent runs the experiment with its own switch. A host's answer is not trusted,
//! and is only shown.

use crate::Name;
use crate::now;
use crate::request_lease::{self, LEASE, RequestLease, run_out};
use crate::shortened::told_by;
use crate::store::{Experiment, ExperimentAnswer, ExperimentRequest, Extent, Outcome, Store};
use problem::Problem;
use problem::token::Token;
use std::time::{Duration, Instant};

/// The interval between reads of the answers.
const LOOK: Duration = Duration::from_millis(200);
/// How long a host may take to begin its part. The last experiment's process may have to end first.
const READY: Duration = Duration::from_secs(30);
/// How long the outcome may take. An agent ends its part earlier.
const LONGEST: Duration = Duration::from_mins(125);

/// An experiment that is asked for.
#[derive(Clone, Debug)]
pub struct Validate {
    /// The experiment of the lab to run.
    pub experiment: Experiment,
    /// Options of the measurement.
    pub extent: Extent,
    /// The host that sends.
    pub from: Name,
    /// The host that receives, and that toggles its switch's settings.
    pub to: Name,
    /// The person who asks for it.
    pub author: String,
}

impl Validate {
    /// Runs the experiment. `tell` gets lines that report progress. If `stop` returns true, the
    /// experiment ends and `None` is returned. The request is removed in any case, and the hosts
    /// end their parts.
    ///
    /// # Errors
    /// Fails if a host cannot take part or does not answer in time, another experiment runs, or
    /// etcd does not answer.
    pub fn run(
        &self,
        store: &Store,
        tell: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, Problem> {
        self.check(store)?;
        let token = Token::random()
            .map_err(|error| Problem::new("drawing a token at random").seen(error))?;
        let mut request = self.request()?;
        let request_lease = RequestLease::new(&store.etcd)?;
        let Some(written) = store.begin_experiment(&request, &token, request_lease.lease)? else {
            return Err(busy(store.experiment_request()?.document.as_ref()));
        };
        let mut running =
            Running { store, number: request.number.clone(), request_lease, tell, stop };

        let listens = |answer: &ExperimentAnswer| answer.sender;
        request.sender = match running.wait(&self.from, READY, listens)? {
            Answered::Stopped => return Ok(None),
            Answered::Late => return Err(late(&self.from)),
            Answered::With(at) => Some(at),
        };
        (running.tell)(&format!("host {} is ready to send", self.from));
        if !store.go_on_with_experiment(&request, running.request_lease.lease, written)? {
            return Err(run_out());
        }
        (running.tell)(&format!("host {} measures; this takes minutes", self.to));
        match running.wait(&self.to, LONGEST, |answer| answer.outcome.clone())? {
            Answered::With(outcome) => Ok(Some(outcome)),
            Answered::Stopped => Ok(None),
            Answered::Late => Err(late(&self.to)),
        }
    }

    /// Refuses hosts that cannot take part.
    fn check(&self, store: &Store) -> Result<(), Problem> {
        if self.from == self.to {
            return Err(Problem::new("a host cannot measure against itself")
                .seen(format!("--from {} --to {}", self.from, self.to))
                .wanted("two hosts")
                .remedy("on one host, use `millrace validate`"));
        }
        let hosts = store.hosts()?;
        [&self.from, &self.to].into_iter().try_for_each(|name| {
            let wanted = |problem: Problem| problem.wanted("an agent that reports, started with --lab-address");
            let Some(record) = hosts.iter().find(|record| record.host.name == *name) else {
                return Err(wanted(Problem::new(format!("there is no host {name}")).seen("no registration"))
                    .remedy("see `millrace fleet status` for the hosts' names"));
            };
            match &record.status {
                None => Err(wanted(Problem::new(format!("host {name} is away")).seen("no status of its agent"))
                    .remedy("start its agent")),
                Some(status) if status.lab.is_none() => {
                    Err(wanted(Problem::new(format!("host {name} takes part in no experiment")).seen("an agent without --lab-address"))
                        .remedy(format!(
                            "start the agent of {name} with --lab-address ADDRESS: its own address behind its switch"
                        )))
                }
                Some(_) => Ok(()),
            }
        })
    }

    fn request(&self) -> Result<ExperimentRequest, Problem> {
        Ok(ExperimentRequest {
            number: request_lease::number()?,
            author: self.author.clone(),
            since: now(),
            experiment: self.experiment,
            extent: self.extent.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            sender: None,
        })
    }
}

/// The result of waiting for a host.
enum Answered<T> {
    With(T),
    Late,
    Stopped,
}

/// A running experiment, with its request in etcd.
struct Running<'a> {
    store: &'a Store,
    number: String,
    request_lease: RequestLease<'a>,
    tell: &'a mut dyn FnMut(&str),
    stop: &'a dyn Fn() -> bool,
}

impl Running<'_> {
    /// Waits up to `timeout` for a host's answer from which `pick` returns something. Fails if the
    /// host reports that it cannot do its part, or its agent goes away.
    fn wait<T>(
        &mut self,
        host: &Name,
        timeout: Duration,
        pick: impl Fn(&ExperimentAnswer) -> Option<T>,
    ) -> Result<Answered<T>, Problem> {
        let (begun, mut seen) = (Instant::now(), false);
        loop {
            if (self.stop)() {
                return Ok(Answered::Stopped);
            }
            let (store, number) = (self.store, &self.number);
            let read = || store.experiment_answer(host, number);
            let answer = self.request_lease.read(read, self.tell, self.stop)?;
            if seen && answer.is_none() {
                return Err(gone(host));
            }
            seen |= answer.is_some();
            if let Some(problem) = answer.as_ref().and_then(|answer| answer.problem.as_ref()) {
                return Err(told_by(&format!("host {host}"), problem));
            }
            if let Some(found) = answer.as_ref().and_then(&pick) {
                return Ok(Answered::With(found));
            }
            let most = if seen { timeout } else { READY };
            if begun.elapsed() >= most {
                return Ok(Answered::Late);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn late(name: &Name) -> Problem {
    Problem::new(format!("host {name} did not do its part in time"))
        .seen("no answer of its agent, or none that ends the wait")
        .wanted("an agent that follows etcd, and whose --lab-address is there")
        .remedy("see `millrace fleet status` and the agent's log, and try again")
}

fn gone(name: &Name) -> Problem {
    Problem::new(format!("host {name} has left the experiment"))
        .seen("its agent has restarted or is away")
        .wanted("an agent that stays until the end")
        .remedy("see `millrace fleet status`, and try again")
}

fn busy(other: Option<&ExperimentRequest>) -> Problem {
    let by = other.map_or_else(
        || "one that has just ended".to_owned(),
        |it| {
            let ago = crate::ago(it.since, now());
            format!(
                "{} from {} to {}, by {}, begun {ago}",
                it.experiment, it.from, it.to, it.author
            )
        },
    );
    Problem::new("another experiment is running")
        .seen(by)
        .wanted("one experiment at a time")
        .remedy(format!(
            "wait until it has ended; one that was killed ends {} s later",
            LEASE.as_secs()
        ))
}
