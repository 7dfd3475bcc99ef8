//! Asks the kernel of the calling thread's network namespace by rtnetlink: which device a packet
//! leaves by, whether a neighbour answers, and which devices another is built on.
//!
//! A message is a header (length, kind, flags, sequence, sender), a struct by kind, and attributes
//! (length, kind, value), all in the host's byte order and padded to 4 bytes. See rtnetlink(7).
//! `/sys/class/net` would not do: it shows the namespace it was mounted in.

use rustix::io::{Errno, Result};
use rustix::net::netdevice::index_to_name;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const HEADER: usize = 16;

/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

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
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    pub(crate) fn open() -> Result<Netlink> {
        // Protocol 0 is NETLINK_ROUTE.
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink(socket))
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
        let answers = self.ask(GET_ROUTE, ACK, body)?;
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
        let all = self.ask(GET_NEIGHBOUR, DUMP, body)?;
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
        let all = self.ask(GET_LINK, DUMP, vec![0; 16])?;
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

    /// Sends a message and reads until the answer ends. Returns the bodies of the messages in the
    /// answer.
    fn ask(&self, kind: u16, flags: u16, body: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let length = u32::try_from(HEADER + body.len()).map_err(|_| Errno::MSGSIZE)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let (mut bodies, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let (count, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some((kind, body, next)) = split(rest) {
                match kind {
                    DONE => return Ok(bodies),
                    ERROR => return error_in(body).map_or(Ok(bodies), Err),
                    _ => bodies.push(body.to_vec()),
                }
                rest = next;
            }
        }
    }
}

/// Splits off the first message. Returns its kind, its body, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(number(bytes.get(..4)?)?).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, bytes.get(HEADER..length)?, next))
}

/// Returns the error in an error message; `None` if it is an acknowledgement (0).
fn error_in(body: &[u8]) -> Option<Errno> {
    match number(body.get(..4)?)?.cast_signed() {
        0 => None,
        code @ -4095..=-1 => Some(Errno::from_raw_os_error(-code)),
        _ => Some(Errno::PROTO),
    }
}

fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Some(head) = bytes.first_chunk::<4>() {
        let [a, b, c, d] = *head;
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = bytes.get(4..length) else { break };
        // The upper bits say that attributes are nested in it.
        all.push((kind & 0x3fff, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn of<'b>(attributes: &[(u16, &'b [u8])], kind: u16) -> Option<&'b [u8]> {
    attributes.iter().find(|(is, _)| *is == kind).map(|(_, value)| *value)
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Reads a text that ends with a zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    u8::try_from(family.as_raw()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(bytes: Vec<u8>) {
            let _ = (split(&bytes), attributes(&bytes), error_in(&bytes), text(&bytes));
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
