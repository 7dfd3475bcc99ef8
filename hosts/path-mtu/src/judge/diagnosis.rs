//! What it means that nothing passes between two addresses of one subnet: ARP (or neighbour
//! discovery) passes IP firewalls, and does not leave its VLAN.

use crate::attachment::Neighbour;
use std::net::IpAddr;

/// What was told about a silent receiver in the sender's subnet.
pub(crate) struct Told {
    pub(crate) neighbour: Neighbour,
    /// Its address.
    pub(crate) to: Option<IpAddr>,
}

impl Told {
    /// Returns what to add to the value seen.
    pub(crate) fn seen(&self) -> &'static str {
        match self.neighbour {
            Neighbour::Silent => ", and no answer to ARP or neighbour discovery",
            Neighbour::Answers => ", but an answer to ARP or neighbour discovery",
            Neighbour::Unknown => "",
        }
    }

    pub(crate) fn remedy(&self) -> String {
        const VLANS: &str = "`millrace port list` shows those of Millrace ports, `bridge vlan show` those of a Linux bridge";
        match self.neighbour {
            Neighbour::Silent => format!(
                "look for a different VLAN first, then for a link that is down or a host that is off; IP firewalls do not stop ARP: \
                 compare the VLANs of both ends' switch ports ({VLANS})"
            ),
            Neighbour::Answers => "it is a firewall, not a different VLAN or a link: have it pass the responders' ports, TCP and UDP, \
                 both ways"
                .to_owned(),
            Neighbour::Unknown => {
                let to = self.to.map_or_else(|| "ADDRESS".to_owned(), |ip| ip.to_string());
                format!(
                    "check VLANs and firewalls. Both addresses are in one subnet, so ARP tells which: after a ping, \
                     `ip neigh show {to}` says FAILED or INCOMPLETE for a different VLAN or a link that is down ({VLANS}), \
                     and REACHABLE for a firewall, which must pass the responders' ports, TCP and UDP"
                )
            }
        }
    }
}
