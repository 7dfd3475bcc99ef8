//! CHECK: compares the port and the pod's interface with ADD's result.

use super::Work;
use crate::error::CniError;
use crate::ipam::Ipam;
use crate::outcome::Outcome;
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
        check_interface(&pod, &seen, &wanted, previous)?;
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
    let settings = |config: &PortConfig| {
        (config.tap.clone(), config.netns.clone(), config.mac, config.mtu, config.vlan)
    };
    let (is, wanted) = (settings(&port.config), settings(wanted));
    same(name, "settings", is, wanted)?;
    if port.state == StateBody::Up {
        return Ok(());
    }
    Err(different(name, "state", format!("{}: {}", port.state.name(), port.reason), "up"))
}

fn check_interface(
    pod: &Pod<'_>,
    seen: &Seen,
    wanted: &PortConfig,
    previous: &Outcome,
) -> Result<(), CniError> {
    let name = pod.interface;
    same(name, "MAC address", Some(seen.mac.clone()), wanted.mac.map(|mac| mac.0.to_string()))?;
    same(name, "whether it is up", seen.is_up, true)?;
    if let Some(mtu) = wanted.mtu {
        same(name, "MTU", seen.mtu, mtu.0.into())?;
    }
    for ip in previous.addresses_of(name.as_str(), &pod.netns.to_string()) {
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
