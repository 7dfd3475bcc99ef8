//! Where a whole validation runs: real hosts in namespaces, everything in this process, or hosts
//! that there are already ([`between`](crate::between)).
//!
//! A site sets up a fresh bench for each load, so that one connection count leaves nothing to the
//! next. Sender, switch and receiver are processes of this machine, each in a network namespace of
//! its own.

use crate::campaign::Point;
use crate::daemon::Daemon;
use crate::experiments::Feature;
use crate::host::{become_root, is_root};
use crate::interrupt::Interrupt;
use crate::load::{Load, Way};
use crate::namespaces::Namespaces as Bench;
use crate::options::Options;
use crate::plan::{Run, Step};
use crate::report::{Account, BenchFacts, Case, Check, Command};
use crate::topology::{Topology, congestion};
use crate::vnic::Vnic;
use crate::{LabError, in_process, iperf};

/// Told of each step.
pub(crate) type Tell<'t> = &'t mut dyn FnMut(&Step<'_>);
/// A point as it was measured, and what everyone counted.
pub(crate) type Measured = Result<(Run, Option<Account>), LabError>;

/// See the module.
pub(crate) trait Site {
    /// Who is who, for the report.
    fn facts(&self) -> BenchFacts;

    /// What is looked at before measuring.
    fn checks(&mut self, _interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        Ok(Vec::new())
    }

    /// Measures a point on a fresh bench, and asks everyone what they counted.
    fn run(&mut self, point: &Point, interrupt: &Interrupt, progress: Tell<'_>) -> Measured;

    /// Arms that could not be measured, and why.
    fn left_out(&self) -> Vec<String> {
        Vec::new()
    }

    /// What iperf3 makes of what was measured; `None` where it has nothing to say of it.
    fn second_opinion(&self, _case: &Case) -> Option<String> {
        None
    }

    /// Every command so far.
    fn commands(&self) -> Vec<Command> {
        Vec::new()
    }

    /// Undoes what was changed of a switch that goes on running; none where there is none.
    fn leave(&mut self) -> Option<Check> {
        None
    }
}

/// Readies this process, while it has one thread, for hosts of its own; a directory for their
/// files.
pub(crate) fn prepare(interrupt: &Interrupt) -> Result<tempfile::TempDir, LabError> {
    if !is_root() {
        become_root()?;
    }
    interrupt.watch_signals()?;
    let directory = tempfile::Builder::new().prefix("millrace-lab-").tempdir();
    directory.map_err(LabError::io("making a private directory"))
}

/// Sender, switch, bridge and receiver as processes of their own. The daemon's handle ends before
/// its host.
pub(crate) struct Namespaces {
    daemon: Daemon,
    topology: Topology,
    feature: &'static Feature,
    /// What iperf3 said, where it is installed.
    iperf: Option<iperf::Said>,
}

impl Namespaces {
    /// Call it while this process has one thread.
    pub(crate) fn make(
        feature: &'static Feature,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Namespaces, LabError> {
        if !is_root() {
            become_root()?;
        }
        interrupt.watch_signals()?;
        let mut topology = Topology::new(feature, options)?;
        let daemon = Daemon::start(&mut topology, interrupt)?;
        Ok(Namespaces { daemon, topology, feature, iperf: None })
    }
}

impl Site for Namespaces {
    fn left_out(&self) -> Vec<String> {
        self.topology.left_out.clone()
    }

    fn second_opinion(&self, case: &Case) -> Option<String> {
        self.iperf.as_ref()?.beside(case)
    }

    fn commands(&self) -> Vec<Command> {
        self.topology.commands().into_iter().chain(self.daemon.commands()).collect()
    }

    fn run(&mut self, point: &Point, interrupt: &Interrupt, progress: Tell<'_>) -> Measured {
        let Namespaces { topology, daemon, .. } = self;
        let mut bench = Bench::start(topology, daemon, point, interrupt.clone())?;
        let run = point.plan.run(&mut bench, progress);
        Ok((run, bench.account()))
    }

    fn facts(&self) -> BenchFacts {
        let mtu = self.topology.mtu;
        let (vnic, kind) = match self.topology.vnic {
            Vnic::Tap if self.topology.receiver_gro => ("a TAP", "tap with GRO"),
            Vnic::Tap => ("a TAP", "tap"),
            Vnic::VhostUser => (
                "that of a virtual machine, emulated by QEMU (TCG), on a vhost-user port",
                "vhost-user",
            ),
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
            congestion.as_ref().map(|name| format!(" TCP uses congestion control {name}."));
        let receiver = match self.topology.receiver_gro {
            true => " A receiver with GRO is such a TAP with a kernel that coalesces.",
            false => "",
        };
        BenchFacts {
            description: format!("{description} {placed}{}{receiver}", control.unwrap_or_default()),
            mtu: Some(mtu),
            vnic: Some(kind.into()),
            emulator: (self.topology.vnic == Vnic::VhostUser).then(|| "tcg".into()),
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
}

/// Two guests on memory ports. Other features than the guide's are not to be seen there.
pub(crate) struct InProcess;

impl Site for InProcess {
    fn facts(&self) -> BenchFacts {
        in_process::facts()
    }

    fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        Ok(in_process::InProcess::start(Load::bulk(1), interrupt.clone())?.checks())
    }

    fn run(&mut self, point: &Point, interrupt: &Interrupt, progress: Tell<'_>) -> Measured {
        let mut bench = in_process::InProcess::start(point.load, interrupt.clone())?;
        Ok((point.plan.run(&mut bench, progress), None))
    }
}
