//! Where a host's address is attached: its device, the devices below that, its subnet, and the
//! host itself.
//!
//! A responder tells it to the checker, which then probes only where packets of one network go, and
//! names only devices that they pass.

use crate::interface::{Address, addresses};
use crate::netlink::{Device, Netlink, Route};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Most devices below one that are told of.
pub const BELOW: usize = 6;
/// Levels of devices that are followed: a VLAN on a bond has two.
const LEVELS: usize = 4;

/// Where an address is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// A number that all addresses of one host share, and of no other host; 0 if it is not known.
    pub host: u64,
    /// The device that has the address; empty if it is not known.
    pub interface: String,
    /// The MTU of that device; 0 if it is not known.
    pub mtu: u16,
    /// Length of the subnet's prefix.
    pub prefix: Option<u8>,
    /// Devices that it is built on whose MTU is smaller: a bond's members, the device under a VLAN.
    pub below: Vec<Below>,
}

/// A device below another, with a smaller MTU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Below {
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: u16,
}

/// Whether a peer in the sender's own subnet answered ARP or neighbour discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// Not known: behind a router, or the last answer is old.
    #[default]
    Unknown,
    /// It answered a moment ago.
    Answers,
    /// It does not answer.
    Silent,
}

impl Attachment {
    /// Returns where an address of the calling thread's network namespace is attached.
    pub(crate) fn of(ip: IpAddr) -> Attachment {
        let ip = ip.to_canonical();
        let all = addresses().unwrap_or_default();
        let mut attachment = Attachment { host: host(&all), ..Attachment::default() };
        let Some(own) = all.iter().find(|address| address.ip == ip) else { return attachment };
        attachment.interface.clone_from(&own.interface);
        attachment.prefix = Some(own.prefix());
        let devices = Netlink::open().and_then(|netlink| netlink.devices()).unwrap_or_default();
        if let Some(device) = devices.iter().find(|device| device.name == own.interface) {
            attachment.mtu = short(device.mtu);
            attachment.below = below(&devices, device);
        }
        attachment
    }

    /// Returns the subnet of an address attached here.
    pub(crate) fn subnet(&self, ip: IpAddr) -> Option<Subnet> {
        self.prefix.map(|prefix| Subnet { ip: ip.to_canonical(), prefix })
    }
}

/// Returns a number of the host whose addresses these are. No two hosts have the same addresses.
fn host(all: &[Address]) -> u64 {
    let mut names: Vec<_> = all.iter().map(|it| (it.ip, it.interface.as_str())).collect();
    names.sort_unstable();
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    hasher.finish().max(1)
}

/// Returns the devices below one that have a smaller MTU. A bridge's ports are not below it: its
/// packets leave by one of them, and those of guests may well be smaller.
fn below(devices: &[Device], top: &Device) -> Vec<Below> {
    let (mut found, mut level) = (Vec::new(), vec![top]);
    for _ in 0..LEVELS {
        let is_team = |it: &Device| ["bond", "team"].contains(&it.kind.as_str());
        let is_below = |it: &Device, upper: &Device| {
            it.index != upper.index
                && (it.master == upper.index && is_team(upper)
                    || it.index == upper.lower
                        && ["vlan", "macvlan"].contains(&upper.kind.as_str()))
        };
        let next = devices.iter().filter(|it| level.iter().any(|upper| is_below(it, upper)));
        level = next.collect();
        found.extend(level.iter().filter(|it| it.mtu < top.mtu));
    }
    let told = |it: &&Device| Below { name: it.name.clone(), mtu: short(it.mtu) };
    found.iter().take(BELOW).map(told).collect()
}

fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// An address with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix.
    pub prefix: u8,
}

impl Subnet {
    /// Whether an address is in this subnet.
    pub fn has(&self, other: IpAddr) -> bool {
        self.ip.is_ipv4() == other.is_ipv4() && self.network(self.ip) == self.network(other)
    }

    /// Whether both ends see each other in their own subnet.
    pub fn is_same(&self, other: &Subnet) -> bool {
        self.has(other.ip) && other.has(self.ip)
    }

    fn network(&self, ip: IpAddr) -> u128 {
        let (bits, length) = match ip {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let host_bits = u32::saturating_sub(length, self.prefix.into());
        bits.checked_shr(host_bits).unwrap_or(0)
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host_bits, network) = match self.ip {
            IpAddr::V4(_) => (32, self.network(self.ip)),
            IpAddr::V6(_) => (128, self.network(self.ip)),
        };
        let bits = network.checked_shl(u32::saturating_sub(host_bits, self.prefix.into()));
        let bits = bits.unwrap_or(0);
        let ip = match self.ip {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(bits).unwrap_or_default().to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(bits.to_be_bytes()),
        };
        write!(f, "{ip}/{}", self.prefix)
    }
}

