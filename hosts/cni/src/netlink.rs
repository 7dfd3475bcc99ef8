//! Sets and reads addresses and routes of the calling thread's network namespace by rtnetlink, so
//! `ip` need not be installed.

use crate::address::Cidr;
use netlink::{ACK, DUMP, Socket, address, attribute, attributes, family, number, octets, of};
use rustix::io::Result;
use std::net::{IpAddr, Ipv4Addr};
use wire::Mac;

/// `NLM_F_CREATE | NLM_F_REPLACE`.
const SET: u16 = 0x500;
/// `NLM_F_CREATE | NLM_F_EXCL`.
const NEW: u16 = 0x600;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

/// A route to add, with its metrics.
pub(crate) struct NewRoute {
    pub(crate) to: Cidr,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) mtu: Option<u32>,
    pub(crate) advmss: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) table: Option<u32>,
    pub(crate) scope: Option<u8>,
}

/// An rtnetlink socket, which stays in the namespace it was opened in.
pub(crate) struct Netlink(Socket);

impl Netlink {
    /// Opens a socket.
    pub(crate) fn open() -> Result<Netlink> {
        Socket::open().map(Netlink)
    }

    /// Sets a link's Ethernet address.
    pub(crate) fn set_mac(&self, link: u32, mac: Mac) -> Result<()> {
        // struct ifinfomsg: family, device type, index, flags, change.
        let mut body = vec![0; 16];
        put(&mut body, 4, &link.to_ne_bytes());
        attribute(&mut body, 1, &mac.0);
        self.0.ask(NEW_LINK, ACK, body).map(drop)
    }

    /// Gives a link an address that is usable at once, without duplicate address detection: the
    /// IPAM plugin ensures that it is unique.
    pub(crate) fn add_address(&self, link: u32, address: Cidr) -> Result<()> {
        const NO_DUPLICATE_DETECTION: u8 = 0x02;
        let flags = if address.ip.is_ipv6() { NO_DUPLICATE_DETECTION } else { 0 };
        let mut body = vec![family(address.ip), address.len, flags, 0];
        body.extend(link.to_ne_bytes());
        // IFA_ADDRESS, the peer's address, which on a link that is not point-to-point is our own;
        // and IFA_LOCAL, our own.
        attribute(&mut body, 1, &octets(address.ip));
        attribute(&mut body, 2, &octets(address.ip));
        self.0.ask(NEW_ADDRESS, ACK | SET, body).map(drop)
    }

    /// Adds a route by a link.
    pub(crate) fn add_route(&self, link: u32, route: &NewRoute) -> Result<()> {
        const MAIN: u32 = 254;
        const STATIC: u8 = 4;
        const LINK_SCOPE: u8 = 253;
        const UNICAST: u8 = 1;
        let to = route.to.network();
        let table = route.table.unwrap_or(MAIN);
        let by_default = if route.gateway.is_some() || to.ip.is_ipv6() { 0 } else { LINK_SCOPE };
        let scope = route.scope.unwrap_or(by_default);
        // struct rtmsg; tables over 255 are in the attribute alone.
        let small = u8::try_from(table).unwrap_or(0);
        let mut body = vec![family(to.ip), to.len, 0, 0, small, STATIC, scope, UNICAST, 0, 0, 0, 0];
        attribute(&mut body, 1, &octets(to.ip));
        attribute(&mut body, 4, &link.to_ne_bytes());
        attribute(&mut body, 15, &table.to_ne_bytes());
        if let Some(gateway) = route.gateway {
            attribute(&mut body, 5, &octets(gateway));
        }
        if let Some(priority) = route.priority {
            attribute(&mut body, 6, &priority.to_ne_bytes());
        }
        let mut metrics = Vec::new();
        for (kind, value) in [(2, route.mtu), (8, route.advmss)] {
            if let Some(value) = value {
                attribute(&mut metrics, kind, &value.to_ne_bytes());
            }
        }
        if !metrics.is_empty() {
            attribute(&mut body, 8, &metrics);
        }
        self.0.ask(NEW_ROUTE, ACK | NEW, body).map(drop)
    }

    /// Returns the addresses of a link.
    pub(crate) fn addresses(&self, link: u32) -> Result<Vec<Cidr>> {
        let all = self.0.ask(GET_ADDRESS, DUMP, vec![0; 8])?;
        let address = |message: &Vec<u8>| {
            let len = *message.get(1)?;
            let all = attributes(message.get(8..)?);
            let value = of(&all, 2).or(of(&all, 1))?;
            let is_ours = number(message.get(4..8)?)? == link;
            Some(Cidr { ip: address(value)?, len }).filter(|_| is_ours)
        };
        Ok(all.iter().filter_map(address).collect())
    }

    /// Returns the destinations of all routes, each with its gateway.
    pub(crate) fn routes(&self) -> Result<Vec<(Cidr, Option<IpAddr>)>> {
        let all = self.0.ask(GET_ROUTE, DUMP, vec![0; 12])?;
        let route = |message: &Vec<u8>| {
            let (kind, len) = (*message.first()?, *message.get(1)?);
            let all = attributes(message.get(12..)?);
            let is_v4 = kind == family(Ipv4Addr::UNSPECIFIED.into());
            let anywhere = if is_v4 { [0; 4].into() } else { [0; 16].into() };
            let ip = of(&all, 1).map_or(Some(anywhere), address)?;
            Some((Cidr { ip, len }, of(&all, 5).and_then(address)))
        };
        Ok(all.iter().filter_map(route).collect())
    }
}

fn put(body: &mut [u8], place: usize, value: &[u8]) {
    body.iter_mut().skip(place).zip(value).for_each(|(place, byte)| *place = *byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::link::Link;
    use rustix::io::Errno;

    #[test]
    fn what_is_set_is_there() {
        let seen = ports::namespace::fresh(|| {
            let link = Link::open("lo", None).unwrap();
            link.set_up(true).unwrap();
            let (netlink, index) = (Netlink::open().unwrap(), link.index().unwrap());
            for address in ["10.1.0.5/16", "10.2.0.5/24", "fd00::5/64"] {
                netlink.add_address(index, address.parse().unwrap()).unwrap();
            }
            let route = NewRoute {
                to: "10.3.0.9/16".parse().unwrap(),
                gateway: Some("10.1.0.1".parse().unwrap()),
                mtu: Some(1300),
                advmss: Some(1000),
                priority: Some(7),
                table: Some(1000),
                scope: None,
            };
            netlink.add_route(index, &route).unwrap();
            assert_eq!(netlink.add_route(index, &route), Err(Errno::EXIST));
            (netlink.addresses(index).unwrap(), netlink.routes().unwrap())
        });
        let (addresses, routes) = match seen {
            Ok(seen) => seen,
            Err(error) => {
                return println!("skipped: needs the right to make a network namespace: {error}");
            }
        };
        for address in ["10.1.0.5/16", "10.2.0.5/24", "fd00::5/64"] {
            assert!(addresses.contains(&address.parse().unwrap()), "{address}: {addresses:?}");
        }
        let route = ("10.3.0.0/16".parse().unwrap(), Some("10.1.0.1".parse().unwrap()));
        assert!(routes.contains(&route), "{routes:?}");
    }
}
