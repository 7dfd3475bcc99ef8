//! Where a whole validation runs: real hosts in namespaces, or everything in this process.
//!
//! A site sets up a fresh bench for each load, so that one connection count leaves nothing to the next.

use crate::LabError;
use crate::daemon::Daemon;
use crate::experiment::{Experiment, Run, Step};
use crate::experiments::Load;
use crate::host::{become_root, is_root};
use crate::in_process::InProcess;
use crate::interrupt::Interrupt;
use crate::namespaces::Namespaces;
use crate::report::{BenchFacts, Check, Command};
use crate::topology::{Topology, Vnic};
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
}

impl Site {
    /// Real hosts. `program` is this binary. Call it while this process has one thread.
    pub(crate) fn namespaces(
        program: &Path,
        mtu: u16,
        interrupt: &Interrupt,
    ) -> Result<Site, LabError> {
        if !is_root() {
            become_root()?;
        }
        interrupt.watch_signals()?;
        let mut topology = Topology::new(program, Vnic::possible(), mtu)?;
        let daemon = Daemon::start(&mut topology, interrupt)?;
        Ok(Site::Namespaces(Box::new(Hosts { daemon, topology })))
    }

    /// Who is who, for the report.
    pub(crate) fn facts(&self) -> BenchFacts {
        let description = match self {
            Site::Namespaces(hosts) => format!(
                "Sender, switch and receiver are processes of this machine, each in a network namespace of its own; the \
                 sender's frames reach the switch one by one at MTU {}, and the receiver's vNIC is {}.",
                hosts.topology.mtu,
                match hosts.topology.vnic {
                    Vnic::Tap => "a TAP",
                    Vnic::Veth => "a veth behind a packet port, because /dev/net/tun may not be used here",
                }
            ),
            Site::InProcess => "IN PROCESS: sender and receiver are user-space TCP stacks (smoltcp) on memory ports of the \
                                real switch, all in one process. The figures show what coalescing saves such a guest; they \
                                say nothing about a kernel or a virtual machine."
                .to_owned(),
        };
        BenchFacts { in_process: matches!(self, Site::InProcess), description }
    }

    /// Activity 1: the default configuration, before anything is changed.
    pub(crate) fn checks(&self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        match self {
            Site::Namespaces(hosts) => hosts.daemon.checks(),
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
                let daemon = Some(&mut hosts.daemon);
                let mut bench = Namespaces::start(&mut hosts.topology, daemon, load, interrupt)?;
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
        let mut bench = Namespaces::start(&mut hosts.topology, None, load, interrupt.clone())?;
        Ok(Some(experiment.run(&mut bench, progress)))
    }

    /// Largest frame that may be seen on the sender's wire, in bytes.
    pub(crate) fn frame_bytes(&self) -> Option<f64> {
        match self {
            Site::Namespaces(hosts) => Some(f64::from(hosts.topology.mtu) + 14.0),
            Site::InProcess => None,
        }
    }
}

/// Time an experiment of this kind takes, set-up included, for the first progress line.
pub(crate) fn roughly(experiments: &[(&Experiment, usize)]) -> Duration {
    experiments.iter().map(|(one, times)| one.length() * u32::try_from(*times).unwrap_or(1)).sum()
}
