//! The pod's side of a port: its interface, in the pod's network namespace.

use crate::address::Cidr;
use crate::error::CniError;
use crate::netlink::{Netlink, NewRoute};
use crate::outcome::Outcome;
use config::{HostName, MacAddress, Namespace};
use ports::link::{Link, LinkError};
use ports::{Announced, namespace, packet};
use rustix::io::Errno;
use std::fmt::Display;
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

/// How often a pod's addresses are announced: RFC 5227 has two announcements.
const ANNOUNCEMENTS: u32 = 2;
/// Time between two announcements. RFC 5227 has 2 s, but a runtime waits for the plugin; this is
/// the kernel's own for a bond that repeats its announcements.
const BETWEEN: Duration = Duration::from_millis(100);

/// An interface of a pod, by its name and namespace. It need not exist.
pub(crate) struct Pod<'a> {
    pub(crate) netns: &'a Namespace,
    pub(crate) interface: &'a HostName,
}

/// The current state of an interface.
pub(crate) struct Seen {
    pub(crate) mac: String,
    pub(crate) is_up: bool,
    pub(crate) addresses: Vec<Cidr>,
    /// Routes of the whole pod, as a result may include other plugins' routes.
    pub(crate) routes: Vec<(Cidr, Option<IpAddr>)>,
}

impl Pod<'_> {
    /// Whether there is an interface of that name.
    pub(crate) fn has_interface(&self) -> Result<bool, CniError> {
        self.within(|link| match link.index() {
            Ok(_) => Ok(true),
            Err(LinkError::NoSuchLink { .. }) => Ok(false),
            Err(error) => Err(self.failed("cannot be asked about", error)),
        })
    }

    /// Gives the interface its MAC address and brings it up. Returns its MTU. The interface is down
    /// while its MAC address changes, so that its link-local address is made from the new one.
    pub(crate) fn set_up(&self, mac: MacAddress) -> Result<u32, CniError> {
        self.within(|link| {
            let failed = |error: LinkError| self.failed("cannot be set up", error);
            let index = link.index().map_err(failed)?;
            let netlink =
                Netlink::open().map_err(|error| self.failed("cannot be set up", error))?;
            link.set_up(false).map_err(failed)?;
            netlink
                .set_mac(index, mac.0)
                .map_err(|error| self.failed("takes no MAC address", error))?;
            // The kernel then announces the addresses if a later plugin changes the MAC address.
            self.set_kernel("ipv4", "arp_notify", "1");
            self.set_kernel("ipv6", "ndisc_notify", "1");
            link.set_up(true).map_err(failed)?;
            link.mtu().map_err(failed)
        })
    }

    /// Gives the interface addresses and routes. A route whose place is taken (by another
    /// interface's default route, for example, or by the kernel's own for the address) is left out
    /// of the outcome.
    pub(crate) fn configure(&self, outcome: &mut Outcome) -> Result<(), CniError> {
        self.within(|link| {
            let failed = |error: &dyn Display| self.failed("cannot be set up", error);
            let index = link.index().map_err(|error| failed(&error))?;
            let netlink = Netlink::open().map_err(|error| failed(&error))?;
            self.allow_ipv6(outcome);
            for ip in &outcome.ips {
                netlink.add_address(index, ip.address).map_err(|error| {
                    self.failed(&format!("does not take address {}", ip.address), error)
                })?;
            }
            let mut kept = Vec::new();
            for route in &outcome.routes {
                let new_route = NewRoute {
                    to: route.dst,
                    gateway: outcome.gateway(route),
                    mtu: route.mtu,
                    advmss: route.advmss,
                    priority: route.priority,
                    table: route.table,
                    scope: route.scope,
                };
                match netlink.add_route(index, &new_route) {
                    Ok(()) => kept.push(route.clone()),
                    Err(Errno::EXIST) => {}
                    Err(error) => {
                        let what = format!("does not take the route to {}", route.dst);
                        return Err(self.failed(&what, error));
                    }
                }
            }
            outcome.routes = kept;
            Ok(())
        })
    }

    /// Tells neighbours and switches that the addresses are at this interface now: the pod that had
    /// them before may still be in their caches. An announcement that cannot be sent is no error,
    /// because the caches expire.
    pub(crate) fn announce(&self, mac: MacAddress, outcome: &Outcome) {
        let addresses = outcome.ips.iter().map(|ip| ip.address.ip).collect();
        let frames = Announced { tagged: Vec::new(), addresses }.frames(mac.0);
        let _ = self.within(|link| {
            for round in 0..ANNOUNCEMENTS {
                if round > 0 {
                    sleep(BETWEEN);
                }
                let _ = link.index().map(|index| packet::send_once(index, &frames));
            }
            Ok(())
        });
    }

    /// Returns the current state of the interface; `None` if there is none of that name.
    pub(crate) fn look(&self) -> Result<Option<Seen>, CniError> {
        self.within(|link| {
            let failed = |error: &dyn Display| self.failed("cannot be asked about", error);
            let index = match link.index() {
                Ok(index) => index,
                Err(LinkError::NoSuchLink { .. }) => return Ok(None),
                Err(error) => return Err(failed(&error)),
            };
            let netlink = Netlink::open().map_err(|error| failed(&error))?;
            Ok(Some(Seen {
                mac: link.mac().map_err(|error| failed(&error))?.to_string(),
                is_up: link.is_up().map_err(|error| failed(&error))?,
                addresses: netlink.addresses(index).map_err(|error| failed(&error))?,
                routes: netlink.routes().map_err(|error| failed(&error))?,
            }))
        })
    }

    /// Turns IPv6 on for the interface if it gets IPv6 addresses: runtimes often turn it off for
    /// new interfaces. If this fails, setting the address fails with an error.
    fn allow_ipv6(&self, outcome: &Outcome) {
        if outcome.ips.iter().any(|ip| ip.address.ip.is_ipv6()) {
            self.set_kernel("ipv6", "disable_ipv6", "0");
        }
    }

    /// Changes a setting of the interface in the kernel, if it has it and may be written.
    fn set_kernel(&self, family: &str, key: &str, value: &str) {
        let file = format!("/proc/sys/net/{family}/conf/{}/{key}", self.interface);
        let _ = std::fs::write(file, value);
    }

    fn within<T: Send>(
        &self,
        work: impl FnOnce(&Link) -> Result<T, CniError> + Send,
    ) -> Result<T, CniError> {
        let done = namespace::within(Some(&self.netns.path()), || {
            let link = Link::open(self.interface.as_str(), None);
            work(&link.map_err(|error| self.failed("cannot be asked about", error))?)
        });
        done.map_err(|error| {
            CniError::new(
                CniError::POD,
                format!("cannot enter the namespace {}", self.netns),
                error,
            )
        })?
    }

    fn failed(&self, what: &str, error: impl Display) -> CniError {
        let interface = format!("interface {} in {}", self.interface, self.netns);
        CniError::new(CniError::POD, format!("{interface} {what}"), error)
    }
}
