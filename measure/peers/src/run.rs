//! Runs the comparison: every case, every round, every switch in turn (A B C C B A …). Prints a
//! line of progress for each sample.

use crate::case::Case;
use crate::measure::{Sample, Settings, measure};
use crate::peer::{Peer, Running, Setup, Uplink};
use crate::stop::Stop;
use crate::vnic::Vnic;
use anyhow::{Context, Result};
use distance::Distance;
use serde::{Serialize, Serializer};
use statistics::sequence;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a run measures, and on which cores.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    /// Switches to measure, Millrace first.
    pub(crate) peers: Vec<Peer>,
    /// Number of samples of each switch in each case.
    pub(crate) rounds: usize,
    /// Length of a measurement.
    pub(crate) interval: Duration,
    pub(crate) switch_core: usize,
    pub(crate) generator_core: usize,
    pub(crate) millrace: PathBuf,
}

/// A sample of one switch in one round, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) case: &'static str,
    #[serde(serialize_with = "name")]
    pub(crate) peer: Peer,
    pub(crate) round: usize,
    #[serde(flatten)]
    pub(crate) outcome: Outcome<Sample>,
}

/// A sample, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<S> {
    Sample(S),
    Failure(String),
}

impl<S> Outcome<S> {
    pub(crate) fn of(result: Result<S>) -> Outcome<S> {
        match result {
            Ok(sample) => Outcome::Sample(sample),
            Err(error) => Outcome::Failure(format!("{error:#}")),
        }
    }

    pub(crate) fn sample(&self) -> Option<&S> {
        match self {
            Outcome::Sample(sample) => Some(sample),
            Outcome::Failure(_) => None,
        }
    }
}

/// A running switch with the guests behind its vNICs. Fields are dropped in this order.
pub(crate) struct Started {
    pub(crate) vnics: [Vnic; 2],
    pub(crate) switch: Running,
    _directory: TempDir,
}

fn name<S: Serializer>(peer: &Peer, output: S) -> Result<S::Ok, S::Error> {
    output.serialize_str(peer.name())
}

impl Plan {
    /// Takes all samples, or those until an interruption.
    pub(crate) fn run(&self, distance: &Distance, stop: &Stop) -> Vec<Measurement> {
        let mut progress = Progress::new(self.rounds * self.pairs());
        let mut all = Vec::new();
        for case in &self.cases {
            let peers: Vec<Peer> =
                self.peers.iter().copied().filter(|peer| peer.runs(case)).collect();
            for (round, place) in sequence(peers.len(), self.rounds) {
                let peer = peers[place];
                let outcome = match has_failed(&all, case, peer) {
                    true => None,
                    false => Some(Outcome::of(self.sample(case, peer, distance, stop))),
                };
                if stop.is_set() {
                    return all;
                }
                progress.step(case, peer, round, outcome.as_ref());
                all.extend(outcome.map(|outcome| Measurement {
                    case: case.name,
                    peer,
                    round,
                    outcome,
                }));
            }
        }
        all
    }

    /// Returns the number of switches, summed over the cases.
    fn pairs(&self) -> usize {
        let run = |case: &Case| self.peers.iter().filter(|peer| peer.runs(case)).count();
        self.cases.iter().map(run).sum()
    }

    fn sample(&self, case: &Case, peer: Peer, distance: &Distance, stop: &Stop) -> Result<Sample> {
        let Started { vnics, switch, .. } = &mut self.start(case, peer, None, stop)?;
        let settings = Settings { case, interval: self.interval, switch, distance, stop };
        measure(vnics, &settings)
    }

    /// Starts a switch, and connects the guests behind both vNICs.
    pub(crate) fn start(
        &self,
        case: &Case,
        peer: Peer,
        uplink: Option<Uplink>,
        stop: &Stop,
    ) -> Result<Started> {
        let directory = tempfile::Builder::new().prefix("millrace-peers-").tempdir();
        let directory = directory.context("making a directory for the switch")?;
        let setup = Setup {
            directory: directory.path().to_owned(),
            switch_core: self.switch_core,
            generator_core: self.generator_core,
            millrace: self.millrace.clone(),
            uplink,
        };
        let switch = peer.start(case, &setup, stop)?;
        let [first, second] = &switch.connections;
        let connect = |connection: &UnixStream| {
            Vnic::start(connection.try_clone()?, case).context("the session fails")
        };
        let vnics = [connect(first)?, connect(second)?];
        Ok(Started { vnics, switch, _directory: directory })
    }
}

/// Returns whether a switch's first sample in this case failed; it is then skipped for the rest of
/// the case.
fn has_failed(all: &[Measurement], case: &Case, peer: Peer) -> bool {
    let mut here = all.iter().filter(|one| one.case == case.name && one.peer == peer);
    here.next().is_some_and(|first| matches!(first.outcome, Outcome::Failure(_)))
}

/// Prints each sample, and the remaining time, to standard error.
struct Progress {
    begin: Instant,
    done: usize,
    total: usize,
}

impl Progress {
    fn new(total: usize) -> Progress {
        Progress { begin: Instant::now(), done: 0, total }
    }

    fn step(&mut self, case: &Case, peer: Peer, round: usize, outcome: Option<&Outcome<Sample>>) {
        self.done += 1;
        let each = self.begin.elapsed().as_secs_f64() / self.done as f64;
        let left = each * (self.total - self.done) as f64;
        let seen = match outcome {
            Some(Outcome::Sample(sample)) => format!("{:.2} {}", sample.value, case.unit.name()),
            Some(Outcome::Failure(reason)) => format!("failed: {reason}"),
            None => return,
        };
        let (peer, round) = (peer.name(), round + 1);
        // A log that cannot be written does not stop the measurement.
        let _ = writeln!(
            std::io::stderr(),
            "{}: round {round}, {peer} {seen}, about {left:.0} s left",
            case.name
        );
    }
}
