//! Computes a host's configuration from the model, in the types of crate `control`.
//!
//! `configuration` is a pure function: equal arguments give equal configurations. The host's agent
//! applies its result, and `plan` compares two results. A port is in the configuration of at most
//! one host.

use crate::Name;
use crate::model::{HostClass, Model, Network, Port, Uplink};
use config::{Config, PortConfig, PortName, VlanId, VlanList};
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A host's name and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// Its labels, by which classes select hosts.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The host that has claimed the address of each port without `host`.
pub type Claimed = BTreeMap<PortName, Name>;

/// Returns the host's configuration: its ports in the order of their names, and in `[switch]` only
/// what the class sets.
///
/// # Errors
/// Fails if two classes match the host, or the configuration breaks a rule of the switch.
pub fn configuration(model: &Model, host: &Host, claimed: &Claimed) -> Result<Config, Problem> {
    let class = class_of(model, host)?;
    let mut config = Config::default();
    if let Some(workers) = class.and_then(|class| class.workers.clone()) {
        config.switch.workers = workers;
    }
    for uplink in class.iter().flat_map(|class| &class.uplinks) {
        config.ports.push(uplink_port(model, uplink));
    }
    for port in model.ports.iter().filter(|port| carrier(port, claimed) == Some(&host.name)) {
        if let Some(network) = model.network(port.network.as_str()) {
            config.ports.push(vnic(port, network));
        }
    }
    config.ports.sort_by(|one, other| one.name.cmp(&other.name));
    config.check().map_err(|problem| problem.at(format!("host {}", host.name)))?;
    Ok(config)
}

/// Returns the host that carries a port: the one it names, otherwise the one that has claimed it.
pub fn carrier<'a>(port: &'a Port, claimed: &'a Claimed) -> Option<&'a Name> {
    port.host.as_ref().or_else(|| claimed.get(&port.name))
}

/// Returns the class of a host; `None` if no class matches its labels.
///
/// # Errors
/// Fails if two classes do.
pub fn class_of<'m>(model: &'m Model, host: &Host) -> Result<Option<&'m HostClass>, Problem> {
    let mut classes = model.classes.iter().filter(|class| class.takes(&host.labels));
    let first = classes.next();
    match (first, classes.next()) {
        (Some(one), Some(other)) => {
            Err(Problem::new(format!("host {} belongs to two classes", host.name))
                .seen(format!("{} and {} match its labels {}", one.name, other.name, labels(host)))
                .wanted("one class, or none")
                .remedy("in one of the two classes require a label that this host does not have"))
        }
        _ => Ok(first),
    }
}

/// Returns the labels as text: `rack=1, role=compute`.
pub fn labels(host: &Host) -> String {
    let labels: Vec<String> =
        host.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() { "(none)".to_owned() } else { labels.join(", ") }
}

/// Returns the port of an uplink. It carries the VLANs of all networks unless it has a `trunk`.
fn uplink_port(model: &Model, uplink: &Uplink) -> PortConfig {
    PortConfig {
        packet: uplink.packet.clone(),
        xdp: uplink.xdp.clone(),
        team: uplink.team.clone(),
        team_algorithm: uplink.team_algorithm,
        queues: uplink.queues,
        mtu: uplink.mtu,
        trunk: uplink.trunk.clone().or_else(|| tagged(model)),
        ..PortConfig::named(uplink.name.clone())
    }
}

/// Returns the VLANs of all networks; `None` if no network has one.
fn tagged(model: &Model) -> Option<VlanList> {
    let vlans: BTreeSet<u16> = model
        .networks
        .iter()
        .filter_map(|it| it.vlan)
        .map(|vlan| vlan.0)
        .filter(|id| *id > 0)
        .collect();
    let list: Vec<String> = vlans.iter().map(u16::to_string).collect();
    // An empty text is not a list.
    list.join(",").parse().ok()
}

