//! The [`Experiment`] trait, which each file in `experiments` implements: what the arms are, how
//! one of them is brought into force, and what proves that it was.
//!
//! Hosts, the order of the arms, statistics and the report are the same for all experiments. An
//! experiment is measured over a [`Topology`] of namespaces unless it has a [`Site`] of its own.

use crate::LabError;
use crate::daemon::Daemon;
use crate::interrupt::Interrupt;
use crate::measure::{GUIDE, Measure};
use crate::options::Options;
use crate::plan::{Arm, Plan, StopRule};
use crate::report::{Case, Check};
use crate::running::Toggle;
use crate::site::Site;
use crate::topology::{Setup, Topology, Wiring};
use std::fmt::Debug;
use std::time::Duration;

/// Name of the check that a [`Proof`] returns.
pub(crate) const PROOF: &str = "The arms were as labelled";

/// An experiment as data: its words, its columns and its hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    /// Key in JSON and on the command line: `rsc`.
    pub(crate) name: &'static str,
    /// Title above the report.
    pub(crate) title: &'static str,
    /// Whether each arm is a step that includes the one before it.
    pub(crate) steps: bool,
    /// Columns of the table.
    pub(crate) measures: &'static [Measure],
    /// What a reader should know of these numbers.
    pub(crate) note: Option<&'static str>,
    /// Hosts and links that the topology has.
    pub(crate) wiring: Wiring,
    /// Whether this is Microsoft's whole guide, which also measures round trips and other switches
    /// and can run in one process.
    pub(crate) whole_guide: bool,
}

impl Description {
    /// What most experiments share: the guide's columns, toward the vNIC.
    pub(crate) const PLAIN: Description = Description {
        name: "",
        title: "",
        steps: false,
        measures: GUIDE,
        note: None,
        wiring: Wiring::PLAIN,
        whole_guide: false,
    };
}

/// Creates a site that one experiment alone uses. It is called while the process has one thread.
pub(crate) type MakeSite = fn(&Options, &Interrupt) -> Result<Box<dyn Site>, LabError>;

/// Reads from the figures whether each arm was what its label says. Returns `None` if a figure is
/// missing.
pub(crate) type Proof = fn(&Case) -> Option<Check>;

/// Something that is measured arm by arm.
pub(crate) trait Experiment: Debug + Sync {
    /// Returns its words, columns and hosts.
    fn description(&self) -> Description;

    /// Returns the arms at an MTU in bytes: the one that should be better, then the baseline; or
    /// steps from the ground up; or a single arm. Empty if the campaign names them.
    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        Vec::new()
    }

    /// Returns how to create a site with hosts of its own. Such a load has no one way through the
    /// switch.
    fn site(&self) -> Option<MakeSite> {
        None
    }

    /// Brings an arm into force under running traffic; it is in force on return.
    fn switch(&self, _: &mut Topology, _: &mut Daemon, _arm: &str) -> Result<(), LabError> {
        Ok(())
    }

    /// Returns the route of the frames in an arm of its own, and whether the kernel coalesces them
    /// before the switch.
    fn setup(&self, _arm: &str) -> Setup {
        Setup::OWN
    }

    /// Whether connections are opened anew for each arm, because those of one arm would begin the
    /// next one differently.
    fn opens_anew(&self) -> bool {
        false
    }

    /// Returns how an arm is brought into force at one port of a running switch; `None` if that is
    /// not possible.
    fn toggle(&self) -> Option<Toggle> {
        None
    }

    /// Whether its arms change nothing at a switch, so that it can be measured between existing
    /// hosts as they are.
    fn changes_nothing(&self) -> bool {
        false
    }

    /// Returns the MTU, in bytes, for which an arm's connections between existing hosts limit their
    /// segments. They are opened anew for an arm with another limit. `None` leaves them to TCP.
    fn segments_for(&self, _arm: &str) -> Option<u16> {
        None
    }

    /// Whether its load runs one way through a switch, which the report then names.
    fn has_way(&self) -> bool {
        self.site().is_none()
    }

    /// Runs the checks that precede measuring, and leaves the first arm in force.
    fn checks(&self, _: &mut Topology, _: &mut Daemon) -> Result<Vec<Check>, LabError> {
        Ok(Vec::new())
    }

    /// Returns how the figures prove that each arm was in force; `None` if nothing has to be
    /// proven.
    fn proof(&self) -> Option<Proof> {
        None
    }

    /// Returns the plan of one run.
    fn plan(&self, mtu: u16, interval: Duration, stop: StopRule) -> Plan {
        let Description { name, steps, measures, .. } = self.description();
        Plan {
            name,
            arms: self.arms(mtu),
            steps: if steps { usize::MAX } else { 0 },
            measures,
            warm_up: interval.max(Duration::from_millis(500)),
            settle: (interval / 4).max(Duration::from_millis(50)),
            interval,
            phases: Vec::new(),
            stop,
            truth: None,
        }
    }
}

/// Returns a proof's outcome.
pub(crate) fn proven(passed: bool, seen: String) -> Option<Check> {
    Some(Check { name: PROOF.into(), passed, seen })
}
