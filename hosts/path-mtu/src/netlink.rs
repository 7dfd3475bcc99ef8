//! Asks the kernel of the calling thread's network namespace by rtnetlink: which device a packet
//! leaves by, whether a neighbour answers, and which devices another is built on.
//!
//! `/sys/class/net` would not do: it shows the namespace it was mounted in.

use netlink::{ACK, DUMP, Socket, address, attribute, attributes, family, number, octets, of};
use rustix::io::{Errno, Result};
use rustix::net::netdevice::index_to_name;
use std::net::IpAddr;

const GET_LINK: u16 = 18;
const GET_ROUTE: u16 = 26;
const GET_NEIGHBOUR: u16 = 30;

/// The route that a packet takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The kernel's number of the device it leaves by.
    pub(crate) device: u32,
    /// The router it goes to; `None` if the destination is on the link.
    pub(crate) gateway: Option<IpAddr>,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// `NUD_*`.
    pub(crate) state: u16,
    /// Hundredths of a second since the neighbour last answered.
    pub(crate) confirmed: u32,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// `bond`, `vlan`, ...; empty for a NIC.
    pub(crate) kind: String,
    /// The device that it is a member of; 0 for none.
    pub(crate) master: u32,
    /// The device that it is built on; 0 for none.
    pub(crate) lower: u32,
}

/// An rtnetlink socket, which stays in the namespace it was opened in.
pub(crate) struct Netlink(Socket);

impl Netlink {
    pub(crate) fn open() -> Result<Netlink> {
        Socket::open().map(Netlink)
    }

    /// Returns the route of packets from one address to another, or from the thread's device
    /// `scope` if `to` needs one.
    pub(crate) fn route(&self, from: Option<IpAddr>, to: IpAddr, scope: u32) -> Result<Route> {
        let length = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        let from = from.filter(|from| from.is_ipv4() == to.is_ipv4() && !from.is_unspecified());
        // struct rtmsg: family, lengths of both prefixes, and nine bytes that a question leaves 0.
        let mut body = vec![family(to), length(to), from.map_or(0, length), 0];
        body.extend([0; 8]);
        attribute(&mut body, 1, &octets(to));
        if let Some(from) = from {
            attribute(&mut body, 2, &octets(from));
        }
        if scope > 0 {
            attribute(&mut body, 4, &scope.to_ne_bytes());
        }
        let answers = self.0.ask(GET_ROUTE, ACK, body)?;
        let route = |message: &Vec<u8>| {
            let all = attributes(message.get(12..)?);
            let device = number(of(&all, 4)?)?;
            Some(Route { device, gateway: of(&all, 5).and_then(address) })
        };
        answers.iter().find_map(route).ok_or(Errno::NOENT)
    }

    /// Returns a device's name.
    pub(crate) fn name(&self, device: u32) -> Result<String> {
        index_to_name(&self.0, device)
    }

    /// Returns a device's entry for a neighbour.
    pub(crate) fn neighbour(&self, device: u32, ip: IpAddr) -> Result<Option<Entry>> {
        // struct ndmsg: family, padding, device, state, flags, type.
        let mut body = vec![family(ip)];
        body.extend([0; 11]);
        let all = self.0.ask(GET_NEIGHBOUR, DUMP, body)?;
        let entry = |message: &Vec<u8>| {
            let (index, state) = (number(message.get(4..8)?)?, message.get(8..10)?);
            let all = attributes(message.get(12..)?);
            let is_it = index == device && address(of(&all, 1)?)? == ip;
            let confirmed = of(&all, 3).and_then(|it| number(it.get(..4)?)).unwrap_or(u32::MAX);
            let state = u16::from_ne_bytes(state.try_into().ok()?);
            is_it.then_some(Entry { state, confirmed })
        };
        Ok(all.iter().find_map(entry))
    }

    /// Returns all devices.
    pub(crate) fn devices(&self) -> Result<Vec<Device>> {
        // struct ifinfomsg: family, padding, type, index, flags, change.
        let all = self.0.ask(GET_LINK, DUMP, vec![0; 16])?;
        let device = |message: &Vec<u8>| {
            let all = attributes(message.get(16..)?);
            let word = |kind| of(&all, kind).and_then(|it| number(it.get(..4)?)).unwrap_or(0);
            // A device whose lower one is in another namespace has its number there.
            let lower = if of(&all, 37).is_some() { 0 } else { word(5) };
            let info = attributes(of(&all, 18).unwrap_or_default());
            Some(Device {
                index: number(message.get(4..8)?)?,
                name: text(of(&all, 3)?),
                mtu: word(4),
                kind: of(&info, 1).map(text).unwrap_or_default(),
                master: word(10),
                lower,
            })
        };
        Ok(all.iter().filter_map(device).collect())
    }
}

/// Reads a text that ends with a zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_of_a_text_panic(bytes: Vec<u8>) {
            let _ = text(&bytes);
        }
    }

    #[test]
    fn loopback_is_the_route_to_an_address_of_this_host() {
        let netlink = Netlink::open().unwrap();
        let devices = netlink.devices().unwrap();
        let lo = devices.iter().find(|device| device.name == "lo").unwrap();
        assert_eq!((lo.mtu, lo.master, lo.lower), (65536, 0, 0));
        let route = netlink.route(None, IpAddr::from([127, 0, 0, 9]), 0).unwrap();
        assert_eq!(route, Route { device: lo.index, gateway: None });
        assert_eq!(netlink.name(lo.index).as_deref(), Ok("lo"));
        assert_eq!(netlink.neighbour(lo.index, IpAddr::from([127, 0, 0, 9])), Ok(None));
    }
}
