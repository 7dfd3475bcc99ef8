//! Connections to hosts that exist already, and to the switch that runs between them.

use super::{ExistingHosts, Receiver};
use crate::LabError;
use crate::bulk_flows::Endpoints;
use crate::experiment::Experiment;
use crate::host::{Host, Identity};
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::running::Running;
use std::net::IpAddr;

/// The connected hosts, and the running switch between them.
pub(crate) struct ConnectedHosts {
    pub(super) sender: Host,
    pub(super) receiver: Host,
    /// Identities of sender and receiver.
    pub(super) identities: [Identity; 2],
    pub(super) running: Running,
    pub(super) experiment: &'static dyn Experiment,
    /// The receiver's address, to which the sender sends.
    pub(super) to: IpAddr,
    /// The receiver's link with that address.
    pub(super) link: String,
    /// The receiver's log, if the lab has started it. Dropped last.
    _directory: tempfile::TempDir,
}

impl ConnectedHosts {
    /// Connects to the switch, the sender and the receiver.
    ///
    /// # Errors
    /// The experiment cannot be measured at a running switch, or one of the three is not reached.
    pub(crate) fn connect(
        experiment: &'static dyn Experiment,
        named: &ExistingHosts,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<ConnectedHosts, LabError> {
        options.check_interval()?;
        let name = experiment.description().name;
        let refused = || LabError::NotAtRunningSwitch(name.to_owned());
        let toggle = match experiment.toggle() {
            None if !experiment.changes_nothing() => return Err(refused()),
            toggle => toggle,
        };
        let running = Running::find(&named.socket, named.port.as_deref(), toggle)?;
        let mut sender = Host::connect("sender", &named.sender, interrupt)?;
        let directory = tempfile::tempdir().map_err(LabError::io("making a private directory"))?;
        let mut receiver = match &named.receiver {
            Receiver::Agent(at) => Host::connect("receiver", at, interrupt)?,
            Receiver::Here(namespace) => Host::start_in(
                "receiver",
                &options.program,
                namespace.as_deref(),
                directory.path(),
            )?,
        };
        let to = address(named, &sender, &receiver)?;
        let link = match &named.link {
            Some(link) => link.clone(),
            None => receiver.link_of(to)?,
        };
        let identities = [sender.identity()?, receiver.identity()?];
        let _directory = directory;
        Ok(ConnectedHosts {
            sender,
            receiver,
            identities,
            running,
            experiment,
            to,
            link,
            _directory,
        })
    }

    /// Returns sender and receiver as the endpoints of bulk connections.
    pub(super) fn endpoints(&mut self) -> Endpoints<'_> {
        let ConnectedHosts { sender, receiver, to, link, .. } = self;
        Endpoints { sender, receiver, to: *to, link }
    }
}

/// Returns the address to which the sender sends: the one named, or the one by which the receiver's
/// agent is reached, or the one by which the sender reaches this machine.
fn address(named: &ExistingHosts, sender: &Host, receiver: &Host) -> Result<IpAddr, LabError> {
    let guessed = match &named.receiver {
        Receiver::Agent(_) => receiver.addresses().map(|(_, agent)| agent),
        Receiver::Here(None) => sender.addresses().map(|(own, _)| own),
        Receiver::Here(Some(_)) => None,
    };
    let unknown =
        || LabError::ExistingHosts("the receiver's address is missing: name it with --to".into());
    named.to.or(guessed).map(|address| address.to_canonical()).ok_or_else(unknown)
}
