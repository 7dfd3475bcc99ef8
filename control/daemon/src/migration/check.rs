//! Checks before a migration what would break a guest at its destination.
//!
//! First come the things that the host lacks for the port ([`lacks`]), which also refuse an import.
//! Then come the differences between the two ports.

mod members;
mod pair;
mod uplinks;

use super::HostExport;
use crate::health::Picture;
use api::body::{MacBody, PortBody, StateBody, TeamBody, TeamMemberBody};
use config::{PortConfig, PortRole};
pub use members::members;
use pair::Pair;
pub(super) use pair::occupied;
use problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
pub(super) use uplinks::{Uplinks, vlans};

/// A problem that a migration would cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The guest's port; empty if it is about the hosts.
    pub port: String,
    /// The network that was probed, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Its subject: `features`, `queues`, `uplink-mtu`, or the key of the port that differs.
    pub about: String,
    /// The value seen at the destination, the value wanted, the remedy.
    #[serde(flatten)]
    pub problem: Problem,
}

/// Keys that name a host's devices and sockets. They differ between hosts; an existing port keeps
/// its own.
pub(super) const DEVICE_KEYS: [&str; 11] = [
    "tap",
    "veth",
    "packet",
    "xdp",
    "team",
    "vhost-user",
    "vhost-client",
    "socket-mode",
    "socket-owner",
    "socket-group",
    "netns",
];

/// Findings about moving a port's guest from one host to the other.
///
/// # Errors
/// The source host has no such port.
pub fn findings(from: &HostExport, to: &HostExport, name: &str) -> Result<Vec<Finding>, Problem> {
    let port = from.port(name).ok_or_else(|| no_port(from, name))?;
    let wanted = Wanted {
        name,
        config: &port.config,
        mac: port.config.mac.map(|mac| mac.0.to_string()).or(port.held_mac.clone()),
        needs: needs(&Uplinks::of(from).widest(&port.config), port.mtu),
    };
    let mut found = lacks(&wanted, to);
    match to.port(name) {
        Some(there) => {
            found.extend(Pair { wanted: &wanted, from: port, to: there, host: to }.findings())
        }
        None => found.push(
            wanted.finding(
                "port",
                Problem::new(format!("the destination has no port {name}"))
                    .seen("no such port")
                    .wanted(format!("a port {name} like the source's"))
                    .remedy(format!(
                        "`millrace port export {name}` here, and `millrace port import` there"
                    )),
            ),
        ),
    }
    Ok(found)
}

/// Returns the largest packet that must leave the new host, by VLAN: what left the old host, up to
/// the port's MTU.
fn needs(carried: &BTreeMap<u16, Option<u16>>, mtu: Option<u16>) -> BTreeMap<u16, Option<u16>> {
    let least = |carried: Option<u16>| Some(mtu?.min(carried.unwrap_or(u16::MAX)));
    carried.iter().map(|(vlan, carried)| (*vlan, least(*carried))).collect()
}

fn no_port(host: &HostExport, name: &str) -> Problem {
    let names: Vec<&str> = host.ports.iter().map(|port| port.name.as_str()).collect();
    Problem::new(format!("the source has no port {name}"))
        .seen(name)
        .wanted(names.join(", "))
        .remedy("name ports of the source")
}

/// What a port needs of a host.
pub(super) struct Wanted<'p> {
    pub(super) name: &'p str,
    pub(super) config: &'p PortConfig,
    /// The address of the port's guest, if known.
    pub(super) mac: Option<String>,
    /// The VLANs that uplinks must carry (0 for untagged), each with the largest packet, if known.
    pub(super) needs: BTreeMap<u16, Option<u16>>,
}

impl Wanted<'_> {
    pub(super) fn finding(&self, about: &str, problem: Problem) -> Finding {
        let (port, network) = (self.name.to_owned(), None);
        Finding { port, network, about: about.to_owned(), problem }
    }
}

