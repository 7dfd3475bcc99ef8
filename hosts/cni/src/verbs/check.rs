//! CHECK: compares the pod's interface with `prevResult`, the result of the whole chain, in which a
//! later plugin may have noted what it changed. The port is compared with the network: its device
//! and VLAN are this plugin's alone.

use super::Work;
use crate::error::CniError;
use crate::ipam::Ipam;
use crate::outcome::{Interface, Outcome};
use crate::pod::{Pod, Seen};
use crate::request::Command;
use crate::switch::Switch;
use api::body::StateBody;
use config::PortConfig;
use std::fmt::{Debug, Display};

impl Work<'_> {
    /// Compares the port, the interface, and the IPAM plugin's account of it.
    pub(super) fn check(&self) -> Result<(), CniError> {
        let (at, netns) = (self.attachment()?, self.netns()?);
        let Some(previous) = &self.network.previous else {
            let told = "CHECK gets the result of ADD";
            return Err(CniError::new(CniError::NETWORK, "prevResult is missing", told));
        };
        let wanted = self.port_config(&at, netns)?;
        check_port(&Switch::connect(self.socket)?, &wanted)?;
        let pod = Pod { netns, interface: at.interface() };
        let Some(seen) = pod.look()? else {
            return Err(different(&at.interface(), "interface", "none", "as ADD made it"));
        };
        check_interface(&pod, &seen, previous)?;
        match Ipam::find(self.request, self.network)? {
            Some(ipam) => ipam.tell(Command::Check.name()),
            None => Ok(()),
        }
    }
}

fn check_port(switch: &Switch, wanted: &PortConfig) -> Result<(), CniError> {
    let name = &wanted.name;
    let Some(port) = switch.port(name.as_str())? else {
        return Err(different(name, "port", "none", "as ADD made it"));
    };
    let limited = wanted.rate.is_some();
    let settings =
        |config: &PortConfig| (config.device().to_string(), config.netns.clone(), config.vlan);
    let (is, wanted) = (settings(&port.config), settings(wanted));
    same(name, "settings", is, wanted)?;
    if limited {
        same(name, "whether it has a rate", port.config.rate.is_some(), true)?;
    }
    if port.state == StateBody::Up {
        return Ok(());
    }
    Err(different(name, "state", format!("{}: {}", port.state.name(), port.reason), "up"))
}

/// Compares the interface with the result. Its MTU is not compared: `tuning` changes it without
/// noting it in the result.
fn check_interface(pod: &Pod<'_>, seen: &Seen, previous: &Outcome) -> Result<(), CniError> {
    let (name, sandbox) = (pod.interface, pod.netns.to_string());
    let Some((_, Interface { mac, .. })) = previous.interface(name.as_str(), &sandbox) else {
        let message = format!("prevResult has no interface {name} in {sandbox}");
        return Err(CniError::new(CniError::NETWORK, message, "CHECK gets the result of ADD"));
    };
    if let Some(mac) = mac {
        same(name, "MAC address", seen.mac.clone(), mac.to_ascii_lowercase())?;
    }
    same(name, "whether it is up", seen.is_up, true)?;
    for ip in previous.addresses_of(name.as_str(), &sandbox) {
        if !seen.addresses.contains(&ip.address) {
            return Err(different(name, "addresses", format!("{:?}", seen.addresses), ip.address));
        }
    }
    for route in &previous.routes {
        let route = (route.dst.network(), previous.gateway(route));
        if !seen.routes.contains(&route) {
            let wanted = format!("{} by {:?}", route.0, route.1);
            return Err(different(name, "routes", format!("{:?}", seen.routes), wanted));
        }
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(
    of: &impl Display,
    what: &str,
    seen: T,
    wanted: T,
) -> Result<(), CniError> {
    if seen == wanted {
        return Ok(());
    }
    Err(different(of, what, format!("{seen:?}"), format!("{wanted:?}")))
}

fn different(of: &impl Display, what: &str, seen: impl Display, wanted: impl Display) -> CniError {
    let message = format!("{of}: {what} differs from ADD's result");
    CniError::new(CniError::DIFFERENT, message, format!("seen {seen}; wanted {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A chained plugin may have changed the MAC address, which is noted, the MTU, which is not,
    /// and the table of a route. What is missing is found.
    #[test]
    fn a_result_says_what_check_expects() {
        let (netns, name) = ("/run/netns/a".parse().unwrap(), "eth0".parse().unwrap());
        let pod = Pod { netns: &netns, interface: &name };
        let result = |mac: &str, address: &str, route: &str| -> Outcome {
            let interface =
                json!({"name": "eth0", "mac": mac, "mtu": 1400, "sandbox": "/run/netns/a"});
            let host = json!({"name": "veth0"});
            let ips = json!([{"address": address, "gateway": "10.1.0.1", "interface": 1}]);
            let all =
                json!({"interfaces": [host, interface], "ips": ips, "routes": [{"dst": route}]});
            serde_json::from_value(all).unwrap()
        };
        let seen = Seen {
            mac: "02:00:00:00:00:0a".into(),
            is_up: true,
            addresses: vec!["10.1.0.5/16".parse().unwrap(), "fe80::1/64".parse().unwrap()],
            routes: vec![("0.0.0.0/0".parse().unwrap(), "10.1.0.1".parse().ok())],
        };
        let check =
            |mac, address, route| check_interface(&pod, &seen, &result(mac, address, route));
        check("02:00:00:00:00:0A", "10.1.0.5/16", "0.0.0.0/0").unwrap();
        for (mac, address, route, what) in [
            ("02:00:00:00:00:0b", "10.1.0.5/16", "0.0.0.0/0", "MAC address"),
            ("02:00:00:00:00:0a", "10.1.0.6/16", "0.0.0.0/0", "addresses"),
            ("02:00:00:00:00:0a", "10.1.0.5/16", "10.9.0.0/16", "routes"),
        ] {
            let error = check(mac, address, route).unwrap_err();
            assert!(error.code == 102 && error.message.contains(what), "{error:?}");
        }
        let down = Seen { is_up: false, ..seen };
        let all = result("02:00:00:00:00:0a", "10.1.0.5/16", "0.0.0.0/0");
        assert_eq!(check_interface(&pod, &down, &all).unwrap_err().code, 102);
        assert_eq!(check_interface(&pod, &down, &Outcome::default()).unwrap_err().code, 7);
    }
}
