//! What a person has to do after a port of a TAP is opened anew: a device that the switch made is
//! made anew, too, and has lost its addresses.

use api::body::PortBody;
use config::Device;
use path_mtu::Address;
use ports::link::Link;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A TAP, and the addresses of its link that a person assigned.
pub(crate) struct Tap {
    device: String,
    netns: Option<PathBuf>,
    /// The kernel's number of the device; one that is made anew has another.
    index: Option<u32>,
    mac: Option<String>,
    addresses: Vec<Address>,
}

impl Tap {
    /// Reads the addresses of a port's TAP. Returns `None` for other ports. A device that cannot be
    /// read from here has no addresses.
    pub(crate) fn of(port: &PortBody) -> Option<Tap> {
        let Device::Tap(device) = port.config.device() else { return None };
        let (device, netns) = (device.to_string(), port.config.netns_path());
        let listed = ports::namespace::within(netns.as_deref(), path_mtu::addresses);
        let mut addresses = listed.ok().and_then(Result::ok).unwrap_or_default();
        addresses.retain(|it| it.interface == device && !is_automatic(it));
        let index = index(&device, netns.as_deref());
        Some(Tap { device, netns, index, mac: port.mac.clone(), addresses })
    }

    /// Returns what was lost by a change of the port; `None` if nothing was.
    pub(crate) fn lost_by(self, after: &PortBody) -> Option<String> {
        let Device::Tap(device) = after.config.device() else { return None };
        let (device, netns) = (device.to_string(), after.config.netns_path());
        let index = index(&device, netns.as_deref());
        let is_same = (&device, &netns, index) == (&self.device, &self.netns, self.index);
        if is_same || self.addresses.is_empty() {
            return None;
        }
        let is_known = self.mac == after.mac;
        let lost = Tap { device, netns, ..self }.loses();
        let mac = "Its MAC address is new: a ping from there tells its neighbours";
        Some(if is_known { lost } else { format!("{lost}. {mac}") })
    }

    /// Returns the first IPv4 address.
    pub(crate) fn ipv4(&self) -> Option<String> {
        let ipv4 = self.addresses.iter().find(|it| it.ip.is_ipv4());
        ipv4.map(|address| address.ip.to_string())
    }

    /// Returns the device's name, with its namespace.
    pub(crate) fn name(&self) -> String {
        match &self.netns {
            None => self.device.clone(),
            Some(netns) => format!("{} in {}", self.device, netns.display()),
        }
    }

    /// Returns what starts a command in the device's namespace.
    pub(crate) fn prefix(&self) -> String {
        prefix(self.netns.as_deref())
    }

    /// Returns what is lost when the port opens anew, and the commands that give it back.
    pub(crate) fn loses(&self) -> String {
        let (prefix, device) = (self.prefix(), &self.device);
        let give = |address: &Address| {
            format!("`{prefix}ip address add {}/{} dev {device}`, ", address.ip, address.prefix())
        };
        let mut given: String = self.addresses.iter().map(give).collect();
        if given.is_empty() {
            given = format!("`{prefix}ip address add ADDRESS/PREFIX dev {device}`, ");
        }
        format!(
            "the port opens anew, and {device} with it: give it its addresses (and routes) again: {given}`{prefix}ip \
             link set {device} up`. A TAP that `ip tuntap add {device} mode tap multi_queue` made before \
             the port keeps all of it"
        )
    }
}

/// Returns the kernel's number of a device; `None` if it cannot be read from here.
fn index(device: &str, netns: Option<&Path>) -> Option<u32> {
    Link::open(device, netns).ok()?.index().ok()
}

/// Returns what starts a command in a namespace.
pub(crate) fn prefix(netns: Option<&Path>) -> String {
    netns.map(|path| format!("nsenter --net={} ", path.display())).unwrap_or_default()
}

/// Returns whether the kernel assigns an address by itself.
fn is_automatic(address: &Address) -> bool {
    match address.ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `port set NAME queues=N` was advised, and took a container's address away.
    #[test]
    fn what_is_lost_is_given_back_by_commands() {
        let address = |ip: &str, mask: &str| Address {
            interface: "eth0".into(),
            ip: ip.parse().unwrap(),
            mask: mask.parse().unwrap(),
        };
        let addresses =
            vec![address("10.0.0.3", "255.255.255.0"), address("fd00::3", "ffff:ffff::")];
        let (device, netns) = ("eth0".into(), Some("/run/netns/c1".into()));
        let tap = Tap { device, netns, index: None, mac: None, addresses };
        let said = tap.loses();
        for command in [
            "`nsenter --net=/run/netns/c1 ip address add 10.0.0.3/24 dev eth0`",
            "`nsenter --net=/run/netns/c1 ip address add fd00::3/32 dev eth0`",
            "`nsenter --net=/run/netns/c1 ip link set eth0 up`",
        ] {
            assert!(said.contains(command), "{command} is missing: {said}");
        }
        let unknown = Tap { device: "tap0".into(), netns: None, addresses: Vec::new(), ..tap };
        assert!(unknown.loses().contains("`ip address add ADDRESS/PREFIX dev tap0`"));
        assert!(is_automatic(&address("fe80::1", "ffff::")));
    }
}
