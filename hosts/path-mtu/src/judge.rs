//! Turns observations into findings: which hop limits, with which values, and the remedy. It does
//! no I/O.
//!
//! The explanation that covers most directions comes first. A host with a device of another MTU
//! explains every direction from and to it. A router that reports its MTU explains the directions
//! it reported on. The other packets were dropped silently, or by a switch that answers from the
//! target's address; comparing directions locates these. If all directions toward a host fail and
//! no others, its switch port limits. If all from one group of hosts to another fail, the link
//! between the groups does. If a single direction fails, some hop on its path does.

use crate::attachment::{Below, Neighbour, Subnet};
use crate::plan::Direction;
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

mod devices;
pub(crate) mod diagnosis;
mod located;

use located::{Located, Place};

/// A host's name and address.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host's name, for people.
    pub name: String,
    /// The address at which it was probed.
    pub ip: IpAddr,
    /// Length of its subnet's prefix; `None` if it is not known.
    pub prefix: Option<u8>,
    /// The device that has the address.
    pub interface: String,
    /// Devices below that one with a smaller MTU.
    pub below: Vec<Below>,
}

impl Host {
    fn subnet(&self) -> Option<Subnet> {
        self.prefix.map(|prefix| Subnet { ip: self.ip, prefix })
    }
}

/// The result of probing one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The index of the sender in the list of hosts.
    pub from: usize,
    /// The index of the receiver in that list.
    pub to: usize,
    /// The device that the probes left by; empty if it is not known.
    pub interface: String,
    /// The MTU of that device; 0 if it is not known.
    pub device_mtu: u16,
    /// The largest packet that arrived, at most the MTU wanted; 0 if none did.
    pub carried: u16,
    /// Whether a packet one byte larger than the MTU wanted arrived.
    pub over: bool,
    /// The hop that reported a packet as too big, and the MTU that it reported.
    pub told: Option<(IpAddr, u16)>,
    /// The receiver's device that the probes arrived by; empty if none did, or it is not known.
    #[serde(default)]
    pub arrives_by: String,
    /// Whether the receiver answered ARP or neighbour discovery, if no probe arrived.
    #[serde(default)]
    pub neighbour: Neighbour,
    /// Whether packets of any size are lost, so that what it carries is not known.
    #[serde(default)]
    pub uncertain: bool,
}

/// Kind of the hop that limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hop {
    /// A host's own device: a NIC, or a guest's vNIC.
    Vnic,
    /// The port of a switch that a host is attached to.
    SwitchPort,
    /// A link between switches.
    Uplink,
    /// A switch port or an uplink on the path: two hosts alone cannot distinguish these.
    Between,
    /// A router, or something beyond the links that could be distinguished.
    Beyond,
}

impl Hop {
    /// Returns its name in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Hop::Vnic => "vnic",
            Hop::SwitchPort => "switch-port",
            Hop::Uplink => "uplink",
            Hop::Between => "between",
            Hop::Beyond => "beyond",
        }
    }
}

/// A finding: something that limits packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The network's name, if several are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Kind of the hop.
    pub hop: Hop,
    /// The hosts it is about, or the address of a router.
    pub at: String,
    /// Directions it explains.
    pub directions: usize,
    /// The directions among these that do not carry the MTU.
    pub pairs: Vec<Direction>,
    /// What is wrong, the values seen and wanted, the remedy.
    #[serde(flatten)]
    pub problem: Problem,
}

/// Returns all findings, those that explain most directions first.
pub fn judge(hosts: &[Host], observations: &[Observation], wanted: u16) -> Vec<Finding> {
    let case = Case { hosts, observations, wanted };
    let devices = case.devices();
    let mut findings: Vec<Finding> = devices.iter().map(|device| case.device(device)).collect();
    let fails: Vec<&Observation> = observations
        .iter()
        .filter(|it| it.carried < wanted && !case.is_explained(&devices, it))
        .collect();
    let (by_routers, rest): (Vec<_>, Vec<_>) =
        fails.into_iter().partition(|it| case.router(it).is_some());
    findings.extend(case.routers(&by_routers));
    findings.extend(located::locate(observations, &rest).iter().map(|it| case.located(it)));
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.directions), finding.hop));
    findings
}

/// Returns the MTU that most devices have; the largest if there are several.
pub fn usual_mtu(device_mtus: impl IntoIterator<Item = u16>) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    device_mtus
        .into_iter()
        .filter(|mtu| *mtu > 0)
        .for_each(|mtu| *counts.entry(mtu).or_default() += 1);
    counts.into_iter().max_by_key(|(mtu, count)| (*count, *mtu)).map(|(mtu, _)| mtu)
}

struct Case<'c> {
    hosts: &'c [Host],
    observations: &'c [Observation],
    wanted: u16,
}

