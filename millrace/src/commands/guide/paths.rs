//! The links out of this host, and the vNICs of which each leaves by a link of its own: pinned to a
//! member of a team, or in a VLAN that one uplink carries alone.

use crate::commands::anew;
use api::body::{PortBody, StateBody, TeamBody};
use config::{Device, PortRole};
use std::collections::BTreeSet;

/// A link out of this host.
pub(super) struct Link {
    /// Its device.
    pub(super) device: String,
    /// The uplink that it is, or the team that it is a member of.
    pub(super) port: String,
    /// Whether it is a member of a team.
    pub(super) is_member: bool,
    /// Whether it carries frames.
    pub(super) is_active: bool,
    /// Its MTU; 0 while it is not open.
    pub(super) mtu: u16,
    /// What starts a command in its namespace.
    pub(super) prefix: String,
}

/// A vNIC that leaves by one link.
pub(super) struct Path<'p> {
    pub(super) vnic: &'p PortBody,
    /// The link's device.
    pub(super) link: String,
}

/// Returns all links: the members of teams, and the uplinks that are no team.
pub(super) fn links(ports: &[PortBody], teams: &[TeamBody]) -> Vec<Link> {
    let uplinks = ports.iter().filter(|port| port.role == PortRole::Uplink);
    uplinks.flat_map(|port| of_port(port, teams)).collect()
}

fn of_port(port: &PortBody, teams: &[TeamBody]) -> Vec<Link> {
    let prefix = anew::prefix(port.config.netns_path().as_deref());
    let is_member = matches!(port.config.device(), Device::Team(_));
    let link = |device, is_active, mtu| Link {
        device,
        port: port.name.clone(),
        is_member,
        is_active,
        mtu,
        prefix: prefix.clone(),
    };
    if is_member {
        let own = teams.iter().filter(|team| team.port == port.name);
        let members = own.flat_map(|team| &team.members);
        return members.map(|it| link(it.name.clone(), it.active, it.mtu)).collect();
    }
    let (devices, is_active) = (port.config.device().names(), port.state == StateBody::Up);
    let mtu = port.mtu.unwrap_or_default();
    devices.into_iter().map(|device| link(device, is_active, mtu)).collect()
}

/// Returns the paths of the named vNICs; without names of those that are pinned, or if none is, of
/// those with an uplink of their own. The only uplink of all is the own of none.
pub(super) fn paths<'p>(ports: &'p [PortBody], named: &[&str]) -> Vec<Path<'p>> {
    let all = ports.iter().filter(|port| port.role == PortRole::Vnic);
    let meant = all.filter(|port| named.is_empty() || named.contains(&port.name.as_str()));
    let path = |vnic| Some(Path { link: link_of(vnic, ports)?, vnic });
    let mut paths: Vec<_> = meant.filter_map(path).collect();
    let is_pinned = |path: &Path<'_>| path.vnic.config.team_member.is_some();
    if !named.is_empty() {
        return paths;
    }
    if paths.iter().any(is_pinned) {
        paths.retain(is_pinned);
    } else if paths.iter().map(|path| &path.link).collect::<BTreeSet<_>>().len() < 2 {
        paths.clear();
    }
    paths
}

/// Returns the device of the only link by which a vNIC's frames leave.
fn link_of(vnic: &PortBody, ports: &[PortBody]) -> Option<String> {
    let config = &vnic.config;
    if let Some(member) = &config.team_member {
        return Some(member.to_string());
    }
    let vlan = config.vlan.map_or(0, |id| id.0);
    let carries = |port: &&PortBody| {
        port.role == PortRole::Uplink && config.trunk.is_none() && port.config.carries_vlan(vlan)
    };
    let mut uplinks = ports.iter().filter(carries);
    let (Some(only), None) = (uplinks.next(), uplinks.next()) else { return None };
    match only.config.device() {
        Device::Team(_) => None,
        device => device.names().into_iter().next(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a port with this configuration that is up.
    pub(in super::super) fn port(config: &Value) -> PortBody {
        let rates: api::body::RatesBody = Default::default();
        let is_uplink = config["packet"].is_string() || config["team"].is_array();
        serde_json::from_value(json!({
            "name": config["name"], "device": "", "role": if is_uplink { "uplink" } else { "vnic" }, "state": "up",
            "reason": "", "mtu": 9000, "vlan": "untagged", "rsc": "off", "queues": [], "offloads": [], "degraded": [],
            "rates": rates, "config": config,
        }))
        .unwrap()
    }

    fn told(ports: &[Value], named: &[&str]) -> Vec<String> {
        let ports: Vec<PortBody> = ports.iter().map(port).collect();
        let paths = paths(&ports, named);
        paths.iter().map(|path| format!("{} by {}", path.vnic.name, path.link)).collect()
    }

    #[test]
    fn a_vnic_leaves_by_its_member_or_by_the_only_uplink_of_its_vlan() {
        let team = json!({"name": "t", "team": ["e1", "e2"]});
        let [a, b] = ["e1", "e2"].map(|it| json!({"name": it, "tap": it, "team-member": it}));
        let other = json!({"name": "lan", "tap": "lan"});
        assert_eq!(told(&[team, a, b, other], &[]), ["e1 by e1", "e2 by e2"]);
        let uplink = |device, vlan| json!({"name": device, "packet": device, "vlan": vlan});
        let vnic = |name, vlan| json!({"name": name, "vhost-user": "/run/s", "vlan": vlan});
        let ports = [uplink("s1", 10), uplink("s2", 20), vnic("a", 10), vnic("b", 20)];
        assert_eq!(told(&ports, &[]), ["a by s1", "b by s2"]);
        assert_eq!(told(&ports, &["b"]), ["b by s2"]);
        let ports = [uplink("s1", 0), uplink("s2", 0), vnic("a", 0), vnic("b", 0)];
        assert!(told(&ports, &[]).is_empty(), "both uplinks carry both");
    }

    /// The guide took the vNIC of a plain host with one uplink for a path of the guest's storage.
    #[test]
    fn the_only_uplink_is_no_vnics_own() {
        let lan = json!({"name": "up", "packet": "e1"});
        let vnic = json!({"name": "lan", "tap": "lan"});
        let ports = [lan, vnic];
        assert!(told(&ports, &[]).is_empty());
        assert_eq!(told(&ports, &["lan"]), ["lan by e1"]);
    }
}
