//! A plugin of the Container Network Interface, versions 0.3.0 to 1.1.0 of its specification: a
//! container runtime runs `millrace cni` (or the link `millrace-cni`) for each interface of a pod,
//! with `CNI_*` in the environment and the network's configuration at standard input; the answer is
//! JSON at standard output.
//!
//! A pod's interface is the device of a TAP port, which the daemon makes in the pod's namespace
//! (`netns`), or one end of a veth pair if the network's `device` says so ([`Device`]). A veth with
//! a packet port costs each frame the kernel's path through two more devices. The TAP passes trains
//! and partial checksums in both directions, is one device instead of two, and is removed with its
//! port. The cost is that the device belongs to the daemon. It survives restarts if descriptors are
//! kept (systemd, `--take-over`). Otherwise it disappears with its addresses when the daemon ends,
//! and CHECK then reports that. A veth pair stays.
//!
//! The plugin keeps no state of its own. The port's name is made from network, container and
//! interface ([`Attachment`]), so DEL needs only these, and GC finds all ports of a network by the
//! prefix of their names. ADD makes the port first, brings its interface up, asks for addresses,
//! sets and announces them; DEL undoes it in reverse. A crash in between leaves a port, or a port
//! and addresses, which DEL and GC remove. ADD changes no interface that exists, as the
//! specification demands, so after a crash it needs a DEL before, which runtimes send.
//!
//! Layers, each using only those above it: `error`, `address`, `outcome` and `attachment` are data;
//! `network` and `request` read the runtime's input; `ipam`, `pod` and `switch` act on the IPAM
//! plugin, the pod and the daemon; `verbs` are the commands.

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
pub use network::{Device, Network, Version};
pub use request::{Command, Request};

use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Most bytes of a configuration that are read.
const LONGEST: u64 = 1 << 20;

/// The result of a command: the text to print, and whether it succeeded.
pub struct Answer {
    /// The JSON to print; `None` if the command has no result.
    pub text: Option<Value>,
    /// Whether the command succeeded.
    pub is_ok: bool,
}

/// Carries out a runtime's request. `variable` looks up the environment, and `socket` is the
/// daemon's socket unless the network names another.
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
