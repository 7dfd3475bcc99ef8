//! The result of ADD: interfaces, addresses, routes and name servers. This plugin prints it, an
//! IPAM plugin answers with it, and a runtime gives it back.

use crate::address::Cidr;
use crate::network::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<Interface>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ips: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) routes: Vec<Route>,
    /// Name servers, passed on unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) dns: Map<String, Value>,
}

/// An interface that a plugin made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    /// The network namespace; absent for an interface of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    /// Other plugins' keys.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) address: Cidr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<IpAddr>,
    /// The index of its interface in the list of interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interface: Option<usize>,
}

/// A route of the pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) dst: Cidr,
    /// The next hop; if absent, the gateway of the first address of this family that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gw: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advmss: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<u8>,
}

impl Outcome {
    /// Returns a route's gateway, its own or by default.
    pub(crate) fn gateway(&self, route: &Route) -> Option<IpAddr> {
        let is_v4 = route.dst.ip.is_ipv4();
        let gateways = self.ips.iter().filter_map(|ip| ip.gateway);
        route.gw.or_else(|| gateways.into_iter().find(|gateway| gateway.is_ipv4() == is_v4))
    }

    /// Returns an interface in a namespace, with its place in the list.
    pub(crate) fn interface(&self, name: &str, sandbox: &str) -> Option<(usize, &Interface)> {
        self.interfaces.iter().enumerate().find(|(_, interface)| {
            interface.name == name && interface.sandbox.as_deref() == Some(sandbox)
        })
    }

    /// Returns the addresses of an interface in a namespace.
    pub(crate) fn addresses_of(&self, name: &str, sandbox: &str) -> impl Iterator<Item = &Address> {
        let place = self.interface(name, sandbox).map(|(place, _)| place);
        self.ips.iter().filter(move |ip| place.is_some() && ip.interface == place)
    }

    /// Appends this result to that of the plugins that ran before.
    pub(crate) fn after(mut self, previous: Option<Outcome>) -> Outcome {
        let Some(mut all) = previous else { return self };
        let shift = all.interfaces.len();
        for ip in &mut self.ips {
            ip.interface = ip.interface.map(|place| place + shift);
        }
        all.interfaces.append(&mut self.interfaces);
        all.ips.append(&mut self.ips);
        all.routes.append(&mut self.routes);
        self.dns.into_iter().for_each(|(key, value)| drop(all.dns.insert(key, value)));
        all
    }

    /// Serialises for the given CNI version.
    pub(crate) fn to_json(&self, version: Version) -> Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        if version < Version::V1_1_0 {
            remove(&mut json, "interfaces", &["mtu"]);
            remove(&mut json, "routes", &["mtu", "advmss", "priority", "table", "scope"]);
        }
        if version < Version::V1_0_0 {
            let written = json.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten();
            for (ip, json) in self.ips.iter().zip(written) {
                json["version"] = if ip.address.ip.is_ipv4() { "4" } else { "6" }.into();
            }
        }
        json["cniVersion"] = version.name().into();
        json
    }
}

/// Removes keys from all members of a list.
fn remove(json: &mut Value, list: &str, keys: &[&str]) {
    let members = json.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    for member in members.filter_map(Value::as_object_mut) {
        member.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome() -> Outcome {
        serde_json::from_value(json!({
            "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1400, "sandbox": "/run/netns/a"}],
            "ips": [
                {"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0},
                {"address": "fd00::5/64", "interface": 0},
            ],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1300}, {"dst": "::/0"}],
            "dns": {"nameservers": ["10.1.0.1"]},
        }))
        .unwrap()
    }

    #[test]
    fn each_version_has_the_keys_it_knows() {
        let newest = outcome().to_json(Version::V1_1_0);
        assert_eq!(newest["interfaces"][0]["mtu"], 1400);
        assert_eq!(newest["routes"][0]["mtu"], 1300);
        assert_eq!(newest["ips"][0].get("version"), None);
        let older = outcome().to_json(Version::V1_0_0);
        assert_eq!(
            (older["interfaces"][0].get("mtu"), older["routes"][0].get("mtu")),
            (None, None)
        );
        let oldest = outcome().to_json(Version::V0_4_0);
        assert_eq!(
            (&oldest["ips"][0]["version"], &oldest["ips"][1]["version"]),
            (&json!("4"), &json!("6"))
        );
        for version in Version::ALL {
            let json = outcome().to_json(version);
            assert_eq!(json["cniVersion"], version.name());
            let back: Outcome = serde_json::from_value(json).unwrap();
            assert_eq!(back.ips, outcome().ips, "{version:?}");
        }
    }

    #[test]
    fn a_route_without_gateway_takes_that_of_its_family() {
        let outcome = outcome();
        let gateways: Vec<_> = outcome.routes.iter().map(|route| outcome.gateway(route)).collect();
        assert_eq!(gateways, [Some("10.1.0.1".parse().unwrap()), None]);
    }

    #[test]
    fn after_others_places_of_interfaces_move_on() {
        let both = outcome().after(Some(outcome()));
        let places: Vec<_> = both.ips.iter().map(|ip| ip.interface).collect();
        assert_eq!(places, [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(outcome().after(None), outcome());
        assert_eq!(both.addresses_of("eth0", "/run/netns/a").count(), 2);
        assert_eq!(both.addresses_of("eth0", "/run/netns/b").count(), 0);
    }
}
