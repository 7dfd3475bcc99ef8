//! Options of an experiment between existing hosts, and the refusal of those that need hosts of
//! their own.

use crate::global::Global;
use crate::output::Failure;
use clap::Args;
use config::Namespace;
use lab::existing_hosts::{ExistingHosts, Receiver};
use lab::host::Whereabouts;
use lab::vnic::Receivers;
use problem::Problem;
use std::net::IpAddr;
use std::str::FromStr;

/// Options that name existing hosts.
#[derive(Args)]
#[command(
    next_help_heading = "Between two existing hosts, through the running switch (rsc, limits, jumbo, sweep, connections)"
)]
pub(crate) struct Hosts {
    /// The sending agent, as `millrace lab agent` printed it on the far host.
    // The agent of a fleet gives it by the environment, which other users cannot read.
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT", env = "MILLRACE_LAB_SENDER", hide_env = true)]
    sender: Option<Whereabouts>,
    /// The receiving agent, for example in a guest [default: this host]. Without --sender, for rsc:
    /// a TAP (`tap`), a TAP whose kernel coalesces by GRO (`tap-gro`), one after the other (`both`,
    /// the default), or a virtual machine (`qemu`).
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT | tap | tap-gro | both | qemu")]
    receiver: Option<Receiving>,
    /// Receive in this network namespace of this host: a name of `ip netns`, or a path.
    #[arg(long, value_name = "NAME", requires_all = ["sender", "to"], conflicts_with = "receiver")]
    receiver_netns: Option<Namespace>,
    /// The receiver's address behind the switch [default: the address of its agent].
    #[arg(long, value_name = "ADDRESS", requires = "sender")]
    to: Option<IpAddr>,
    /// The receiver's link to the switch [default: the link with that address].
    #[arg(long, requires = "sender")]
    link: Option<String>,
    /// The switch port toward the receiver, which rsc and limits toggle [default: the only vNIC].
    #[arg(long, requires = "sender")]
    port: Option<String>,
}

/// A receiver as typed.
#[derive(Clone, Debug)]
enum Receiving {
    /// An agent on an existing host.
    Agent(Whereabouts),
    /// A receiver to create.
    Created(Receivers),
}

impl FromStr for Receiving {
    type Err = String;

    fn from_str(text: &str) -> Result<Receiving, String> {
        Ok(match text {
            "tap" => Receiving::Created(Receivers::Tap),
            "tap-gro" => Receiving::Created(Receivers::TapGro),
            "both" => Receiving::Created(Receivers::Both),
            "qemu" => Receiving::Created(Receivers::Qemu),
            agent => Receiving::Agent(
                agent
                    .parse()
                    .map_err(|why| format!("{why}; or one of tap, tap-gro, both, qemu"))?,
            ),
        })
    }
}

impl Hosts {
    /// Returns the existing hosts as typed; `None` if the hosts are to be created.
    ///
    /// # Errors
    /// Sender and receiver are not both existing hosts or both to be created.
    pub(crate) fn existing_hosts(&self, global: &Global) -> Result<Option<ExistingHosts>, Failure> {
        let receiver = match (&self.receiver, &self.receiver_netns) {
            (Some(Receiving::Agent(agent)), _) => Receiver::Agent(agent.clone()),
            (_, Some(name)) => Receiver::Here(Some(name.path())),
            (_, None) => Receiver::Here(None),
        };
        let Some(sender) = self.existing()? else { return Ok(None) };
        let (to, link, port) = (self.to, self.link.clone(), self.port.clone());
        Ok(Some(ExistingHosts { sender, receiver, to, link, port, socket: global.socket() }))
    }

    /// Returns the sender if the hosts exist; `None` if they are to be created. The receiver has to
    /// be of the same kind.
    fn existing(&self) -> Result<Option<Whereabouts>, Failure> {
        let problem = match (&self.sender, &self.receiver) {
            (None, Some(Receiving::Agent(_))) => Problem::new("--receiver TOKEN@ADDRESS:PORT")
                .seen("no --sender, so the hosts would be created")
                .wanted("a sending agent too")
                .remedy("add --sender TOKEN@ADDRESS:PORT"),
            (Some(_), Some(Receiving::Created(receivers))) => {
                Problem::new(format!("--receiver {receivers}"))
                    .seen("--sender, which names an existing host")
                    .wanted("the receiving agent, TOKEN@ADDRESS:PORT")
                    .remedy("omit --sender, or omit --receiver to receive on this host")
            }
            (sender, _) => return Ok(sender.clone()),
        };
        Err(Failure::Usage(problem))
    }

    /// Returns the receivers to create; `None` if none was named.
    pub(crate) fn receivers(&self) -> Option<Receivers> {
        match self.receiver {
            Some(Receiving::Created(receivers)) => Some(receivers),
            _ => None,
        }
    }

    /// Refuses a named receiver, for commands that are measured toward only one kind.
    ///
    /// # Errors
    /// A receiver to create was named.
    pub(crate) fn one_receiver(&self, command: &str) -> Result<(), Failure> {
        match self.receivers() {
            None => Ok(()),
            Some(receivers) => Err(one_receiver(command, &receivers.to_string())),
        }
    }

    /// Refuses an option that would change existing hosts or their switch.
    ///
    /// # Errors
    /// The hosts exist, and the option was typed.
    pub(crate) fn refuse_option(&self, typed: Option<&str>, why: &str) -> Result<(), Failure> {
        let (Some(_), Some(option)) = (&self.sender, typed) else { return Ok(()) };
        Err(Failure::Usage(
            Problem::new(format!("{option} --sender"))
                .seen(why)
                .wanted("the switch and its hosts as they are")
                .remedy(format!("omit {option}, or omit --sender to measure on this host")),
        ))
    }
}

fn one_receiver(command: &str, receiver: &str) -> Failure {
    Failure::Usage(
        Problem::new(format!("{command} --receiver {receiver}"))
            .seen("a command with only one kind of receiver")
            .wanted("validate rsc")
            .remedy("omit --receiver"),
    )
}

/// The options of existing hosts at commands that need hosts of their own. They are not in the
/// help, and are refused with the reason.
#[derive(Args)]
pub(crate) struct RefusedHosts {
    #[arg(long, hide = true)]
    sender: Option<String>,
    #[arg(long, hide = true)]
    receiver: Option<String>,
    #[arg(long, hide = true)]
    receiver_netns: Option<String>,
    #[arg(long, hide = true)]
    to: Option<String>,
    #[arg(long, hide = true)]
    link: Option<String>,
    #[arg(long, hide = true)]
    port: Option<String>,
}

impl RefusedHosts {
    /// Refuses existing hosts. `why` says what the command does that they do not allow.
    ///
    /// # Errors
    /// A host or a receiver was named.
    pub(crate) fn refuse(&self, command: &str, why: &str) -> Result<(), Failure> {
        if let (None, Some(receiver)) = (&self.sender, &self.receiver) {
            return Err(one_receiver(command, receiver));
        }
        let all = [
            ("--sender", &self.sender),
            ("--receiver-netns", &self.receiver_netns),
            ("--to", &self.to),
            ("--link", &self.link),
            ("--port", &self.port),
        ];
        let Some((option, _)) = all.into_iter().find(|(_, value)| value.is_some()) else {
            return Ok(());
        };
        Err(Failure::Usage(
            Problem::new(format!("{command} {option}"))
                .seen(why)
                .wanted("validate rsc, limits or jumbo, sweep or connections")
                .remedy(format!("omit {option}: the hosts are then namespaces on this host")),
        ))
    }
}