/// Returns the route of packets from an address of the calling thread's network namespace, with its
/// device's name.
pub(crate) fn route(from: Option<IpAddr>, to: SocketAddr) -> Option<(Route, String)> {
    let scope = if let SocketAddr::V6(to) = to { to.scope_id() } else { 0 };
    let netlink = Netlink::open().ok()?;
    let route = netlink.route(from, to.ip().to_canonical(), scope).ok()?;
    let name = netlink.name(route.device).ok()?;
    Some((route, name))
}

/// Returns whether a peer answers, if a route goes to it without a router. An answer counts from a
/// second before `since` on: the kernel keeps entries of peers that have gone.
pub(crate) fn neighbour(route: &Route, to: IpAddr, since: Instant) -> Neighbour {
    /// `NUD_INCOMPLETE`, `NUD_FAILED`; and the states with a peer's address that was learned.
    const SILENT: u16 = 0x01 | 0x20;
    const LEARNED: u16 = 0x02 | 0x04 | 0x08 | 0x10;
    if route.gateway.is_some() {
        return Neighbour::Unknown;
    }
    let within = (since.elapsed() + Duration::from_secs(1)).as_millis() / 10;
    let entry = Netlink::open().and_then(|it| it.neighbour(route.device, to.to_canonical()));
    match entry {
        Ok(Some(entry)) if entry.state & SILENT != 0 => Neighbour::Silent,
        Ok(Some(entry)) if entry.state & LEARNED != 0 && u128::from(entry.confirmed) <= within => {
            Neighbour::Answers
        }
        _ => Neighbour::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(index: u32, name: &str, mtu: u32, kind: &str) -> Device {
        Device { index, name: name.into(), mtu, kind: kind.into(), ..Device::default() }
    }

    /// The cause of seed 004: jumbo frames on some member NICs and not on others.
    #[test]
    fn a_bonds_smaller_member_is_below_the_vlan_on_it() {
        let all = [
            Device { lower: 2, ..device(1, "lan.10", 9000, "vlan") },
            device(2, "bond0", 9000, "bond"),
            Device { master: 2, ..device(3, "eth0", 9000, "") },
            Device { master: 2, ..device(4, "eth1", 1500, "") },
            device(5, "br0", 9000, "bridge"),
            Device { master: 5, ..device(6, "vnet0", 1500, "tun") },
            device(7, "eth2", 1500, ""),
        ];
        let eth1 = vec![Below { name: "eth1".into(), mtu: 1500 }];
        assert_eq!((below(&all, &all[0]), below(&all, &all[1])), (eth1.clone(), eth1));
        assert_eq!((below(&all, &all[4]), below(&all, &all[2])), (vec![], vec![]));
    }

    #[test]
    fn loopback_is_attached_with_its_prefix() {
        let lo = Attachment::of(IpAddr::from([127, 0, 0, 1]));
        assert_eq!((lo.interface.as_str(), lo.prefix, lo.below.len()), ("lo", Some(8), 0));
        let none = Attachment::of(IpAddr::from([192, 0, 2, 77]));
        assert_eq!((none.host, none.prefix), (lo.host, None));
    }

    #[test]
    fn a_subnet_is_shown_by_its_first_address() {
        let shown = |ip: &str, prefix| Subnet { ip: ip.parse().unwrap(), prefix }.to_string();
        assert_eq!(shown("10.67.3.9", 22), "10.67.0.0/22");
        assert_eq!(shown("10.67.3.9", 0), "0.0.0.0/0");
        assert_eq!(shown("fd00::9:1", 112), "fd00::9:0/112");
        assert_eq!(shown("fd00::1", 0), "::/0");
    }

    proptest! {
        #[test]
        fn addresses_share_a_subnet_if_their_first_bits_are_equal(
            one: u32, other: u32, prefix in 0..=32u8,
        ) {
            let end = |ip: u32| Subnet { ip: IpAddr::from(ip.to_be_bytes()), prefix };
            let first = |ip: u32| u64::from(ip) >> (32 - prefix);
            prop_assert_eq!(end(one).is_same(&end(other)), first(one) == first(other));
            prop_assert!(!end(one).has(IpAddr::from([0; 16])));
        }
    }
}
