//! Random valid models, for property tests.

use super::{HostClass, Model, Network, Port, Uplink};
use crate::Name;
use crate::configuration::Host;
use config::{MacAddress, Mtu, PortName, Rate, Rule, VlanId};
use proptest::option::of;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Returns hosts `h0` to `h4`. The even ones have the label `role = "even"`.
pub(crate) fn hosts() -> Vec<Host> {
    let host = |number: u8| {
        let role = if number.is_multiple_of(2) { "even" } else { "odd" };
        Host { name: name("h", number), labels: BTreeMap::from([("role".into(), role.into())]) }
    };
    (0..5).map(host).collect()
}

fn name(prefix: &str, number: u8) -> Name {
    format!("{prefix}{number}").parse().expect("a good name")
}

pub(crate) fn port_name(number: u8) -> PortName {
    format!("p{number}").parse().expect("a good name")
}

/// Makes models of up to three networks, up to one class for each role, and up to eight ports, some
/// with a host and some to be claimed.
pub(crate) fn model() -> impl Strategy<Value = Model> {
    let network =
        (of(1u16..4095), of(68u16..=9216), of(any::<bool>()), of(1u64..1 << 40), any::<bool>());
    let networks = proptest::collection::vec(network, 1..4);
    let ports = proptest::collection::btree_map(0u8..8, (0u8..3, of(0u8..5), any::<bool>()), 0..8);
    (networks, ports, any::<(bool, bool)>()).prop_map(|(networks, ports, classes)| {
        let mut model = Model::default();
        for (number, (vlan, mtu, guard, rate, rule)) in (0..).zip(networks) {
            let rule: Vec<Rule> =
                "deny in tcp to port 25".parse().into_iter().filter(|_| rule).collect();
            model.networks.push(Network {
                name: name("n", number),
                vlan: vlan.map(VlanId),
                mtu: mtu.map(Mtu),
                mac_spoofing: None,
                dhcp_guard: guard,
                router_guard: guard,
                acl: rule,
                rsc: None,
                rate: rate.map(Rate),
                burst: None,
                rate_to: None,
                storm: None,
                isolated: None,
            });
        }
        for (role, wanted) in [("even", classes.0), ("odd", classes.1)] {
            if wanted {
                model.classes.push(class(role));
            }
        }
        let last = u8::try_from(model.networks.len() - 1).expect("a few");
        for (number, (network, host, tap)) in ports {
            model.ports.push(port(number, name("n", network.min(last)), host, tap));
        }
        model
    })
}

fn class(role: &str) -> HostClass {
    let uplink = Uplink {
        name: format!("up-{role}").parse().expect("a good name"),
        packet: "eth1".parse().ok(),
        xdp: None,
        team: None,
        team_algorithm: None,
        queues: None,
        mtu: None,
        trunk: None,
    };
    HostClass {
        name: role.parse().expect("a good name"),
        labels: BTreeMap::from([("role".into(), role.into())]),
        workers: None,
        uplinks: vec![uplink],
    }
}

fn port(number: u8, network: Name, host: Option<u8>, tap: bool) -> Port {
    let mac = format!("02:00:00:00:00:{number:02x}");
    Port {
        name: port_name(number),
        network,
        mac: mac.parse::<MacAddress>().expect("a good address"),
        host: host.map(|number| name("h", number)),
        tap: format!("tap{number}").parse().ok().filter(|_| tap),
        vhost_user: format!("/run/millrace/p{number}.sock").parse().ok().filter(|_| !tap),
        netns: None,
        queues: None,
        ip_guard: None,
        acl: Vec::new(),
        rate: None,
        rate_to: None,
        weight: None,
    }
}
