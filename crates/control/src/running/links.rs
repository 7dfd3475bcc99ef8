//! vNICs whose guests see their link down while nothing carries their frames out of this host (`follow-uplink`), as Hyper-V shows it: multipath
//! in the guest takes the other path then, instead of waiting for answers.

use super::{PortDevice, Running, RunningPort};
use crate::config::{PortConfig, PortRole};
use crate::devices::Condition;
use crate::health::Picture;
use std::time::{Duration, Instant};

/// How often uplinks are looked at where a port follows them, and how often it is looked whether one does.
const EVERY: Duration = Duration::from_millis(100);
const NOT_USED: Duration = Duration::from_secs(1);

impl Running {
    /// Shows guests their links as they are now; when to look again.
    pub fn follow_uplinks(&mut self, now: Instant) -> Duration {
        let follows = |port: &RunningPort| {
            port.config.follow_uplink == Some(true)
                || port.open().is_some_and(|open| open.link_down.is_some())
        };
        let mut changed = Vec::new();
        let mut next = NOT_USED;
        for (name, port) in self.ports.iter().filter(|(_, port)| follows(port)) {
            next = EVERY;
            let down = port.config.follow_uplink.and_then(|_| self.uplink_lost(&port.config));
            let known = port.open().and_then(|open| open.link_down.as_ref());
            if known.is_some() != down.is_some() {
                changed.push((name.clone(), down));
            }
        }
        for (name, down) in changed {
            let Some(running) = self.ports.get_mut(&name) else { continue };
            let PortDevice::Open(open) = &mut running.device else { continue };
            open.watch.set_link(down.is_none());
            let text = match &down {
                Some(reason) => format!("port {name}: its guest is to see its link down: {reason}"),
                None => format!("port {name}: its guest is to see its link up"),
            };
            open.link_down = down;
            self.events.note_of(name.as_str(), now, text);
        }
        next
    }

    /// Why no frame of a vNIC leaves this host, where that is so. A vNIC without uplinks has nothing to lose.
    fn uplink_lost(&self, vnic: &PortConfig) -> Option<String> {
        // A guest that is an uplink itself would wait for its own frames.
        if vnic.follow_uplink != Some(true) || vnic.role() == PortRole::Uplink {
            return None;
        }
        if vnic.team_member.is_some()
            && let Some((member, reason)) = self.path_down(vnic)
        {
            return Some(format!("{member}: {reason}"));
        }
        let own = Picture::of(vnic);
        let is_its = |port: &&RunningPort| {
            port.config.role() == PortRole::Uplink && own.meets(&Picture::of(&port.config))
        };
        let carries = |port: &RunningPort| {
            port.open().is_some_and(|open| open.watch.state().condition == Condition::Up)
        };
        let uplinks: Vec<_> = self.ports.values().filter(is_its).collect();
        let is_lost = !uplinks.is_empty() && !uplinks.iter().any(|port| carries(port));
        let names = uplinks.iter().map(|port| port.config.name.as_str()).collect::<Vec<_>>();
        is_lost.then(|| format!("no uplink of its VLANs carries frames ({})", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::memory::{Fate, MemoryDevices};

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
            let of = |name| {
                let port = running.ports.values().find(|port| port.config.name.as_str() == name);
                port.unwrap().open().unwrap().link_down.clone()
            };
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