/// Returns what the host lacks for the port.
pub(super) fn lacks(wanted: &Wanted<'_>, host: &HostExport) -> Vec<Finding> {
    let uplinks = Uplinks::of(host);
    let found = [
        vlan(wanted, &uplinks),
        uplink_down(wanted, &uplinks),
        mtu(wanted, &uplinks),
        member(wanted, host),
        deaf_member(wanted, host, &uplinks),
        mirror(wanted, host),
        taken_mac(wanted, host),
    ];
    found.into_iter().flatten().collect()
}

/// Returns VLANs as `port set` accepts them.
fn list(vlans: &[u16]) -> String {
    vlans.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

fn vlan(wanted: &Wanted<'_>, uplinks: &Uplinks<'_>) -> Option<Finding> {
    let is_missing = |vlan: &u16| uplinks.with(*vlan).next().is_none();
    let missing: Vec<u16> = wanted.needs.keys().copied().filter(is_missing).collect();
    let first = missing.first()?;
    let there: Vec<String> =
        uplinks.ports().map(|port| format!("{} {}", port.name, port.vlan)).collect();
    let what = match first {
        0 => "no uplink at the destination carries untagged frames".to_owned(),
        _ => format!("no uplink at the destination carries VLAN {}", list(&missing)),
    };
    let problem = Problem::new(what)
        .seen(if there.is_empty() { "no uplink".to_owned() } else { there.join("; ") })
        .wanted(format!("an uplink with VLAN {}", list(&missing)))
        .remedy(
            "add the VLAN to the `trunk` of an uplink there, and to the physical switch behind it",
        );
    Some(wanted.finding("vlan", problem))
}

fn uplink_down(wanted: &Wanted<'_>, uplinks: &Uplinks<'_>) -> Option<Finding> {
    let is_down = |vlan: &&u16| {
        let mut there = uplinks.with(**vlan).peekable();
        there.peek().is_some() && there.all(|uplink| uplink.port.state != StateBody::Up)
    };
    let vlan = wanted.needs.keys().find(is_down)?;
    let uplink = uplinks.with(*vlan).next()?.port;
    let problem =
        Problem::new(format!("uplink {} at the destination carries no frames", uplink.name))
            .seen(format!("{}: {}", uplink.state.name(), uplink.reason))
            .wanted("up")
            .remedy("run `millrace check` there");
    Some(wanted.finding("uplink", problem))
}

/// Finds the first VLAN in which no uplink carries the guest's packets. Each VLAN is checked,
/// because VLANs may use different uplinks.
fn mtu(wanted: &Wanted<'_>, uplinks: &Uplinks<'_>) -> Option<Finding> {
    let narrow = |(vlan, needed): (&u16, &Option<u16>)| {
        let there = uplinks.with(*vlan).filter_map(|uplink| uplink.mtu).max()?;
        let needed = (*needed)?;
        (there < needed).then_some((*vlan, there, needed))
    };
    let (vlan, there, needed) = wanted.needs.iter().find_map(narrow)?;
    let frames = if vlan == 0 { "untagged".to_owned() } else { format!("in VLAN {vlan}") };
    let problem = Problem::new("the guest's packets are too big for the destination's uplink")
        .seen(format!("MTU {there}, {frames}"))
        .wanted(format!("MTU {needed}"))
        .remedy("raise the MTU there: of the uplink, its devices and team members, and the network behind it");
    Some(wanted.finding("uplink-mtu", problem))
}

fn member(wanted: &Wanted<'_>, host: &HostExport) -> Option<Finding> {
    let pinned = wanted.config.team_member.as_ref()?.to_string();
    let members = || host.teams.iter().flat_map(|team| &team.members);
    let problem = match members().find(|member| member.name == pinned) {
        Some(member) if member.active => return None,
        // The frames of a pinned port leave through this member or not at all.
        Some(member) => {
            Problem::new(format!("member {pinned} at the destination carries no frames"))
                .seen(member.reason.as_deref().unwrap_or("not active"))
                .wanted("an active member")
                .remedy("repair its link there, or set `team-member` to another member")
        }
        None => Problem::new(format!("no team at the destination has member {pinned}"))
            .seen(members().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", "))
            .wanted(&pinned)
            .remedy("add it to the team there, or set `team-member` to a member there"),
    };
    Some(wanted.finding("team-member", problem))
}

