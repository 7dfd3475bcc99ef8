//! Experiments between hosts that there are already, through the switch that runs already.
//!
//! ```text
//! sender (agent) ── network ── uplink switch (the user's daemon) port ── receiver (agent, or a process here)
//! ```
//!
//! Only the load is ours, and what is toggled at the switch. Each host counts by its own clock, and
//! times of two hosts are never compared: a throughput is the receiver's bytes by the receiver's
//! time.

mod bench;

use crate::LabError;
use crate::bulk_flows::Ends;
use crate::campaign::Point;
use crate::experiments::Feature;
use crate::host::{Host, Identity, Whereabouts};
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::report::{BenchFacts, Check, Command, HostFacts};
use crate::running::Running;
use crate::site::{self, Measured, Tell};
use bench::Hosts;
use std::net::IpAddr;
use std::path::PathBuf;

/// Said where the daemon's processor time cannot be read.
const UNSEEN: &str = " The switch's process is hidden from this one (ProtectProc, hidepid, or another PID namespace): the switch's CPU and the \
cost of receiving are missing, and its time counts as that of others.";

/// Who sends, who receives, and which switch is between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    /// The agent that sends.
    pub sender: Whereabouts,
    /// Who receives.
    pub receiver: Receiver,
    /// The receiver's address on the way through the switch. `None`: the one by which it is
    /// reached.
    pub to: Option<IpAddr>,
    /// The receiver's link on that way. `None`: the one with that address.
    pub link: Option<String>,
    /// The switch's port toward the receiver. `None`: its only vNIC.
    pub port: Option<String>,
    /// The daemon's socket.
    pub socket: PathBuf,
}

/// Who receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// An agent.
    Agent(Whereabouts),
    /// A process of ours, in the network namespace at this path, or in our own.
    Here(Option<PathBuf>),
}

impl Between {
    /// The options that name them, without the agents' tokens.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let (receiver, named) = match &self.receiver {
            Receiver::Agent(at) => ("receiver", Some(at.without_token("RECEIVER"))),
            Receiver::Here(at) => {
                ("receiver-netns", at.as_ref().map(|at| at.display().to_string()))
            }
        };
        let all = [
            ("sender", Some(self.sender.without_token("SENDER"))),
            (receiver, named),
            ("to", self.to.map(|address| address.to_string())),
            ("link", self.link.clone()),
            ("port", self.port.clone()),
            ("socket", Some(self.socket.display().to_string())),
        ];
        all.into_iter().filter_map(|(option, value)| Some((option, value?)))
    }
}

/// The hosts and the switch, found and connected.
pub(crate) struct Site {
    sender: Host,
    receiver: Host,
    /// Of sender and receiver.
    identities: [Identity; 2],
    running: Running,
    to: IpAddr,
    link: String,
    /// The receiver's log, where it is a process of ours. Ends last.
    _directory: tempfile::TempDir,
}

impl Site {
    /// Finds everybody.
    pub(crate) fn find(
        feature: &'static Feature,
        between: &Between,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Site, LabError> {
        options.check_interval()?;
        let running = Running::find(&between.socket, between.port.as_deref(), feature)?;
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
        Ok(Site { sender, receiver, identities, running, to, link, _directory })
    }

    fn pair(&mut self) -> Ends<'_> {
        let Site { sender, receiver, to, link, .. } = self;
        Ends { sender, receiver, to: *to, link }
    }
}

impl site::Site for Site {
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

    fn run(&mut self, point: &Point, interrupt: &Interrupt, progress: Tell<'_>) -> Measured {
        let mut bench = Hosts::start(self, point.load, interrupt.clone())?;
        let run = point.plan.run(&mut bench, progress);
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
