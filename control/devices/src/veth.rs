//! Opening a veth port: its pair, and the host's end of that as a packet port.
//!
//! The pair outlives the process and has no record: its host end's name and address follow from the
//! state directory, which no other daemon of this host has, and from the port's name. Both stay on
//! this host, so they need not differ between hosts.

use crate::contract::{Condition, DeviceState, OpenError, Opened, Watch};
use crate::link::{HostLink, denied, link_denied};
use crate::own_mac::hash;
use crate::packet::{self, Interface};
use crate::store::Store;
use config::{Device, PortConfig};
use ports::kernel_path::KernelPath;
use ports::link::LinkError;
use ports::packet::{PacketOptions, Spread};
use ports::veth::{self, HostEnd, VethError, VethOptions};
use problem::Problem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::Mac;

/// How `ip link` describes the host's end; the port's name follows.
const ALIAS: &str = "millrace port ";

/// Opens the pair whose container end is `name`, with so many queues. A pair that is made gets this
/// address at that end, unless the configuration has one.
pub(crate) fn open(
    port: &PortConfig,
    name: &str,
    (queues, mac): (u16, Option<Mac>),
    (state, store, kernel_path): (&Path, &Store, Option<&KernelPath>),
) -> Result<Opened, OpenError> {
    let host = host_end(state, port.name.as_str());
    let mut options = PacketOptions::new(&host.name);
    options.queues = u8::try_from(queues).unwrap_or(u8::MAX);
    // At a veth every frame arrives, whatever its address.
    options.promiscuous = false;
    options.kernel_path = kernel_path.cloned();
    options.is_station = true;
    let pair = veth::open(&VethOptions {
        host,
        name: name.to_owned(),
        netns: port.netns_path(),
        mtu: port.mtu.map(|mtu| mtu.0),
        mac: port.mac.map(|mac| mac.0).or(mac),
        alias: format!("{ALIAS}{}", port.name),
    });
    let of_pair =
        |error: VethError| OpenError { denied: veth_denied(&error), reason: error.to_string() };
    let of_link = |error: LinkError| of_pair(error.into());
    let pair = pair.map_err(of_pair)?;
    // From another address the guard would drop all frames. Without it the container may choose its own.
    let mac = port.mac.filter(|_| port.mac_guard()).map(|mac| mac.0);
    if let Some(mac) = mac.filter(|mac| pair.inside.mac().ok() != Some(*mac)) {
        pair.inside.set_mac(mac).map_err(of_link)?;
    }
    let mut opened = packet::open_interface(port, options, store)?;
    opened.device.mac = Some(pair.inside.mac().map_err(of_link)?);
    let index = pair.inside.index().map_err(of_link)?;
    let inside = HostLink {
        link: pair.inside,
        index,
        ours: true,
        spread: Spread::Single,
        stalls: None,
        fit: None,
        keeping: None,
    };
    let (exposed, Interface { device, degraded, link: host, earlier_mac }) = (pair.exposed, opened);
    Ok(Opened {
        device,
        degraded,
        watch: Box::new(VethWatch { host, inside, exposed }),
        earlier_mac,
    })
}

/// Removes the pair of a port that was removed, if there is one.
///
/// # Errors
/// The kernel does not delete it.
pub(crate) fn remove(port: &PortConfig, state: &Path) -> Result<(), Problem> {
    let host = host_end(state, port.name.as_str());
    veth::remove(&host).map_err(|error| {
        Problem::new(error.to_string()).remedy(format!("`ip link delete {}`", host.name))
    })
}

/// Removes the pairs of ports that this daemon no longer has: it was killed, or did not run when its
/// configuration changed.
pub(crate) fn remove_strays(ports: &[&PortConfig], state: &Path) {
    let is_wanted = |name: &str| {
        let is_it = |port: &&PortConfig| port.name.as_str() == name;
        ports.iter().any(|port| is_it(port) && matches!(port.device(), Device::Veth(_)))
    };
    let found = veth::described(ALIAS).unwrap_or_else(|error| {
        tracing::warn!(target: "control::devices", "veth pairs of removed ports are not looked for: {error}");
        Vec::new()
    });
    // Other daemons of this host describe theirs alike.
    let is_ours = |(end, name): &&(HostEnd, String)| *end == host_end(state, name);
    for (end, name) in found.iter().filter(is_ours).filter(|(_, name)| !is_wanted(name)) {
        match veth::remove(end) {
            Ok(()) => {
                tracing::info!(target: "control::devices", "port {name} was removed: its veth pair {} is deleted", end.name);
            }
            Err(error) => {
                tracing::warn!(target: "control::devices", "port {name} was removed: {error}")
            }
        }
    }
}

/// Returns the host's end of a port's pair.
fn host_end(state: &Path, port: &str) -> HostEnd {
    // The same for a directory that does not exist yet.
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let [a, b, c, d, e, f, name @ ..] =
        hash(&[b"veth", state.as_os_str().as_bytes(), port.as_bytes()]);
    let mut digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(DIGITS);
    HostEnd { name: format!("mill{digits}"), mac: Mac::local([a, b, c, d, e, f]) }
}

/// With `mill` they make the 15 bytes that a device's name may have.
const DIGITS: usize = 11;

/// An open pair.
struct VethWatch {
    /// The host's end, with what a packet port has.
    host: HostLink,
    /// The container's end.
    inside: HostLink,
    exposed: Vec<String>,
}

impl Watch for VethWatch {
    fn state(&self) -> DeviceState {
        let inside = self.inside.state();
        if inside.condition != Condition::Up {
            return inside;
        }
        let host = self.host.state();
        DeviceState { mtu: host.mtu.min(inside.mtu), ..host }
    }

    fn exposed(&self) -> &[String] {
        &self.exposed
    }

    fn links(&self) -> Vec<(String, u16)> {
        [self.host.links(), self.inside.links()].concat()
    }

    fn spread(&self) -> Spread {
        self.host.spread()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        let set = veth::set_mtu(&self.host.link, &self.inside.link, mtu.into());
        set.map_err(|error| Problem::new(error.to_string()))
    }

    fn set_mac(&self, mac: Mac) -> Result<bool, Problem> {
        let set = self.inside.link.set_mac(mac).map(|()| true);
        set.map_err(|error| Problem::new(error.to_string()))
    }
}

fn veth_denied(error: &VethError) -> bool {
    match error {
        VethError::Kernel { source, .. } => denied(source),
        VethError::Link(error) => link_denied(error),
        VethError::Foreign { .. } | VethError::Taken { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs that an earlier version made are found by their names.
    #[test]
    fn a_host_end_is_the_same_each_time_and_another_for_all_else() {
        let of = |state: &str, port: &str| host_end(Path::new(state), port);
        let first = of("/var/lib/millrace", "c1");
        assert_eq!(first, of("/var/lib/millrace", "c1"));
        assert_eq!(first.name.len(), 15);
        assert_eq!(first.mac.0[0] & 3, 2, "locally administered, of one station");
        for other in [of("/var/lib/millrace", "c2"), of("/var/lib/other", "c1")] {
            assert!(other.name != first.name && other.mac != first.mac);
        }
    }
}
