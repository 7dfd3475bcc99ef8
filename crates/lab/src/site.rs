//! Where a whole validation runs: real hosts in namespaces, or everything in this process.
//!
//! A site sets up a fresh bench for each load, so that one connection count leaves nothing to the next.

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Experiment, Run, Step};
use crate::experiments::{Feature, Load};
use crate::host::{become_root, is_root};
use crate::in_process::InProcess;
use crate::interrupt::Interrupt;
use crate::namespaces::Namespaces;
use crate::report::{BenchFacts, Check, Command};
use crate::topology::{Topology, Vnic, Way};
use std::path::Path;
use std::time::Duration;

/// See the module.
pub(crate) enum Site {
    /// Sender, switch, bridge and receiver as processes of their own.
    Namespaces(Box<Hosts>),
    /// Two guests on memory ports.
    InProcess,
}

/// The processes of [`Site::Namespaces`]. The daemon's handle ends before its host.
pub(crate) struct Hosts {
    daemon: Daemon,
    topology: Topology,
    feature: &'static Feature,
}

impl Site {
    /// Real hosts. `program` is this binary. Call it while this process has one thread.
    pub(crate) fn namespaces(
        feature: &'static Feature,
        program: &Path,
        mtu: u16,
        interrupt: &Interrupt,
    ) -> Result<Site, LabError> {
        if !is_root() {
            become_root()?;
        }
        interrupt.watch_signals()?;
        let mut topology = Topology::new(program, feature, mtu)?;
        let daemon = Daemon::start(&mut topology, interrupt)?;
        Ok(Site::Namespaces(Box::new(Hosts { daemon, topology, feature })))
    }

    /// Who is who, for the report.
    pub(crate) fn facts(&self) -> BenchFacts {
        let description = match self {
            Site::Namespaces(hosts) => hosts.description(),
            Site::InProcess => "IN PROCESS: sender and receiver are user-space TCP stacks (smoltcp) on memory ports of the \
                                real switch, all in one process. The figures show what coalescing saves such a guest; they \
                                say nothing about a kernel or a virtual machine."
                .to_owned(),
        };
        BenchFacts { in_process: matches!(self, Site::InProcess), description }
    }

    /// What is looked at before measuring.
    pub(crate) fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        match self {
            Site::Namespaces(hosts) => (hosts.feature.checks)(&mut hosts.topology, &hosts.daemon),
            Site::InProcess => Ok(InProcess::start(Load::Bulk(1), interrupt.clone())?.checks()),
        }
    }

    /// Every command so far.
    pub(crate) fn commands(&self) -> Vec<Command> {
        match self {
            Site::Namespaces(hosts) => hosts.topology.commands(),
            Site::InProcess => vec![Command {
                host: "here".into(),
                command: "millrace validate rsc --in-process".into(),
            }],
        }
    }

    /// Runs an experiment under a load.
    pub(crate) fn run(
        &mut self,
        experiment: &Experiment,
        load: Load,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Run, LabError> {
        let interrupt = interrupt.clone();
        Ok(match self {
            Site::Namespaces(hosts) => {
                let mut bench = hosts.bench(true, load, interrupt)?;
                experiment.run(&mut bench, progress)
            }
            Site::InProcess => experiment.run(&mut InProcess::start(load, interrupt)?, progress),
        })
    }

    /// Runs the same load through the Linux bridge; `None` where there is none.
    pub(crate) fn run_peer(
        &mut self,
        experiment: &Experiment,
        load: Load,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Option<Run>, LabError> {
        let Site::Namespaces(hosts) = self else { return Ok(None) };
        let mut bench = hosts.bench(false, load, interrupt.clone())?;
        Ok(Some(experiment.run(&mut bench, progress)))
    }

    /// Largest frame that may be seen on the wire, in bytes.
    pub(crate) fn frame_bytes(&self) -> Option<f64> {
        match self {
            Site::Namespaces(hosts) => Some(f64::from(hosts.topology.mtu) + 14.0),
            Site::InProcess => None,
        }
    }
}

impl Hosts {
    fn description(&self) -> String {
        let mtu = self.topology.mtu;
        let vnic = match self.topology.vnic {
            Vnic::Tap => "a TAP",
            Vnic::Veth => "a veth behind a packet port, because /dev/net/tun may not be used here",
        };
        let path = match self.topology.way {
            Way::ToVnic => format!(
                "the sender's frames reach the switch one by one at MTU {mtu}, and the receiver's vNIC is {vnic}"
            ),
            Way::FromVnic => format!(
                "the sender's vNIC is {vnic}, and frames leave the uplink one by one at MTU {mtu}"
            ),
        };
        format!(
            "Sender, switch and receiver are processes of this machine, each in a network namespace of its own; {path}."
        )
    }

    /// The load through the switch, or else through the bridge.
    fn bench(
        &mut self,
        through_switch: bool,
        load: Load,
        interrupt: Interrupt,
    ) -> Result<Namespaces<'_>, LabError> {
        let daemon = through_switch.then_some(&self.daemon);
        Namespaces::start(&mut self.topology, daemon, self.feature, load, interrupt)
    }
}

/// Time an experiment of this kind takes, set-up included, for the first progress line.
pub(crate) fn roughly(experiments: &[(&Experiment, usize)]) -> Duration {
    experiments.iter().map(|(one, times)| one.length() * u32::try_from(*times).unwrap_or(1)).sum()
}
