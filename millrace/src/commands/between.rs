//! Options of an experiment between existing hosts.

use crate::cli::Global;
use crate::output::Failure;
use clap::Args;
use control::Problem;
use control::config::Namespace;
use lab::between::{Between, Receiver};
use lab::host::Whereabouts;
use std::net::IpAddr;

/// See the module.
#[derive(Args)]
#[command(
    next_help_heading = "Between two existing hosts, through the running switch (rsc and limits)"
)]
pub(crate) struct Hosts {
    /// The agent that sends: what `millrace lab agent` printed on the far host.
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT")]
    sender: Option<Whereabouts>,
    /// The agent that receives, such as one in a guest [default: this host].
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT", requires = "sender")]
    receiver: Option<Whereabouts>,
    /// Receive in this network namespace of this host: a name of `ip netns`, or a path.
    #[arg(long, value_name = "NAME", requires_all = ["sender", "to"], conflicts_with = "receiver")]
    receiver_netns: Option<Namespace>,
    /// The receiver's address behind the switch [default: the address of its agent].
    #[arg(long, value_name = "ADDRESS", requires = "sender")]
    to: Option<IpAddr>,
    /// The receiver's link to the switch [default: the link with that address].
    #[arg(long, requires = "sender")]
    link: Option<String>,
    /// The switch's port toward the receiver, which is toggled [default: its only vNIC].
    #[arg(long, requires = "sender")]
    port: Option<String>,
}

impl Hosts {
    /// What was typed; `None` if the hosts are to be created.
    pub(crate) fn between(&self, global: &Global) -> Option<Between> {
        Some(Between {
            sender: self.sender.clone()?,
            receiver: match (&self.receiver, &self.receiver_netns) {
                (Some(agent), _) => Receiver::Agent(agent.clone()),
                (None, Some(name)) => Receiver::Here(Some(name.path())),
                (None, None) => Receiver::Here(None),
            },
            to: self.to,
            link: self.link.clone(),
            port: self.port.clone(),
            socket: global.socket(),
        })
    }

    /// For the features that need hosts of their own making.
    pub(crate) fn refuse(&self, feature: &str) -> Result<(), Failure> {
        match self.sender {
            None => Ok(()),
            Some(_) => Err(Failure::Usage(
                Problem::new(format!("validate {feature} --sender"))
                    .seen("a feature that is not toggled at the switch, but at the hosts or their links")
                    .wanted("rsc or limits")
                    .remedy("leave out --sender: the hosts are then namespaces of this host"),
            )),
        }
    }
}