fn vnic(port: &Port, network: &Network) -> PortConfig {
    PortConfig {
        tap: port.tap.clone(),
        vhost_user: port.vhost_user.clone(),
        netns: port.netns.clone(),
        queues: port.queues,
        mac: Some(port.mac),
        mtu: network.mtu,
        vlan: network.vlan.filter(|vlan| *vlan != VlanId(0)),
        mac_spoofing: network.mac_spoofing,
        dhcp_guard: network.dhcp_guard,
        router_guard: network.router_guard,
        ip_guard: port.ip_guard.clone(),
        acl: network.acl.iter().chain(&port.acl).cloned().collect(),
        rsc: network.rsc,
        rate: port.rate.or(network.rate),
        // The network's burst belongs to the network's rate.
        burst: network.burst.filter(|_| port.rate.is_none()),
        rate_to: port.rate_to.or(network.rate_to),
        weight: port.weight,
        storm: network.storm,
        isolated: network.isolated,
        ..PortConfig::named(port.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::generate;
    use proptest::prelude::*;

    proptest! {
        /// Over all hosts, each port that names a host or is claimed is in one configuration, and
        /// the others in none.
        #[test]
        fn a_port_is_on_exactly_one_host(model in generate::model(), claims in proptest::collection::btree_map(0u8..8, 0usize..5, 0..8)) {
            let hosts = generate::hosts();
            let claimed: Claimed = claims
                .into_iter()
                .map(|(port, host)| (generate::port_name(port), hosts[host].name.clone()))
                .collect();
            let mut seen: BTreeMap<PortName, usize> = BTreeMap::new();
            for host in &hosts {
                let config = configuration(&model, host, &claimed).unwrap();
                prop_assert_eq!(&config, &configuration(&model, host, &claimed).unwrap());
                for port in config.ports.into_iter().filter(|port| !matches!(port.device(), config::Device::Packet(_))) {
                    let wanted = model.ports.iter().find(|other| other.name == port.name).unwrap();
                    prop_assert_eq!(carrier(wanted, &claimed), Some(&host.name));
                    prop_assert_eq!(port.mac, Some(wanted.mac));
                    *seen.entry(port.name).or_default() += 1;
                }
            }
            for port in &model.ports {
                let wanted = usize::from(carrier(port, &claimed).is_some());
                prop_assert_eq!(seen.get(&port.name).copied().unwrap_or_default(), wanted, "{}", port.name);
            }
        }
    }

    fn read(text: &str) -> Model {
        let model = Model::from_toml("t", &format!("version = 1\n{text}")).unwrap();
        model.check().unwrap();
        model
    }

    fn host(name: &str, labels: &[(&str, &str)]) -> Host {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Host { name: name.parse().unwrap(), labels: labels.collect() }
    }

    const FLEET: &str = "\
        [[network]]\nname = 'blue'\nvlan = 10\nmtu = 9000\ndhcp-guard = true\nrate = '1Gbit'\nburst = '1MiB'\nacl = ['deny in arp']\n\
        [[network]]\nname = 'red'\nvlan = 20\n\
        [[class]]\nname = 'compute'\nlabels = { role = 'compute' }\nworkers = 2\n\
        [[class.uplink]]\nname = 'up'\nteam = ['eth1', 'eth2']\nmtu = 9000\n\
        [[port]]\nname = 'vm1'\nnetwork = 'blue'\nmac = '52:54:00:00:00:01'\nhost = 'a'\ntap = 'tap1'\nacl = ['deny in tcp']\n\
        [[port]]\nname = 'vm2'\nnetwork = 'blue'\nmac = '52:54:00:00:00:02'\nvhost-user = '/run/vm2'\nrate = '2Gbit'\n";

    #[test]
    fn a_port_has_its_network_s_settings_and_an_uplink_carries_all_vlans() {
        let config =
            configuration(&read(FLEET), &host("a", &[("role", "compute")]), &Claimed::new())
                .unwrap();
        let wanted = Config::from_toml(
            "t",
            "[switch]\nworkers = 2\n\
             [[port]]\nname = 'up'\nteam = ['eth1', 'eth2']\nmtu = 9000\ntrunk = '10,20'\n\
             [[port]]\nname = 'vm1'\ntap = 'tap1'\nmac = '52:54:00:00:00:01'\nmtu = 9000\nvlan = 10\ndhcp-guard = true\n\
             rate = '1Gbit'\nburst = '1MiB'\nacl = ['deny in arp', 'deny in tcp']\n",
        );
        assert_eq!(config, wanted.unwrap());
    }

    #[test]
    fn a_claimed_port_is_on_its_claimant_and_keeps_its_own_rate() {
        let claimed = Claimed::from([("vm2".parse().unwrap(), "b".parse().unwrap())]);
        let config = configuration(&read(FLEET), &host("b", &[]), &claimed).unwrap();
        let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["vm2"], "the host has no class, so no uplink");
        let port = config.port("vm2").unwrap();
        assert_eq!((port.rate.map(|rate| rate.0), port.burst), (Some(2_000_000_000), None));
    }

    #[test]
    fn a_host_of_two_classes_is_refused_and_both_are_named() {
        let model = read(&format!("{FLEET}[[class]]\nname = 'big'\nlabels = {{ size = 'big' }}\n"));
        let of =
            |labels: &[(&str, &str)]| configuration(&model, &host("a", labels), &Claimed::new());
        assert!(of(&[("size", "big")]).is_ok() && of(&[("role", "compute")]).is_ok());
        let problem = of(&[("size", "big"), ("role", "compute")]).unwrap_err();
        assert!(
            problem.seen.contains("compute and big") || problem.seen.contains("big and compute"),
            "{problem}"
        );
        assert!(problem.seen.contains("role=compute, size=big"), "{problem}");
    }

    #[test]
    fn a_refused_configuration_names_its_host() {
        let twice =
            FLEET.replace("host = 'a'\ntap = 'tap1'", "host = 'a'\nvhost-user = '/run/vm2'");
        let claimed = Claimed::from([("vm2".parse().unwrap(), "a".parse().unwrap())]);
        let problem = configuration(&read(&twice), &host("a", &[]), &claimed).unwrap_err();
        assert!(problem.error.starts_with("host a: port vm2: its device belongs"), "{problem}");
    }
}
