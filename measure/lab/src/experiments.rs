//! One small file per experiment: what is switched, its words, its proof. A new one is a new file
//! and a line here.

pub mod acl;
pub mod checksum;
pub mod connections;
pub mod hotplug;
pub mod iscsi;
pub mod jumbo;
pub mod ladder;
pub mod limits;
pub mod lso;
pub mod migration;
pub mod rsc;
pub mod self_test;
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
use crate::interrupt::Interrupt;
use crate::load::Way;
use crate::measure::{GUIDE, Measure};
use crate::options::Options;
use crate::plan::{Arm, Plan, StopRule};
use crate::port::Port;
use crate::report::{Case, Check};
use crate::site::Site;
use crate::topology::Topology;
use std::time::Duration;

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
    pub fn experiment(&self, mtu: u16, interval: Duration, stop: StopRule) -> Plan {
        Plan {
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
    measures: GUIDE,
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

/// The columns of an experiment's table, by its key.
pub(crate) fn measures(experiment: &str) -> &'static [Measure] {
    match experiment {
        "sweep" | "connections" => sweep::MEASURES,
        "iscsi" => iscsi::MEASURES,
        "migration" => migration::MEASURES,
        "storage" => storage::MEASURES,
        "vmmq" => vmmq::MEASURES,
        "vrss" => vrss::MEASURES,
        _ => GUIDE,
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
