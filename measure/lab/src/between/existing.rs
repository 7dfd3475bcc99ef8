//! A site of hosts that exist already, with the switch that runs between them.

use super::bench::Hosts;
use super::{Between, Receiver};
use crate::LabError;
use crate::bulk_flows::Ends;
use crate::experiment::Experiment;
use crate::host::{Host, Identity};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::options::Options;
use crate::plan::Plan;
use crate::report::{BenchFacts, Check, Command, HostFacts};
use crate::running::Running;
use crate::site::{RunResult, Site, Tell};
use std::net::IpAddr;

/// Said where the daemon's processor time cannot be read.
const UNSEEN: &str = " The switch's process is hidden from this one (ProtectProc, hidepid, or another PID namespace): the switch's CPU and the \
cost of receiving are missing, and its time counts as that of others.";

/// The hosts and the switch, found and connected.
pub(crate) struct ExistingHosts {
    pub(super) sender: Host,
    pub(super) receiver: Host,
    /// Of sender and receiver.
    pub(super) identities: [Identity; 2],
    pub(super) running: Running,
    pub(super) to: IpAddr,
    pub(super) link: String,
    /// The receiver's log, where it is a process of ours. Ends last.
    _directory: tempfile::TempDir,
}

impl ExistingHosts {
    /// Finds everybody.
    pub(crate) fn find(
        experiment: &'static dyn Experiment,
        between: &Between,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<ExistingHosts, LabError> {
        options.check_interval()?;
        let name = experiment.description().name;
        let refused = || LabError::NotBetweenHosts(name.to_owned());
        let toggle = experiment.toggle().ok_or_else(refused)?;
        let running = Running::find(&between.socket, between.port.as_deref(), toggle)?;
        let mut sender = Host::connect("sender", &between.sender, interrupt)?;
        let directory = tempfile::tempdir().map_err(LabError::io("making a private directory"))?;
        let mut receiver = match &between.receiver {
            Receiver::Agent(at) => Host::connect("receiver", at, interrupt)?,
            Receiver::Here(namespace) => Host::start_in(
                "receiver",
                &options.program,
                namespace.as_deref(),
                directory.path(),
            )?,
        };
        let to = address(between, &sender, &receiver)?;
        let link = match &between.link {
            Some(link) => link.clone(),
            None => receiver.link_of(to)?,
        };
        let identities = [sender.identity()?, receiver.identity()?];
        let _directory = directory;
        Ok(ExistingHosts { sender, receiver, identities, running, to, link, _directory })
    }

    pub(super) fn ends(&mut self) -> Ends<'_> {
        let ExistingHosts { sender, receiver, to, link, .. } = self;
        Ends { sender, receiver, to: *to, link }
    }
}

impl Site for ExistingHosts {
    fn facts(&self) -> BenchFacts {
        let own = Identity::own();
        let [sender, receiver] = &self.identities;
        let machine = |role: &str, of: &Identity| {
            let place =
                if of.boot == own.boot { "the switch's machine" } else { "its own machine" };
            format!("the {role} is on {place} ({})", of.machine.words())
        };
        let description = format!(
            "Between hosts: {}, {}; the load goes to {} ({}) through port {} of the running switch. Each host counts with \
              its own clock; throughput uses the receiver's.{}",
            machine("sender", sender),
            machine("receiver", receiver),
            self.to,
            self.link,
            self.running.port.name,
            if self.running.is_visible() { "" } else { UNSEEN }
        );
        let host = |role: &str, of: &Identity| HostFacts {
            role: role.to_owned(),
            same_machine: of.boot == own.boot,
            machine: of.machine.clone(),
        };
        let hosts = vec![host("sender", sender), host("receiver", receiver)];
        let (mtu, vnic) = (self.running.mtu, Some(self.running.kind.clone()));
        BenchFacts { description, mtu, vnic, hosts, ..BenchFacts::default() }
    }

    fn checks(&mut self, _interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        self.running.checks()
    }

    fn commands(&self) -> Vec<Command> {
        let hosts = [&self.sender, &self.receiver];
        let theirs = hosts.into_iter().flat_map(|host| host.commands().iter().cloned());
        self.running.port.commands().into_iter().chain(theirs).collect()
    }

    fn leave(&mut self) -> Option<Check> {
        self.running.leave()
    }

    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult {
        let mut bench = Hosts::start(self, load, interrupt.clone())?;
        let run = plan.run(&mut bench, progress);
        Ok((run, bench.account()))
    }
}

/// Where the receiver is sent to: what was said, or how it is reached, or how we are.
fn address(between: &Between, sender: &Host, receiver: &Host) -> Result<IpAddr, LabError> {
    let guessed = match &between.receiver {
        Receiver::Agent(_) => receiver.addresses().map(|(_, agent)| agent),
        Receiver::Here(None) => sender.addresses().map(|(own, _)| own),
        Receiver::Here(Some(_)) => None,
    };
    let unknown =
        || LabError::Between("the receiver's address is missing: name it with --to".into());
    between.to.or(guessed).map(|address| address.to_canonical()).ok_or_else(unknown)
}