impl Case<'_> {
    /// Returns the router that limits a direction. A switch answers from the target's address,
    /// which does not show where the switch is.
    fn router(&self, it: &Observation) -> Option<(IpAddr, u16)> {
        let is_target = |by: IpAddr| self.hosts.get(it.to).is_some_and(|host| host.ip == by);
        it.told.filter(|(by, mtu)| !is_target(*by) && *mtu < self.wanted && it.carried >= *mtu)
    }

    fn routers(&self, fails: &[&Observation]) -> Vec<Finding> {
        let mut routers: BTreeMap<(IpAddr, u16), Vec<Direction>> = BTreeMap::new();
        for it in fails {
            let router = self.router(it);
            router.into_iter().for_each(|by| routers.entry(by).or_default().push((it.from, it.to)));
        }
        let finding = |((by, mtu), pairs): ((IpAddr, u16), Vec<Direction>)| Finding {
            network: None,
            hop: Hop::Beyond,
            at: IpAddr::to_string(&by),
            directions: pairs.len(),
            pairs,
            problem: Problem::new(format!("router {by} reports that its next link has MTU {mtu}"))
                .seen(mtu)
                .wanted(self.wanted)
                .remedy(format!(
                    "raise the MTU of that link to {}, or lower the hosts' MTU",
                    self.wanted
                )),
        };
        routers.into_iter().map(finding).collect()
    }

    fn located(&self, located: &Located) -> Finding {
        let (wanted, carried) = (self.wanted, located.carried);
        let hop = self.hop(&located.place);
        let way = self.way(located);
        let said = if located.told { "(reported from the target's address)" } else { "silently" };
        let problem = match carried {
            0 => self.nothing(&way, &located.pairs),
            _ => Problem::new(format!("{way} drops packets above {carried} bytes {said}"))
                .seen(carried)
                .wanted(wanted)
                .remedy(self.remedy(hop, carried)),
        };
        Finding {
            network: None,
            hop,
            at: self.names(&located.place.hosts()),
            directions: located.pairs.len(),
            pairs: located.pairs.clone(),
            problem,
        }
    }

    /// Returns the problem of directions that carry nothing. Where both ends share a subnet, ARP
    /// tells a different VLAN from a firewall, which does not stop it.
    fn nothing(&self, way: &str, pairs: &[Direction]) -> Problem {
        let subnet = |host: usize| self.hosts.get(host).and_then(Host::subnet);
        let ends = |it: &Direction| subnet(it.0).zip(subnet(it.1));
        let share = |it: &Direction| ends(it).is_some_and(|(from, to)| from.is_same(&to));
        let problem = Problem::new(format!("{way} carries nothing"))
            .wanted(format!("packets of {} bytes", self.wanted));
        if let Some((from, to)) = pairs.iter().find(|it| !share(it)).and_then(ends) {
            return problem.seen("no packet of any size").remedy(format!(
                "{from} and {to} are different subnets: check the routes and firewalls between them; if they are two networks, \
                 check each as `--network NAME=…`"
            ));
        }
        if !pairs.iter().all(share) {
            return problem.seen("no packet of any size").remedy(
                "check VLANs and firewalls on the path: they must pass the responders' UDP ports",
            );
        }
        let to = pairs.first().and_then(|it| self.hosts.get(it.1)).map(|host| host.ip);
        let told = diagnosis::Told { neighbour: self.neighbour(pairs), to };
        problem.seen(format!("no packet of any size{}", told.seen())).remedy(told.remedy())
    }

    /// Returns what all receivers of some directions did about ARP.
    fn neighbour(&self, pairs: &[Direction]) -> Neighbour {
        let own = self.observations.iter().filter(|it| pairs.contains(&(it.from, it.to)));
        let mut states = own.map(|it| it.neighbour).filter(|it| *it != Neighbour::Unknown);
        let first = states.next().unwrap_or_default();
        if states.all(|it| it == first) { first } else { Neighbour::Unknown }
    }

    fn hop(&self, place: &Place) -> Hop {
        match place {
            _ if self.hosts.len() == 2 => Hop::Between,
            Place::Port { .. } => Hop::SwitchPort,
            Place::Link { from, to } if from.len() + to.len() > 2 => Hop::Uplink,
            Place::Link { .. } => Hop::Beyond,
        }
    }

    /// Returns the place that drops packets, in words.
    fn way(&self, located: &Located) -> String {
        match &located.place {
            Place::Port { host, toward, from } => {
                let name = self.name(*host);
                match (toward, from) {
                    (true, false) => format!("the switch port of {name}, toward it only,"),
                    (false, true) => format!("the switch port of {name}, from it only,"),
                    _ => format!("the switch port of {name}, in both directions,"),
                }
            }
            Place::Link { from, to } => {
                let (from, to) = (self.names(from), self.names(to));
                if located.both {
                    format!("the path between {from} and {to}, in both directions,")
                } else {
                    format!("the path from {from} to {to}, in this direction only,")
                }
            }
        }
    }

    fn remedy(&self, hop: Hop, carried: u16) -> String {
        let wanted = self.wanted;
        let what = match hop {
            Hop::SwitchPort => "raise the MTU of that switch port",
            Hop::Uplink => "raise the MTU of the ports at both ends of that link",
            _ => "raise the MTU of the switch ports and uplinks on the path",
        };
        let tags = match wanted - carried {
            4 => Some("a VLAN tag"),
            8 => Some("two VLAN tags"),
            _ => None,
        };
        match tags {
            Some(tags) => format!(
                "{what}: it counts {tags} of {} bytes as payload; allow frames of {} bytes, not {}",
                wanted - carried,
                u32::from(wanted) + 22,
                u32::from(carried) + 22,
            ),
            None => format!(
                "{what} (`millrace port set PORT mtu={wanted}` for a Millrace port), or lower the hosts' MTU to {carried}"
            ),
        }
    }

    fn name(&self, host: usize) -> String {
        self.hosts.get(host).map_or_else(|| format!("host {host}"), |host| host.name.clone())
    }

    fn names(&self, hosts: &BTreeSet<usize>) -> String {
        const SHOWN: usize = 4;
        let shown: Vec<_> = hosts.iter().take(SHOWN).map(|host| self.name(*host)).collect();
        match hosts.len().saturating_sub(SHOWN) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
