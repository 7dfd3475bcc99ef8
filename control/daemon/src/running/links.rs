//! Takes a vNIC's link down while nothing carries its frames out of this host (`follow-uplink`), as
//! Hyper-V does. Multipath in the guest then uses the other path instead of waiting for answers.

use super::Running;
use super::port::RunningPort;
use super::ports::Ports;
use crate::health::Picture;
use config::{PortConfig, PortRole};
use devices::Condition;
use std::time::{Duration, Instant};
use tracing::Level;

/// How often uplinks are checked if a port follows them, and how often to check whether one does.
const EVERY: Duration = Duration::from_millis(100);
const NOT_USED: Duration = Duration::from_secs(1);

impl Running {
    /// Updates guests' links; returns when to check again. While the plan in work has yet to open
    /// an uplink, links stay as they are: it may be one that the plan has closed to open it anew.
    pub fn follow_uplinks(&mut self, now: Instant) -> Duration {
        if self.desired.uplink_is_pending() {
            return EVERY;
        }
        let follows = |port: &RunningPort| {
            port.config.follow_uplink == Some(true)
                || port.open().is_some_and(|open| open.link_down.is_some())
        };
        if !self.ports.iter().any(|(_, port)| follows(port)) {
            return NOT_USED;
        }
        let uplinks = uplinks(&self.ports);
        let mut changed = Vec::new();
        for (name, port) in self.ports.iter().filter(|(_, port)| follows(port)) {
            let down = uplink_lost(&self.ports, &port.config, &uplinks);
            let known = port.open().and_then(|open| open.link_down.as_ref());
            if known.is_some() != down.is_some() {
                changed.push((name.clone(), down));
            }
        }
        for (name, down) in changed {
            let port = self.ports.get_mut(&name);
            let Some(open) = port.and_then(RunningPort::open_mut) else { continue };
            open.watch.set_link(down.is_none());
            let text = match &down {
                Some(reason) => format!("port {name}: the guest's link is taken down: {reason}"),
                None => format!("port {name}: the guest's link is brought up"),
            };
            open.link_down = down;
            self.journal.note_of(Level::INFO, name.as_str(), now, text);
        }
        EVERY
    }
}

/// All uplinks, and whether each carries frames.
fn uplinks(ports: &Ports) -> Vec<(Picture, bool)> {
    let carries = |port: &RunningPort| {
        port.open().is_some_and(|open| open.watch.state().condition == Condition::Up)
    };
    let uplinks = ports.iter().filter(|(_, port)| port.config.role() == PortRole::Uplink);
    uplinks.map(|(_, port)| (Picture::of(&port.config), carries(port))).collect()
}

/// Why no frame of a vNIC that follows its uplinks leaves this host; `None` if frames leave, or
/// there are no uplinks.
fn uplink_lost(ports: &Ports, vnic: &PortConfig, uplinks: &[(Picture, bool)]) -> Option<String> {
    // A guest that is itself an uplink would wait for its own frames.
    if vnic.follow_uplink != Some(true) || vnic.role() == PortRole::Uplink {
        return None;
    }
    if let Some((member, reason)) = ports.path_down(vnic) {
        return Some(format!("{member}: {reason}"));
    }
    let own = Picture::of(vnic);
    let in_reach: Vec<_> = uplinks.iter().filter(|(uplink, _)| own.meets(uplink)).collect();
    let is_lost = !in_reach.is_empty() && !in_reach.iter().any(|(_, carries)| *carries);
    let names = in_reach.iter().map(|(uplink, _)| uplink.name.as_str()).collect::<Vec<_>>();
    is_lost.then(|| format!("no uplink of its VLANs carries frames ({})", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use test_devices::{Fate, MemoryDevices};

    #[test]
    fn a_vnic_without_a_member_follows_the_last_uplink_of_its_vlan() {
        let (devices, now) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='vm'\nvhost-user='/run/vm'\nfollow-uplink=true\nvlan=10\n\
                    [[port]]\nname='up1'\npacket='eth1'\ntrunk='10,20'\n\
                    [[port]]\nname='up2'\npacket='eth2'\ntrunk='10'\n\
                    [[port]]\nname='up3'\npacket='eth3'\ntrunk='20'\n\
                    [[port]]\nname='router'\nvhost-user='/run/router'\nrole='uplink'\nfollow-uplink=true\nvlan=30\n";
        let config = Config::from_toml("t", text).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), now).unwrap();
        let mut down = |fates: [Fate; 2]| {
            devices.set("eth1", fates[0]);
            devices.set("eth2", fates[1]);
            running.follow_uplinks(now);
            let of = |name| running.ports.open_port(name).unwrap().link_down.clone();
            assert_eq!(of("router"), None, "it would be its own uplink");
            of("vm")
        };
        assert_eq!(down([Fate::Up, Fate::Up]), None);
        assert_eq!(down([Fate::Down, Fate::Up]), None);
        let reason = down([Fate::Down, Fate::Down]).unwrap();
        assert_eq!(reason, "no uplink of its VLANs carries frames (up1, up2)");
        assert_eq!(down([Fate::Up, Fate::Down]), None);
    }
}
