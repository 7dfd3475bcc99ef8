//! The device of a port, as one value in place of the six keys that may name it.

use super::{HostName, PortConfig, SocketPath};
use std::fmt;

/// The device that a port's keys name.
///
/// [`PortConfig`] stores the keys and not this enum. serde reads an enum among other keys only by
/// `flatten`, which accepts unknown keys and loses the line of an error. And the rule that exactly
/// one key names the device can then be checked with the others, and names both keys that exclude
/// each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device<'p> {
    /// No key names a device, which the rules refuse.
    None,
    /// A TAP device, created if it does not exist.
    Tap(&'p HostName),
    /// A container's end of a veth pair, which is created if it does not exist.
    Veth(&'p HostName),
    /// A network device of the host, by AF_PACKET.
    Packet(&'p HostName),
    /// Network devices of the host that are one uplink together.
    Team(&'p [HostName]),
    /// A network device of the host, by AF_XDP.
    Xdp(&'p HostName),
    /// The socket of a guest.
    VhostUser(&'p SocketPath),
}

impl PortConfig {
    /// Returns the port's device. If several keys name one, which the rules refuse, it is the first
    /// of `PortConfig::devices`.
    pub fn device(&self) -> Device<'_> {
        self.devices().next().unwrap_or(Device::None)
    }

    /// Returns the devices that the keys name: one, unless a rule is broken.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        let found = [
            self.tap.as_ref().map(Device::Tap),
            self.veth.as_ref().map(Device::Veth),
            self.packet.as_ref().map(Device::Packet),
            self.team.as_deref().map(Device::Team),
            self.xdp.as_ref().map(Device::Xdp),
            self.vhost_user.as_ref().map(Device::VhostUser),
        ];
        found.into_iter().flatten()
    }

    /// Returns the members of the port's team; empty if the port is not a team.
    pub fn members(&self) -> Vec<String> {
        match self.device() {
            team @ Device::Team(_) => team.names(),
            _ => Vec::new(),
        }
    }
}

impl Device<'_> {
    /// Returns the key that names the device; empty if none does.
    pub fn key(&self) -> &'static str {
        match self {
            Device::None => "",
            Device::Tap(_) => "tap",
            Device::Veth(_) => "veth",
            Device::Packet(_) => "packet",
            Device::Team(_) => "team",
            Device::Xdp(_) => "xdp",
            Device::VhostUser(_) => "vhost-user",
        }
    }

    /// Returns the names of what is opened: of the network device, of each member of the team, or
    /// of the socket.
    pub fn names(&self) -> Vec<String> {
        match self {
            Device::None => Vec::new(),
            Device::Tap(name) | Device::Veth(name) | Device::Packet(name) | Device::Xdp(name) => {
                vec![name.to_string()]
            }
            Device::Team(members) => members.iter().map(HostName::to_string).collect(),
            Device::VhostUser(socket) => vec![socket.to_string()],
        }
    }

    /// Returns whether frames pass one network device of the host, which the switch does not make.
    pub fn is_interface(&self) -> bool {
        matches!(self, Device::Packet(_) | Device::Xdp(_))
    }

    /// Returns whether the switch makes the network device, which is its user's: its address is that
    /// of the user.
    pub fn is_made(&self) -> bool {
        matches!(self, Device::Tap(_) | Device::Veth(_))
    }

    /// Returns whether several network devices of the host are one uplink.
    pub fn is_team(&self) -> bool {
        matches!(self, Device::Team(_))
    }

    /// Returns whether frames pass a guest's rings.
    pub fn is_guest(&self) -> bool {
        matches!(self, Device::VhostUser(_))
    }
}

/// The kind and name of the device, as in `tap tap1` or `vhost-user /run/millrace/vm1.sock`.
impl fmt::Display for Device<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::None => out.write_str("no device"),
            device => write!(out, "{} {}", device.key(), device.names().join("+")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_device_is_shown_as_the_key_and_what_it_names() {
        for (keys, shown) in [
            ("tap='tap1'", "tap tap1"),
            ("veth='eth0'\nnetns='c1'", "veth eth0"),
            ("packet='eth1'", "packet eth1"),
            ("xdp='eth1'", "xdp eth1"),
            ("team=['eth1','eth2']", "team eth1+eth2"),
            ("vhost-user='/run/vm1'", "vhost-user /run/vm1"),
        ] {
            let text = format!("[[port]]\nname='a'\n{keys}");
            let config = Config::from_toml("t", &text).unwrap();
            assert_eq!(config.ports[0].device().to_string(), shown);
        }
        assert_eq!(PortConfig::default().device().to_string(), "no device");
    }
}