/// Finds a member that does not receive a VLAN that other members of its team receive: its port on
/// the physical switch does not allow the VLAN.
fn deaf_member(wanted: &Wanted<'_>, host: &HostExport, uplinks: &Uplinks<'_>) -> Option<Finding> {
    let needed = || wanted.needs.keys().filter(|vlan| **vlan != 0);
    host.teams.iter().find_map(|team| {
        let uplink = uplinks.named(&team.port)?;
        let carried = needed().filter(|vlan| uplink.carries(**vlan));
        let mut split = carried.map(|vlan| (vlan, hearing(team, *vlan)));
        let (vlan, (hears, deaf)) =
            split.find(|(_, (hears, deaf))| !hears.is_empty() && !deaf.is_empty())?;
        let deaf = deaf.first()?;
        let what =
            format!("member {} of team {} receives nothing in VLAN {vlan}", deaf.name, team.port);
        let problem = Problem::new(what)
            .seen(list(&deaf.vlans_heard))
            .wanted(format!("VLAN {vlan}, which {} receives", names(&hears)))
            .remedy("allow the VLAN on the member's port of the physical switch");
        Some(wanted.finding("member-vlan", problem))
    })
}

/// Returns the active members that receive a VLAN, and those that do not.
fn hearing(team: &TeamBody, vlan: u16) -> (Vec<&TeamMemberBody>, Vec<&TeamMemberBody>) {
    let active = team.members.iter().filter(|it| it.active);
    active.partition(|it| it.vlans_heard.contains(&vlan))
}

fn names(members: &[&TeamMemberBody]) -> String {
    members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn mirror(wanted: &Wanted<'_>, host: &HostExport) -> Option<Finding> {
    let target = wanted.config.mirror_to.as_ref()?;
    let problem = Problem::new(format!("the destination has no port {target} to mirror to"))
        .seen("no such port")
        .wanted(target)
        .remedy(format!("add {target} there, or remove `mirror-to`"));
    host.port(target.as_str()).is_none().then(|| wanted.finding("mirror-to", problem))
}

/// Finds another port with the guest's address in a VLAN: frames that the second one sends would be
/// counted as `address_taken`, or it would receive the first one's frames.
fn taken_mac(wanted: &Wanted<'_>, host: &HostExport) -> Option<Finding> {
    let mac = wanted.mac.as_deref()?;
    let is_its = |port: &&PortBody| {
        let own = port.config.mac.map(|mac| mac.0.to_string());
        [own.as_deref(), port.held_mac.as_deref(), port.mac.as_deref()].contains(&Some(mac))
    };
    let own = Picture::of(wanted.config);
    let meets = |port: &&PortBody| vlans(&port.config).any(|vlan| own.carries(vlan));
    let others = || host.ports.iter().filter(|port| port.name != wanted.name).filter(meets);
    let is_vnic = |name: &str| others().any(|it| it.name == name && it.role == PortRole::Vnic);
    let is_it = |it: &&MacBody| it.mac == mac && own.carries(it.vlan) && is_vnic(&it.port);
    let learned = || host.macs.iter().find(is_it);
    let holder = others().find(is_its).map(|port| port.name.clone());
    let holder = holder.or_else(|| learned().map(|it| it.port.clone()))?;
    let problem = Problem::new(format!("port {holder} at the destination has the guest's address"))
        .seen(format!("{mac} on {holder}"))
        .wanted(format!("{mac} only on {}", wanted.name))
        .remedy("give one of the two guests another address");
    Some(wanted.finding("mac-taken", problem))
}

/// Returns the keys that are set.
pub(super) fn keys(config: &PortConfig) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
