//! A site of new hosts: sender, switch, bridge and receiver are processes of this machine, each in
//! a network namespace of its own.

use super::{RunResult, Site, Tell, prepare_process};
use crate::daemon::Daemon;
use crate::experiment::Experiment;
use crate::host::Command;
use crate::interrupt::Interrupt;
use crate::load::{Load, Way};
use crate::namespaces::{Namespaces, Work};
use crate::options::Options;
use crate::plan::Plan;
use crate::report::{BenchFacts, Case, Check};
use crate::topology::Topology;
use crate::vnic::Vnic;
use crate::{LabError, iperf};

/// The hosts, and the daemon that runs in one of them. The daemon's handle is dropped before its
/// host.
pub(crate) struct NewHosts {
    daemon: Daemon,
    topology: Topology,
    experiment: &'static dyn Experiment,
    /// Result of iperf3, if it is installed.
    iperf: Option<iperf::Said>,
}

impl NewHosts {
    /// Starts the hosts and the daemon. Call it while this process has one thread.
    pub(crate) fn make(
        experiment: &'static dyn Experiment,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<NewHosts, LabError> {
        prepare_process(interrupt)?;
        let mut topology = Topology::new(experiment.description().wiring, options)?;
        let daemon = Daemon::start(&mut topology, interrupt)?;
        Ok(NewHosts { daemon, topology, experiment, iperf: None })
    }
}

impl Site for NewHosts {
    fn left_out(&self) -> Vec<String> {
        self.topology.left_out.clone()
    }

    fn second_opinion(&self, case: &Case) -> Option<String> {
        self.iperf.as_ref()?.beside(case)
    }

    fn commands(&self) -> Vec<Command> {
        self.topology.commands().into_iter().chain(self.daemon.commands()).collect()
    }

    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult {
        let NewHosts { topology, daemon, experiment, .. } = self;
        let work = Work { experiment: *experiment, load, plan };
        let mut bench = Namespaces::start(topology, daemon, work, interrupt.clone())?;
        let run = plan.run(&mut bench, progress);
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
            Vnic::Veth if self.topology.container => {
                ("one end of a veth, whose other end is a packet port", "packet")
            }
            Vnic::Veth => {
                ("a veth behind a packet port, because /dev/net/tun is not available", "packet")
            }
        };
        let description = match self.topology.way {
            Way::ToVnic => format!(
                "The guest receives: the sender's frames reach the switch one by one at MTU {mtu}, and the guest's vNIC is \
                 {vnic}."
            ),
            Way::BetweenVnics => format!(
                "One guest sends to another: its frames reach the switch one by one at MTU {mtu}, and the vNIC of both is {vnic}."
            ),
            Way::FromVnic => format!(
                "The guest sends: its vNIC is {vnic}, and frames leave the uplink one by one at MTU {mtu}."
            ),
        };
        let (placed, placement) = match &self.topology.placement {
            Ok(placement) => (placement.words(), Some(placement.clone())),
            Err(why) => (format!("Sender, switch and receiver share processors: {why}."), None),
        };
        let congestion = self.topology.congestion();
        let control =
            congestion.as_ref().map(|name| format!(" TCP uses congestion control {name}."));
        let line = self.topology.round_trip_ms.map_or(String::new(), |milliseconds| {
            format!(" What the far end sends is delayed by {milliseconds} ms.")
        });
        let receiver = match self.topology.receiver_gro {
            true => " A receiver with GRO is such a TAP with a kernel that coalesces.",
            false => "",
        };
        BenchFacts {
            description: format!(
                "{description} {placed}{}{line}{receiver}",
                control.unwrap_or_default()
            ),
            mtu: Some(mtu),
            vnic: Some(kind.into()),
            emulator: (self.topology.vnic == Vnic::VhostUser).then(|| "tcg".into()),
            congestion,
            placement,
            ..BenchFacts::default()
        }
    }

    fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        let mut checks = self.experiment.checks(&mut self.topology, &mut self.daemon)?;
        if self.experiment.description().whole_guide {
            self.iperf = iperf::run(&mut self.topology, interrupt)?;
            checks.extend(self.iperf.iter().map(|said| said.check.clone()));
        }
        Ok(checks)
    }
}
