//! A plugin of the Container Network Interface, versions 0.3.0 to 1.1.0 of its specification: a
//! container runtime runs `millrace cni` (or the link `millrace-cni`) for each interface of a pod,
//! with `CNI_*` in the environment and the network's configuration at standard input; the answer is
//! JSON at standard output.
//!
//! A pod's interface is a TAP port of the switch whose device the daemon makes in the pod's
//! namespace (`netns`). A veth with a packet port would do as well, and cost each frame the
//! kernel's way through two more devices; the TAP takes trains and unfinished checksums whole, both
//! ways, is one device instead of two, and ends with its port. What it costs: the device is the
//! daemon's. It stays over restarts where descriptors are kept (systemd, `--take-over`), and is
//! gone with its addresses where a daemon without either ends; CHECK then says so.
//!
//! The plugin keeps no state of its own. The port's name is made from network, container and
//! interface ([`Attachment`]), so DEL needs no more than these, and GC finds all ports of a network
//! by the beginning of their names. ADD makes the port first, then asks for addresses, then sets
//! them; what a crash leaves in between is a port, or a port and addresses, and DEL, GC and another
//! ADD remove both.
//!
//! Layers, each using only those above it: `error`, `address`, `outcome` and `attachment` are data;
//! `network` and `request` read what the runtime says; `ipam`, `pod` and `switch` are the three
//! that are acted on; `verbs` are the commands.

mod address;
mod attachment;
mod error;
mod ipam;
mod netlink;
mod network;
mod outcome;
mod pod;
mod request;
mod switch;
mod verbs;

pub use attachment::Attachment;
pub use error::CniError;
pub use network::{Network, Version};
pub use request::{Command, Request};

use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Longest configuration that is read.
const LONGEST: u64 = 1 << 20;

/// What is to be printed, and whether the command succeeded.
pub struct Answer {
    /// JSON; `None`: the command has no result.
    pub text: Option<Value>,
    /// Whether the command succeeded.
    pub is_ok: bool,
}

/// Carries out what a runtime asks for. `variable` is the environment, `socket` where the daemon
/// listens unless the network says otherwise.
pub fn answer(
    variable: impl Fn(&str) -> Option<String>,
    mut input: impl Read,
    socket: &Path,
) -> Answer {
    let mut text = Vec::new();
    let read = input.by_ref().take(LONGEST + 1).read_to_end(&mut text);
    let version = network::version_of(&text);
    let done = read
        .map_err(|error| CniError::new(CniError::IO, "reading standard input", error))
        .and_then(|_| carry_out(&Request::read(&variable)?, text, socket));
    match done {
        Ok(text) => Answer { text, is_ok: true },
        Err(error) => Answer { text: Some(error.to_json(&version)), is_ok: false },
    }
}

fn carry_out(request: &Request, text: Vec<u8>, socket: &Path) -> Result<Option<Value>, CniError> {
    if request.command == Command::Version {
        return Ok(Some(json!({
            "cniVersion": network::version_of(&text),
            "supportedVersions": Version::ALL.map(Version::name),
        })));
    }
    if text.len() as u64 > LONGEST {
        let told = format!("more than {LONGEST} bytes");
        return Err(CniError::new(CniError::DECODING, "the configuration is too long", told));
    }
    let network = Network::read(text)?;
    if !network.version.has(request.command) {
        let told = format!("{} has no {}", network.version.name(), request.command.name());
        return Err(CniError::new(CniError::VERSION, "the command needs a newer version", told));
    }
    verbs::run(request, &network, socket)
}
