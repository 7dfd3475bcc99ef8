//! Experiments between existing hosts, through a switch that already runs.
//!
//! ```text
//! sender (agent) ── network ── uplink switch (the user's daemon) port ── receiver (agent, or a process here)
//! ```
//!
//! The lab adds only the load, and toggles one port of the switch, or nothing. Each host counts by its own
//! clock, and times of two hosts are never compared: a throughput is the receiver's bytes by the
//! receiver's time.

pub(crate) mod bench;
pub(crate) mod connected;
mod site;

use crate::host::Whereabouts;
use std::net::IpAddr;
use std::path::PathBuf;

/// The sender, the receiver, and the switch between them, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingHosts {
    /// The agent that sends.
    pub sender: Whereabouts,
    /// The receiver.
    pub receiver: Receiver,
    /// The receiver's address behind the switch; `None` is the address by which the receiver is
    /// reached.
    pub to: Option<IpAddr>,
    /// The receiver's link behind the switch; `None` is the link with that address.
    pub link: Option<String>,
    /// The switch's port toward the receiver; `None` is its only vNIC.
    pub port: Option<String>,
    /// The daemon's socket.
    pub socket: PathBuf,
}

/// Kind of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// An agent on another host.
    Agent(Whereabouts),
    /// A process that the lab starts, in the network namespace at this path, or in its own.
    Here(Option<PathBuf>),
}

impl ExistingHosts {
    /// Returns the command-line options that name these hosts, without the agents' tokens.
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
