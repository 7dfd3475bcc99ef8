//! Two hosts between which a guest migrates, and the bench that runs the migrations.
//!
//! ```text
//! QEMU, vnic0 ── switch (millrace run) uplink0 ── host-a ┐
//!                                                         physical: bridge0, the client
//! QEMU, vnic0 ── switch (millrace run) uplink0 ── host-b ┘
//! ```
//!
//! The guest's port is a vhost-user port of the switch that also carries its memory. The memory
//! goes from the host's own vNIC over the uplink, or over a direct wire from the host to bridge0.
//! The campaign uses the bench as a [`Site`] of its own. An interval is a migration, and the next
//! one goes back. The arm of Open vSwitch with DPDK has two such hosts and a guest of its own,
//! which start with its first interval.

mod host_pair;
mod migration_host;
mod observation;
mod stream;
pub(crate) mod transport;

use crate::LabError;
use crate::guest::Files;
use crate::host::Command;
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::migration::transport::{PEER, TRANSPORTS, Transport, transports};
use crate::options::Options;
use crate::plan::{Arm, Bench, Measured, Plan};
use crate::report::BenchFacts;
use crate::site::{self, RunResult, Site, Tell};
use host_pair::{Context, HostPair};
use migration_host::SwitchKind;
use std::time::{Duration, Instant};

/// Name of the guest's port at both switches.
const PORT: &str = "vm";

/// The running bench. Fields are dropped in this order, the directory last.
pub(crate) struct MigrationSite {
    millrace: HostPair,
    /// Hosts of the arm of Open vSwitch; `None` until its first interval.
    open_vswitch: Option<HostPair>,
    transport: Transport,
    /// Message about an arm that could not be measured.
    left_out: Option<String>,
    context: Context,
    begin: Instant,
    directory: tempfile::TempDir,
}

impl MigrationSite {
    /// Starts the hosts, and boots the guest. Call it while this process has one thread.
    ///
    /// # Errors
    /// The guest's files are missing, namespaces are refused, or a host does not start.
    pub(crate) fn make(
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Site>, LabError> {
        let files = Files::find(options.guest(), "initramfs")?;
        let directory = site::prepare(interrupt)?;
        let (program, interrupt) = (options.program.clone(), interrupt.clone());
        let context = Context { files, program, interrupt };
        Ok(Box::new(MigrationSite {
            millrace: HostPair::start(
                &context,
                SwitchKind::Millrace,
                &directory.path().join("millrace"),
            )?,
            open_vswitch: None,
            transport: TRANSPORTS[0],
            left_out: None,
            context,
            begin: Instant::now(),
            directory,
        }))
    }

    /// Returns the hosts of the current arm.
    fn pair(&mut self) -> (&mut HostPair, &Context) {
        match &mut self.open_vswitch {
            Some(pair) if self.transport.name == PEER => (pair, &self.context),
            _ => (&mut self.millrace, &self.context),
        }
    }
}

impl Bench for MigrationSite {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        self.pair().0.leave();
        let known = transports().find(|one| one.name == arm.name);
        self.transport = known.unwrap_or(TRANSPORTS[0]);
        if self.transport.name == PEER && self.open_vswitch.is_none() {
            let directory = self.directory.path().join("ovs");
            self.open_vswitch =
                Some(HostPair::start(&self.context, SwitchKind::OpenVswitch, &directory)?);
        }
        let mtu = self.transport.mtu;
        self.pair().0.enter(mtu)
    }

    fn give_up(&mut self, arm: &Arm, error: LabError) -> Result<(), LabError> {
        // Without Millrace there is nothing to compare with.
        if arm.name != PEER {
            return Err(error);
        }
        self.open_vswitch = None;
        self.left_out = Some(format!("{} was left out: {error}.", arm.label));
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        let (pair, context) = self.pair();
        pair.pass(time, &context.interrupt)
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let by = self.transport;
        let (pair, context) = self.pair();
        Ok(Measured { values: pair.migrate(context, by, interval)?, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Site for MigrationSite {
    fn facts(&self) -> BenchFacts {
        BenchFacts {
            description: format!(
                "A guest migrates between two hosts, each with its own switch. A Linux bridge joins their uplinks, as the physical \
                 switch would; the client is on the bridge. The guest is a virtual machine with one processor, emulated by QEMU, on a \
                 vhost-user port. Its memory goes from the host's own vNIC, a TAP on the same switch, over the uplink. OVS-DPDK \
                 has hosts, a guest and a bridge of its own. Everything \
                 shares {} processors.",
                std::thread::available_parallelism().map_or(1, usize::from)
            ),
            vnic: Some("vhost-user".into()),
            ..BenchFacts::default()
        }
    }

    fn run(&mut self, _: Load, plan: &Plan, _: &Interrupt, progress: Tell<'_>) -> RunResult {
        Ok((plan.run(self, progress), None))
    }

    fn left_out(&self) -> Vec<String> {
        self.left_out.iter().cloned().collect()
    }

    fn commands(&self) -> Vec<Command> {
        let pairs = std::iter::once(&self.millrace).chain(&self.open_vswitch);
        pairs.flat_map(HostPair::commands).collect()
    }
}
