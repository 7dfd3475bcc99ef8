//! Guards of a port: frames that it may not send, whatever its rules and VLANs are. Named after
//! Hyper-V's `DhcpGuard` and `RouterGuard`; `ip_guard` holds a port to its own IP addresses.
//!
//! A guard drops frames that it cannot read ([`Upper::Hidden`]), as RFC 7113 and RFC 7610 require.
//! It tests only headers, so a train is checked once for all its segments.

use crate::counters::DropReason;
use wire::upper::{ICMP, ICMPV6, Upper, ports};
use wire::{Parsed, Prefix, Traits, udp};

/// What a port is kept from sending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guards {
    /// Drops DHCP and DHCPv6 messages of a server or relay: from the servers' ports or to the
    /// clients'.
    pub dhcp: bool,
    /// Drops ICMP and ICMPv6 router advertisements and redirects.
    pub router: bool,
    /// Drops source addresses other than these, in IP, ARP and neighbour discovery.
    pub addresses: Option<Vec<Prefix>>,
}

/// One frame before the guards. Its functions return `None` if the bytes that they read do not
/// exist.
struct Suspect<'f> {
    headers: &'f [u8],
    parsed: &'f Parsed,
    upper: Upper,
}

impl Guards {
    /// Returns the guard that drops the frame as an error.
    pub(crate) fn check(&self, headers: &[u8], parsed: &Parsed) -> Result<(), DropReason> {
        let headers = headers.get(..parsed.end as usize).unwrap_or(headers);
        let suspect = Suspect { headers, parsed, upper: Upper::of(headers, parsed) };
        let passes = |is: Option<bool>| is == Some(true);
        DropReason::DhcpGuard.when(self.dhcp && !passes(suspect.is_no_dhcp_server()))?;
        DropReason::RouterGuard.when(self.router && !passes(suspect.is_no_router()))?;
        let keeps_to = |own: &Vec<Prefix>| passes(suspect.keeps_to(own));
        DropReason::IpGuard.when(!self.addresses.as_ref().is_none_or(keeps_to))
    }
}

impl Suspect<'_> {
    /// Returns bytes of the packet, `at` bytes behind `from`.
    fn bytes<const N: usize>(&self, from: u16, at: u16) -> Option<[u8; N]> {
        self.headers.get(usize::from(from) + usize::from(at)..)?.first_chunk().copied()
    }

    fn is_v4(&self) -> bool {
        self.parsed.traits.contains(Traits::IPV4)
    }

    fn is_no_dhcp_server(&self) -> Option<bool> {
        match self.upper {
            Upper::Hidden => None,
            Upper::Ip(udp::PROTOCOL, Some(l4)) => {
                let (server, client) = if self.is_v4() { (67, 68) } else { (547, 546) };
                let (source, destination) = ports(self.headers, udp::PROTOCOL, l4)?;
                Some(source != server && destination != client)
            }
            _ => Some(true),
        }
    }

    /// Returns whether the frame is no router advertisement and no redirect (RFC 792, 1256, 4861).
    fn is_no_router(&self) -> Option<bool> {
        let (icmp, kinds) = if self.is_v4() { (ICMP, [5, 9]) } else { (ICMPV6, [134, 137]) };
        match self.upper {
            Upper::Hidden => None,
            Upper::Ip(protocol, Some(l4)) if protocol == icmp => {
                self.bytes(l4, 0).map(|[kind]| !kinds.contains(&kind))
            }
            _ => Some(true),
        }
    }

    fn keeps_to(&self, own: &[Prefix]) -> Option<bool> {
        let l3 = self.parsed.l3;
        let v4 = |address: [u8; 4]| own.iter().any(|prefix| prefix.contains(address.into()));
        match self.upper {
            Upper::Hidden => None,
            Upper::Other => Some(true),
            Upper::Arp => {
                let (kinds, sender, target) =
                    (self.bytes(l3, 0)?, self.bytes(l3, 14)?, self.bytes(l3, 24)?);
                // A probe (RFC 5227) has no sender yet; the address it is about to take is the
                // target.
                let claimed = if sender == [0; 4] { target } else { sender };
                Some(kinds == [0, 1, 8, 0, 6, 4] && v4(claimed))
            }
            Upper::Ip(protocol, l4) if self.is_v4() => match self.bytes(l3, 12)? {
                [0, 0, 0, 0] => Some(ports(self.headers, protocol, l4?)? == (68, 67)),
                source => Some(v4(source)),
            },
            Upper::Ip(protocol, l4) => {
                let source = self.bytes(l3, 8)?;
                let icmp = l4.filter(|_| protocol == ICMPV6);
                let kind = icmp.map(|l4| self.bytes::<1>(l4, 0));
                let target = || Some(self.is_own_v6(self.bytes(icmp?, 8)?, own));
                match (kind, source == [0; 16]) {
                    (Some(Some([136])), false) => Some(self.is_own_v6(source, own) && target()?),
                    (Some(None), _) => None,
                    (_, false) => Some(self.is_own_v6(source, own)),
                    // A host without an address yet sends duplicate address detection, router
                    // solicitations and group reports.
                    (Some(Some([135])), true) => target(),
                    (kind, true) => Some(matches!(kind??, [131 | 132 | 133 | 143])),
                }
            }
        }
    }

    /// Returns whether the address is one of the port's, or the link-local address made of the
    /// frame's source MAC (RFC 4291, appendix A).
    fn is_own_v6(&self, address: [u8; 16], own: &[Prefix]) -> bool {
        let derived = self.bytes(0, 6).map(|[a, b, c, d, e, f]: [u8; 6]| {
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
        });
        derived == Some(address) || own.iter().any(|prefix| prefix.contains(address.into()))
    }
}
