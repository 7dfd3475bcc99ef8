//! The indirection tables of uplinks: at each uplink with several queues each vNIC has a table, by
//! its address and the VLAN ID of its frames there.
//!
//! Tables follow the ports: after every change, and once a second because a guest may become held
//! to an address, the ports are compared with what each uplink's program knows. A new vNIC gets its
//! table, a copy of the default one, before its address, so its flows stay on their queues. A
//! reopened uplink has a program without vNICs. While entries move, no vNIC is added or removed:
//! such changes wait for the current moves, and precede the next. The default table steers tagged
//! VLANs of a vNIC in trunk mode, and frames for no vNIC.

use super::Running;
use super::port::{OpenPort, RunningPort};
use super::ports::Ports;
use config::{PortName, PortRole};
use datapath::{PortInfo, Vlan};
use std::time::Instant;
use tracing::Level;
use wire::Mac;

impl Running {
    /// Updates the uplinks' programs for vNICs that were added, removed, or have another address or
    /// VLAN. While a plan is in work, they wait for its end: a port that a later step opens again
    /// keeps its table.
    pub(super) fn settle_vnics(&mut self, now: Instant) {
        let is_steered = |(_, open): (&PortName, &OpenPort)| open.steering().is_some();
        if self.desired.is_in_work() || !self.ports.open().any(is_steered) {
            return;
        }
        let vnics = vnics(&self.ports, &self.infos());
        for text in follow(&mut self.ports, &vnics, now) {
            self.journal.note(Level::WARN, now, text);
        }
    }
}

/// A vNIC with a known address, configured or held, and the VLAN of its untagged frames.
type Known = (PortName, Mac, u16);

fn vnics(ports: &Ports, infos: &[PortInfo]) -> Vec<Known> {
    let vnic = |(name, port): (&PortName, &RunningPort)| {
        let info = port.info_in(infos).filter(|_| port.config.role() == PortRole::Vnic)?;
        let vlan = match info.settings.vlan {
            Vlan::Access(vlan) | Vlan::Trunk { native: vlan, .. } => vlan,
        };
        Some((name.clone(), info.settings.mac.or(info.held_mac)?, vlan))
    };
    ports.iter().filter_map(vnic).collect()
}

/// Brings the tables of each uplink in step with the vNICs. Returns each failure once.
fn follow(ports: &mut Ports, vnics: &[Known], now: Instant) -> Vec<String> {
    let mut failed = Vec::new();
    for (name, open) in ports.open_mut() {
        let Some(steering) = open.steering() else { continue };
        let at_uplink = |(port, mac, vlan): &Known| {
            Some(((*mac, tag(&open.settings.vlan, *vlan)?), port.clone()))
        };
        let wanted = vnics.iter().filter_map(at_uplink).collect();
        let texts = open.stations.follow(&*steering, &wanted, now);
        failed.extend(texts.into_iter().map(|text| format!("port {name}: {text}")));
    }
    failed
}

