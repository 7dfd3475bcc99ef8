//! Where a whole validation runs: real hosts in namespaces, or everything in this process.
//!
//! A site sets up a fresh bench for each load, so that one connection count leaves nothing to the next. Sender, switch and
//! receiver are processes of this machine, each in a network namespace of its own.

use crate::between::{self, Between};
use crate::campaign::Point;
use crate::daemon::Daemon;
use crate::experiment::{Run, Step};
use crate::experiments::{Feature, Load};
use crate::host::{become_root, is_root};
use crate::in_process::{self, InProcess};
use crate::interrupt::Interrupt;
use crate::namespaces::Namespaces;
use crate::options::Options;
use crate::report::{Account, BenchFacts, Case, Check, Command};
use crate::topology::{Topology, Vnic, Way, congestion};
use crate::{LabError, iperf};

/// See the module.
pub(crate) enum Site {
    /// Sender, switch, bridge and receiver as processes of their own.
    Namespaces(Box<Hosts>),
    /// Two guests on memory ports.
    InProcess(&'static Feature),
    /// Hosts that there are already.
    Between(Box<between::Site>),
}

/// The processes of [`Site::Namespaces`]. The daemon's handle ends before its host.
pub(crate) struct Hosts {
    daemon: Daemon,
    topology: Topology,
    feature: &'static Feature,
    /// What iperf3 said, where it is installed.
    iperf: Option<iperf::Said>,
}

impl Site {
    /// Real hosts. Call it while this process has one thread.
    pub(crate) fn namespaces(
        feature: &'static Feature,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Site, LabError> {
        if !is_root() {
            become_root()?;
        }
        interrupt.watch_signals()?;
        let mut topology = Topology::new(feature, options)?;
        let daemon = Daemon::start(&mut topology, interrupt)?;
        Ok(Site::Namespaces(Box::new(Hosts { daemon, topology, feature, iperf: None })))
    }

    /// Hosts that there are already, and the switch between them.
    pub(crate) fn between(
        feature: &'static Feature,
        between: &Between,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Site, LabError> {
        interrupt.watch_signals()?;
        Ok(Site::Between(Box::new(between::Site::find(feature, between, options)?)))
    }

    /// Who is who, for the report.
    pub(crate) fn facts(&self) -> BenchFacts {
        match self {
            Site::Between(site) => site.facts(),
            Site::Namespaces(hosts) => hosts.facts(),
            Site::InProcess(_) => in_process::facts(),
        }
    }

    /// What is looked at before measuring.
    pub(crate) fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        match self {
            Site::Namespaces(hosts) => hosts.checks(interrupt),
            Site::Between(site) => site.checks(),
            Site::InProcess(feature) if feature.whole_guide => {
                Ok(InProcess::start(Load::bulk(1), interrupt.clone())?.checks())
            }
            Site::InProcess(_) => Ok(Vec::new()),
        }
    }

    /// Arms that could not be measured, and why.
    pub(crate) fn left_out(&self) -> Vec<String> {
        match self {
            Site::Namespaces(hosts) => hosts.topology.left_out.clone(),
            Site::InProcess(_) | Site::Between(_) => Vec::new(),
        }
    }

    /// What iperf3 makes of what was measured; `None` where it has nothing to say of it.
    pub(crate) fn second_opinion(&self, case: &Case) -> Option<String> {
        match self {
            Site::Namespaces(hosts) => hosts.iperf.as_ref()?.beside(case),
            Site::InProcess(_) | Site::Between(_) => None,
        }
    }

    /// Every command so far.
    pub(crate) fn commands(&self) -> Vec<Command> {
        match self {
            Site::Namespaces(hosts) => {
                let changes = hosts.daemon.commands();
                hosts.topology.commands().into_iter().chain(changes).collect()
            }
            Site::Between(site) => site.commands(),
            Site::InProcess(_) => Vec::new(),
        }
    }

    /// Measures a point on a fresh bench, and asks everyone what they counted.
    pub(crate) fn run(
        &mut self,
        point: &Point,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(&Step<'_>),
    ) -> Result<(Run, Option<Account>), LabError> {
        let (interrupt, load) = (interrupt.clone(), point.load);
        match self {
            Site::Namespaces(hosts) => {
                let mut bench = hosts.bench(load, interrupt)?;
                let run = point.experiment.run(&mut bench, progress);
                Ok((run, bench.account()))
            }
            Site::Between(site) => {
                let mut bench = site.bench(load, interrupt)?;
                let run = point.experiment.run(&mut bench, progress);
                Ok((run, bench.account()))
            }
            Site::InProcess(_) => {
                let mut bench = InProcess::start(load, interrupt)?;
                Ok((point.experiment.run(&mut bench, progress), None))
            }
        }
    }
}

impl Hosts {
    fn facts(&self) -> BenchFacts {
        let mtu = self.topology.mtu;
        let (vnic, kind) = match self.topology.vnic {
            Vnic::Tap if self.topology.receiver_gro => ("a TAP", "tap with GRO"),
            Vnic::Tap => ("a TAP", "tap"),
            Vnic::Veth => {
                ("a veth behind a packet port, because /dev/net/tun is not available", "packet")
            }
        };
        let description = match self.topology.way {
            Way::ToVnic => format!(
                "The guest receives: the sender's frames reach the switch one by one at MTU {mtu}, and the guest's vNIC is \
                 {vnic}."
            ),
            Way::FromVnic => format!(
                "The guest sends: its vNIC is {vnic}, and frames leave the uplink one by one at MTU {mtu}."
            ),
        };
        let (placed, placement) = match &self.topology.placement {
            Ok(placement) => (placement.words(), Some(placement.clone())),
            Err(why) => (format!("Sender, switch and receiver share processors: {why}."), None),
        };
        let congestion = congestion();
        let control =
            congestion.as_ref().map(|name| format!(" TCP's congestion control is {name}."));
        let receiver = match self.topology.receiver_gro {
            true => " A receiver with GRO is such a TAP whose kernel coalesces what it is given.",
            false => "",
        };
        BenchFacts {
            description: format!("{description} {placed}{}{receiver}", control.unwrap_or_default()),
            mtu: Some(mtu),
            vnic: Some(kind.into()),
            congestion,
            placement,
            ..BenchFacts::default()
        }
    }

    fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        let mut checks = (self.feature.checks)(&mut self.topology, &mut self.daemon)?;
        if self.feature.whole_guide {
            self.iperf = iperf::run(&mut self.topology, interrupt)?;
            checks.extend(self.iperf.iter().map(|said| said.check.clone()));
        }
        Ok(checks)
    }

    fn bench(&mut self, load: Load, interrupt: Interrupt) -> Result<Namespaces<'_>, LabError> {
        Namespaces::start(&mut self.topology, &mut self.daemon, self.feature, load, interrupt)
    }
}
