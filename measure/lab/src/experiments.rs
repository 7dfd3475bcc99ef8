//! One small file per experiment: what is switched, its words, its proof. A new one is a new file
//! and a line here.

pub mod acl;
pub mod checksum;
pub mod connections;
pub mod hotplug;
pub mod iscsi;
pub mod itself;
pub mod jumbo;
pub mod ladder;
pub mod latency;
pub mod limits;
pub mod lso;
pub mod migration;
pub(crate) mod peers;
pub mod rsc;
pub mod storage;
pub mod sweep;
pub mod team;
pub mod vlan;
pub mod vmmq;
mod vnic;
pub mod vrss;
pub mod xdp;

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Arm, Experiment, Measure, StopRule};
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::port::Port;
use crate::report::{Case, Check};
use crate::site::Site;
use crate::topology::{Topology, Way};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Name of the arm with the feature, in JSON.
pub const ON: &str = "on";
/// Name of the arm without.
pub const OFF: &str = "off";
/// What each proof is called.
pub(crate) const PROOF: &str = "The arms were as labelled";

/// Something that is measured arm by arm. Topology, order, statistics and report are the same for
/// all.
#[derive(Debug)]
pub struct Feature {
    /// Key: `rsc`.
    pub name: &'static str,
    /// What people read above the report.
    pub title: &'static str,
    /// The arms, given the MTU in bytes: the one that should be better and the baseline; or steps,
    /// each on the one before; or a single one.
    pub(crate) arms: fn(u16) -> Vec<Arm>,
    /// Each arm stands on the one before it.
    pub(crate) steps: bool,
    /// The columns of the table.
    pub(crate) measures: &'static [Measure],
    /// Makes hosts of its own; its load has no one way through the switch.
    pub(crate) site: Option<MakeSite>,
    /// Which way the load runs.
    pub(crate) way: Way,
    /// There are two wires to the switch, whose uplink is a team.
    pub(crate) members: bool,
    /// A Linux bridge is measured beside it.
    pub(crate) bridge: bool,
    /// The receiver's kernel coalesces (GRO) what the switch gives it over a TAP.
    pub(crate) receiver_gro: bool,
    /// Whether round trips and other switches are measured too, and whether it can run in process:
    /// all of Microsoft's guide.
    pub(crate) whole_guide: bool,
    /// Brings an arm into force under running traffic, by its name; done when this returns.
    pub(crate) switch: fn(&mut Topology, &mut Daemon, &str) -> Result<(), LabError>,
    /// Brings an arm into force at the port of a switch that runs already; `None` where that cannot
    /// be done.
    pub(crate) toggle: Option<Toggle>,
    /// What is looked at before measuring. It leaves the first arm in force.
    pub(crate) checks: fn(&mut Topology, &mut Daemon) -> Result<Vec<Check>, LabError>,
    /// That each arm was what it says, out of the figures.
    pub(crate) proof: Option<Proof>,
    /// What a reader should know of this feature's numbers.
    pub(crate) note: Option<&'static str>,
}

impl Feature {
    /// One run of it.
    pub fn experiment(&self, mtu: u16, interval: Duration, stop: StopRule) -> Experiment {
        Experiment {
            name: self.name,
            arms: (self.arms)(mtu),
            steps: if self.steps { usize::MAX } else { 0 },
            measures: self.measures,
            warm_up: interval.max(Duration::from_millis(500)),
            settle: (interval / 4).max(Duration::from_millis(50)),
            interval,
            phases: Vec::new(),
            stop,
            truth: None,
        }
    }
}

/// What most features have alike: RSC's columns toward the vNIC, nothing to look at before and
/// nothing to prove after.
const PLAIN: Feature = Feature {
    name: "",
    title: "",
    arms: |_| Vec::new(),
    steps: false,
    measures: rsc::MEASURES,
    site: None,
    way: Way::ToVnic,
    members: false,
    bridge: false,
    receiver_gro: false,
    whole_guide: false,
    switch: |_, _, _| Ok(()),
    toggle: None,
    checks: |_, _| Ok(Vec::new()),
    proof: None,
    note: None,
};

/// Part of a figure that is as good as nothing.
const EQUAL_WITHIN: Option<f64> = Some(0.05);
/// Those of RSC, where no difference is hoped for.
const NO_WORSE: &[Measure] = &[
    Measure { equal_within: EQUAL_WITHIN, ..rsc::CPU },
    Measure { equal_within: EQUAL_WITHIN, ..rsc::CYCLES },
    Measure { equal_within: EQUAL_WITHIN, ..rsc::THROUGHPUT },
];

