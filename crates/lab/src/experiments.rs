//! One small file per experiment: what is switched, its words, its proof. A new one is a new file and a line here.

pub mod jumbo;
pub mod latency;
pub mod lso;
pub mod rsc;

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Arm, Experiment, Measure, StopRule};
use crate::report::{Case, Check};
use crate::topology::{Topology, Way};
use std::time::Duration;

/// Name of the arm with the feature, in JSON.
pub const ON: &str = "on";
/// Name of the arm without.
pub const OFF: &str = "off";
/// What each proof is called.
const PROOF: &str = "The arms were what they say";

/// A feature that `millrace validate` proves. Topology, order, statistics and report are the same for all.
#[derive(Debug)]
pub struct Feature {
    /// Key: `rsc`.
    pub name: &'static str,
    /// What people read above the report.
    pub title: &'static str,
    /// What people read for the two arms, given the MTU in bytes.
    pub(crate) labels: fn(u16) -> [String; 2],
    /// The columns of the table.
    pub(crate) measures: &'static [Measure],
    /// Which way the load runs.
    pub(crate) way: Way,
    /// Whether round trips and the Linux bridge are measured too, and whether it can run in process: all of
    /// Microsoft's guide.
    pub(crate) whole_guide: bool,
    /// Turns it on or off under running traffic; done when this returns.
    pub(crate) switch: fn(&mut Topology, &Daemon, bool) -> Result<(), LabError>,
    /// What is looked at before measuring. It leaves the feature on.
    pub(crate) checks: fn(&mut Topology, &Daemon) -> Result<Vec<Check>, LabError>,
    /// That each arm was what it says, out of the figures.
    pub(crate) proof: fn(&Case) -> Option<Check>,
    /// What a reader should know of this feature's numbers.
    pub(crate) note: Option<&'static str>,
}

impl Feature {
    /// One run of it, on against off.
    pub fn experiment(&self, mtu: u16, interval: Duration, stop: StopRule) -> Experiment {
        let [on, off] = (self.labels)(mtu);
        Experiment {
            name: self.name,
            arms: vec![Arm { name: ON.into(), label: on }, Arm { name: OFF.into(), label: off }],
            measures: self.measures,
            warm_up: interval.max(Duration::from_millis(500)),
            settle: (interval / 4).max(Duration::from_millis(50)),
            interval,
            stop,
        }
    }
}

/// What runs between sender and receiver while arms change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// So many connections, each as fast as it can.
    Bulk(u32),
    /// One byte to and fro on one connection.
    RoundTrips,
}
