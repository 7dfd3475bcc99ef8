//! Hosts that exist already, and the switch that runs between them: found and connected.

use super::{Between, Receiver};
use crate::LabError;
use crate::bulk_flows::Ends;
use crate::experiment::Experiment;
use crate::host::{Host, Identity};
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::running::Running;
use std::net::IpAddr;

/// Existing hosts and the switch between them.
pub(crate) struct ExistingHosts {
    pub(super) sender: Host,
    pub(super) receiver: Host,
    /// Identities of sender and receiver.
    pub(super) identities: [Identity; 2],
    pub(super) running: Running,
    pub(super) to: IpAddr,
    pub(super) link: String,
    /// The receiver's log, if the lab has started it. Dropped last.
    _directory: tempfile::TempDir,
}

impl ExistingHosts {
    /// Connects to the switch, the sender and the receiver.
    ///
    /// # Errors
    /// The experiment cannot be toggled at a running switch, or one of the three is not reached.
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

/// Returns the address to which the sender sends: the one named, or the one by which the receiver's
/// agent is reached, or the one by which the sender reaches this machine.
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