/// The columns of an experiment's table, by its key.
pub(crate) fn measures(experiment: &str) -> &'static [Measure] {
    match experiment {
        "sweep" | "connections" => sweep::MEASURES,
        "iscsi" => iscsi::MEASURES,
        "migration" => migration::MEASURES,
        "storage" => storage::MEASURES,
        "vmmq" => vmmq::MEASURES,
        "vrss" => vrss::MEASURES,
        _ => rsc::MEASURES,
    }
}

/// See [`Feature::site`].
pub(crate) type MakeSite = fn(&Options, &Interrupt) -> Result<Box<dyn Site>, LabError>;

/// See [`Feature::toggle`].
pub(crate) type Toggle = fn(&Port, &str) -> Result<(), LabError>;

/// Reads out of the figures that each arm was what it says; `None` where a figure is missing.
pub(crate) type Proof = fn(&Case) -> Option<Check>;

/// A proof's outcome.
fn proven(passed: bool, seen: String) -> Option<Check> {
    Some(Check { name: PROOF.into(), passed, seen })
}

/// What connections take to go on after ports were opened anew: TCP's shortest timeouts, doubled
/// twice.
pub(crate) const REOPENING: Duration = Duration::from_secs(1);

/// The two arms of most features.
fn on_off(on: impl Into<String>, off: impl Into<String>) -> Vec<Arm> {
    vec![Arm { name: ON.into(), label: on.into() }, Arm { name: OFF.into(), label: off.into() }]
}

/// Bulk connections: each sends as fast as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bulk {
    /// Connections at once.
    pub connections: u32,
    /// Bytes of one send or receive call (NTttcp's `-l`).
    pub buffer_bytes: u32,
}

/// NTttcp's `-l 64k`.
pub(crate) const BUFFER_BYTES: u32 = 64 * 1024;
/// Most threads at an end, and ports: NTttcp's default on Linux.
const THREADS: u32 = 16;

impl Bulk {
    /// Threads at each end, a port each: as many as share the connections evenly.
    pub(crate) fn threads(self) -> u32 {
        let even = (1..=THREADS).rev().find(|threads| self.connections.is_multiple_of(*threads));
        even.unwrap_or(1)
    }

    /// What the receiver (`r`) or the sender (`s`) runs, as NTttcp's users type it.
    pub(crate) fn command(self, role: char, at: SocketAddr) -> String {
        let (threads, bytes) = (self.threads(), self.buffer_bytes);
        let size = match bytes.is_multiple_of(1024) {
            true => format!("{}k", bytes / 1024),
            false => bytes.to_string(),
        };
        let (address, port, each) = (at.ip(), at.port(), self.connections / threads);
        format!(
            "millrace ntttcp --dialect linux -{role} {address} -p {port} -P {threads} -n 1 -l {each} -b {size} -t 0 -N"
        )
    }
}

/// What runs between sender and receiver while arms change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Bulk connections.
    Bulk(Bulk),
    /// A byte to and fro on one connection, one request at a time; beside it bulk connections, if
    /// any.
    RoundTrips(Option<Bulk>),
}

impl Load {
    /// So many connections of NTttcp's usual buffers.
    pub(crate) fn bulk(connections: u32) -> Load {
        Load::Bulk(Bulk { connections, buffer_bytes: BUFFER_BYTES })
    }

    /// How long its connections take to find out how fast each may be: all begin at once and lose
    /// frames.
    pub(crate) fn gathering(self) -> Duration {
        let connections = self.carried().map_or(0, |bulk| bulk.connections);
        Duration::from_millis(300) + Duration::from_millis(1) * connections
    }

    /// Its bulk connections.
    pub(crate) fn carried(self) -> Option<Bulk> {
        match self {
            Load::Bulk(bulk) => Some(bulk),
            Load::RoundTrips(beside) => beside,
        }
    }
}

/// A case under a plan whose arms, by their places, had these figures in each of so many rounds.
#[cfg(test)]
pub(crate) fn case_of(
    plan: &Experiment,
    rounds: usize,
    figures: impl Fn(usize, usize) -> crate::experiment::Values,
) -> Case {
    use crate::experiment::{Ended, Run, Sample};
    let sample = |(round, place): (usize, usize)| Sample {
        round,
        arm: plan.arms[place].name.clone(),
        started_s: 0.0,
        values: figures(round, place),
        usage: Vec::new(),
    };
    let samples = statistics::sequence(plan.arms.len(), rounds).map(sample).collect();
    let run = Run { samples, ended: Ended::Complete };
    Case::new(plan, crate::report::Setting::default(), run, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_connections_evenly() {
        for (connections, threads) in
            [(1, 1), (10, 10), (16, 16), (17, 1), (1000, 10), (10_000, 16)]
        {
            let bulk = Bulk { connections, buffer_bytes: 1 };
            assert_eq!(bulk.threads(), threads);
        }
    }
}
