//! A MAC address has one owner: the API refuses a port an address that another port has. The file
//! may repeat one; `health` then names both ports.
//!
//! An address from which a guest merely sends does not count; otherwise a guest could keep its
//! neighbour's port from opening.

use super::port::RunningPort;
use super::ports::Ports;
use crate::health::{self, Picture};
use config::PortConfig;
use problem::Problem;

/// Returns why a port cannot have its address: another port in its VLANs has it, by configuration or
/// from its device.
pub(super) fn conflict(ports: &Ports, port: &PortConfig) -> Option<Problem> {
    let own = |other: &RunningPort| {
        let mut picture = Picture::of(&other.config);
        picture.mac = other.open().map_or(picture.mac, |open| open.settings.mac);
        picture
    };
    port.mac?;
    let others = ports.iter().filter(|(name, _)| **name != port.name);
    let others: Vec<_> = others.map(|(_, other)| own(other)).collect();
    health::duplicate_mac(&Picture::of(port), &others)
}

#[cfg(test)]
mod tests {
    use super::super::Running;
    use super::*;
    use config::Config;
    use serde_json::json;
    use std::time::Instant;
    use test_devices::MemoryDevices;
    use wire::Mac;

    const VICTIM: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn port(keys: &str) -> PortConfig {
        let text = format!("[[port]]\nname='new'\ntap='tap9'\n{keys}\n");
        Config::from_toml("t", &text).unwrap().ports.remove(0)
    }

    fn switch(keys: &str) -> (Running, MemoryDevices) {
        let devices = MemoryDevices::default();
        let text = format!("[[port]]\nname='old'\ntap='tap1'\nvlan=5\n{keys}\n");
        let config = Config::from_toml("t", &text).unwrap();
        (Running::start(config, Box::new(devices.clone()), Instant::now()).unwrap(), devices)
    }

    #[test]
    fn an_address_that_another_port_is_configured_with_is_refused() {
        for isolated in ["", "isolated=true"] {
            let (mut running, _devices) = switch(&format!("mac='{VICTIM}'\n{isolated}"));
            let mut add = |keys: &str| running.add(port(keys), Instant::now());
            let twin = format!("vlan=5\nmac='{VICTIM}'\n{isolated}");
            let refused = add(&twin).unwrap_err().to_string();
            assert!(refused.contains("ports old and new have the same address"), "{refused}");
            add(&format!("vlan=6\nmac='{VICTIM}'")).unwrap();
            let moved = running.patch("new", &json!({"vlan": 5}), Instant::now());
            assert!(moved.is_err(), "moved into the VLAN of its twin");
        }
    }

    /// An older conflict, which a file may make, holds up no other change, and lets no other
    /// address through.
    #[test]
    fn a_port_of_the_file_with_a_twin_can_be_changed() {
        let twin = "[[port]]\nname='new'\ntap='tap9'\nvlan=5";
        let third = "[[port]]\nname='third'\ntap='tap3'\nvlan=5\nmac='02:00:00:00:00:03'";
        let (mut running, _devices) =
            switch(&format!("mac='{VICTIM}'\n{twin}\nmac='{VICTIM}'\n{third}"));
        running.patch("new", &json!({"mtu": 9000}), Instant::now()).unwrap();
        let taken = json!({"mac": "02:00:00:00:00:03"});
        running.patch("new", &taken, Instant::now()).unwrap_err();
    }
}