/// The ID in the tag of a VLAN's frames at an uplink, 0 for no tag; `None` if the uplink does not
/// carry the VLAN.
fn tag(uplink: &Vlan, vlan: u16) -> Option<u16> {
    match uplink {
        Vlan::Access(own) | Vlan::Trunk { native: own, .. } if *own == vlan => Some(0),
        Vlan::Access(_) => None,
        Vlan::Trunk { allowed, .. } => (vlan != 0 && allowed.contains(vlan)).then_some(vlan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use test_devices::{Fate, MemoryDevices};
    use wire::vnet::VnetHeader;

    const UPLINK: &str = "[[port]]\nname='up'\npacket='eth9'\nqueues=2\ntrunk='1-9'\nnative=1\n";

    struct Run {
        running: Running,
        devices: MemoryDevices,
        start: Instant,
        seconds: u64,
    }

    impl Run {
        fn new(ports: &str) -> Run {
            let (devices, start) = (MemoryDevices::default(), Instant::now());
            let config = Config::from_toml("t", &format!("{UPLINK}{ports}")).unwrap();
            let running = Running::start(config, Box::new(devices.clone()), start).unwrap();
            Run { running, devices, start, seconds: 0 }
        }

        fn change(&mut self, ports: &str) {
            let config = Config::from_toml("t", &format!("{UPLINK}{ports}")).unwrap();
            self.running.reload(config, self.start).unwrap();
        }

        fn poll(&mut self) {
            self.seconds += 1;
            self.running.poll(self.start + Duration::from_secs(self.seconds));
        }

        /// What the uplink shows: port, last byte of the address, VLAN, entries at each queue.
        fn shown(&self) -> Vec<(String, u8, u16, [usize; 2])> {
            let mut shown: BTreeMap<_, [usize; 2]> = BTreeMap::new();
            let port = self.running.ports.open_port("up").unwrap();
            for (queue, vnics) in port.queue_vnics().into_iter().enumerate() {
                for vnic in vnics {
                    let mac = vnic.mac.unwrap_or_default().parse::<Mac>().unwrap_or(Mac([0; 6]));
                    let key = (vnic.port.unwrap_or_default(), mac.0[5], vnic.vlan.unwrap_or(99));
                    shown.entry(key).or_default()[queue] = vnic.entries;
                }
            }
            shown.into_iter().map(|((port, mac, vlan), counts)| (port, mac, vlan, counts)).collect()
        }
    }

    fn vnic(name: &str, mac: u8, more: &str) -> String {
        format!("[[port]]\nname='{name}'\ntap='{name}'\nmac='02:00:00:00:00:{mac:02}'\n{more}\n")
    }

    fn row(name: &str, mac: u8, vlan: u16) -> (String, u8, u16, [usize; 2]) {
        (name.to_owned(), mac, vlan, [64; 2])
    }

    #[test]
    fn each_vnic_has_a_table_by_its_address_and_its_vlan_at_the_uplink() {
        let trunk = vnic("d", 4, "trunk='2-3'\nnative=5");
        let ports = [vnic("a", 1, ""), vnic("b", 2, "vlan=1"), vnic("c", 3, "vlan=7"), trunk];
        let run = Run::new(&ports.concat());
        // VLAN 0 and 10 do not come there, VLAN 1 comes untagged.
        let wanted = [row("", 0, 99), row("b", 2, 0), row("c", 3, 7), row("d", 4, 5)];
        assert_eq!(run.shown(), wanted);
    }

    #[test]
    fn tables_follow_the_ports() {
        let mut run = Run::new(&vnic("a", 1, "vlan=1"));
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 1, 0)]);
        run.change(&[vnic("a", 1, "vlan=1"), vnic("b", 2, "vlan=2")].concat());
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 1, 0), row("b", 2, 2)]);
        run.change(&[vnic("a", 5, "vlan=1"), vnic("b", 2, "vlan=3")].concat());
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 5, 0), row("b", 2, 3)]);
        // Another port of the same address and VLAN takes the table over.
        run.change(&vnic("c", 5, "vlan=1"));
        assert_eq!(run.shown(), [row("", 0, 99), row("c", 5, 0)]);
        run.change("");
        assert_eq!(run.shown(), [row("", 0, 99)]);
        let events = run.running.switch_body(run.start).events;
        assert!(!events.iter().any(|event| event.text.contains("table")), "{events:?}");
    }

    #[test]
    fn an_uplink_that_was_opened_anew_is_told_of_all_vnics() {
        let mut run = Run::new(&vnic("a", 1, "vlan=1"));
        run.devices.set("eth9", Fate::Gone);
        run.poll();
        run.devices.set("eth9", Fate::Up);
        run.poll();
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 1, 0)]);
    }

    #[test]
    fn a_guest_without_a_configured_address_has_a_table_once_it_is_held_to_one() {
        let mut run = Run::new("[[port]]\nname='vm'\nvhost-user='/run/vm'\nvlan=1\n");
        assert_eq!(run.shown(), [row("", 0, 99)]);
        let peer = run.devices.peer("/run/vm").unwrap();
        let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 9]].concat();
        frame.resize(64, 0);
        let end = Instant::now() + Duration::from_secs(60);
        while run.running.infos().iter().all(|info| info.held_mac.is_none()) {
            peer.send(VnetHeader::default(), &frame);
            assert!(Instant::now() < end, "no address is held");
            std::thread::sleep(Duration::from_millis(1));
        }
        run.poll();
        assert_eq!(run.shown(), [row("", 0, 99), row("vm", 9, 0)]);
        run.devices.replace_guest("/run/vm");
        run.poll();
        assert_eq!(run.shown(), [row("", 0, 99)]);
    }

    /// The kernel has no more tables: it is told once, and the vNIC gets one when another goes.
    #[test]
    fn a_vnic_without_a_table_is_told_of_once_and_served_later() {
        let mut run = Run::new("");
        run.devices.limit_tables(1);
        let [one, other] = [vnic("a", 1, "vlan=1"), vnic("b", 2, "vlan=1")];
        run.change(&format!("{one}{other}"));
        (0..3).for_each(|_| run.poll());
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 1, 0)]);
        let events = run.running.switch_body(run.start).events;
        let told = |word: &str| events.iter().filter(|event| event.text.contains(word)).count();
        assert_eq!(told("port up: the default table steers flows to b"), 1, "{events:?}");
        run.change(&other);
        assert_eq!(run.shown(), [row("", 0, 99), row("b", 2, 0)]);
    }

    /// It was an event each second.
    #[test]
    fn a_table_that_cannot_be_taken_away_is_told_of_once_and_goes_later() {
        let mut run = Run::new(&vnic("a", 1, "vlan=1"));
        run.devices.refuse_removal(true);
        run.change("");
        (0..3).for_each(|_| run.poll());
        assert_eq!(run.shown(), [row("", 0, 99), row("a", 1, 0)]);
        let events = run.running.switch_body(run.start).events;
        let told: Vec<_> = events.iter().filter(|event| event.text.contains("table")).collect();
        assert!(told.len() == 1 && told[0].count == 1, "{told:?}");
        run.devices.refuse_removal(false);
        run.poll();
        assert_eq!(run.shown(), [row("", 0, 99)]);
    }
}
