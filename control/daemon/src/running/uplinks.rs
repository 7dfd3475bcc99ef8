//! The indirection tables of uplinks: at each uplink with several queues each vNIC has a table, by
//! its address and the VLAN ID of its frames there.
//!
//! Tables follow the ports: after every change, and once a second because a guest may become held
//! to an address, the ports are compared with what each uplink's program knows. A new vNIC gets its
//! table, a copy of the default one, before its address, so its flows stay on their queues. A
//! reopened uplink has a program without vNICs. While entries move, no vNIC is added or removed:
//! such changes wait for the current moves, and precede the next. The default table steers tagged
//! VLANs of a vNIC in trunk mode, and frames for no vNIC.

use super::{OpenPort, PortDevice, Running, RunningPort};
use api::body::QueueVnicBody;
use config::{PortName, PortRole};
use datapath::Vlan;
use ports::packet::Spread;
use ports::steering::{Steering, SteeringError, Vnic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Level;
use wire::Mac;

/// An address, and the VLAN ID of its frames at an uplink; 0 for untagged.
type Station = (Mac, u16);

/// How long a vNIC waits for moves of entries before a warning. A batch of moves takes about 10 ms.
const LONG: Duration = Duration::from_secs(1);

const MOVING: &str = "entries have been moving for more than a second";

/// The vNICs that have tables at an uplink.
#[derive(Default)]
pub(super) struct Stations {
    /// The port of each, and its number.
    known: BTreeMap<Station, (PortName, Vnic)>,
    refused: Refused,
}

/// vNICs that could not get a table, or keep one that should be removed.
#[derive(Default)]
struct Refused {
    told: BTreeSet<Station>,
    /// vNICs that wait until moves of entries are done.
    waiting: BTreeMap<Station, Waiting>,
}

struct Waiting {
    since: Instant,
    told: bool,
}

impl Refused {
    /// The reason, if it has not been reported yet.
    fn reason(&mut self, station: Station, error: &SteeringError, now: Instant) -> Option<String> {
        if !matches!(error, SteeringError::Busy) {
            self.waiting.remove(&station);
            return self.told.insert(station).then(|| error.to_string());
        }
        let waiting = self.waiting.entry(station).or_insert(Waiting { since: now, told: false });
        let is_long = now.saturating_duration_since(waiting.since) > LONG;
        (is_long && !std::mem::replace(&mut waiting.told, true)).then(|| MOVING.to_owned())
    }

    fn forget(&mut self, station: &Station) {
        self.told.remove(station);
        self.waiting.remove(station);
    }
}

impl Stations {
    /// Adds and removes vNICs as wanted. Returns each failure once.
    fn follow(
        &mut self,
        steering: &dyn Steering,
        wanted: &BTreeMap<Station, PortName>,
        now: Instant,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        let Stations { known, refused } = self;
        let is_settled =
            |station: &Station| wanted.contains_key(station) == known.contains_key(station);
        refused.told.retain(|station| !is_settled(station));
        refused.waiting.retain(|station, _| !is_settled(station));
        // Removals first, to make room for others.
        known.retain(|station, (port, vnic)| {
            if wanted.contains_key(station) {
                return true;
            }
            match steering.remove_vnic(*vnic) {
                Ok(()) | Err(SteeringError::NoSuchVnic(_)) => {
                    refused.forget(station);
                    false
                }
                Err(error) => {
                    let reason = refused.reason(*station, &error, now);
                    failed.extend(reason.map(|why| format!("{port} keeps its table: {why}")));
                    true
                }
            }
        });
        for (station, port) in wanted {
            if let Some((of, _)) = known.get_mut(station) {
                of.clone_from(port);
                continue;
            }
            match steering.add_vnic(station.0, station.1) {
                Ok(vnic) => {
                    known.insert(*station, (port.clone(), vnic));
                    refused.forget(station);
                }
                Err(error) => {
                    let reason = refused.reason(*station, &error, now);
                    let text = |why| format!("the default table steers flows to {port}: {why}");
                    failed.extend(reason.map(text));
                }
            }
        }
        failed
    }

    /// Whether any vNIC waits for moves of entries.
    fn wait(&self) -> bool {
        !self.refused.waiting.is_empty()
    }

    /// The number of each vNIC, with its port; first the default one, without a port.
    pub(super) fn vnics(&self) -> impl Iterator<Item = (Vnic, Option<(&PortName, Station)>)> {
        let known =
            self.known.iter().map(|(station, (port, vnic))| (*vnic, Some((port, *station))));
        std::iter::once((Vnic::DEFAULT, None)).chain(known)
    }
}

impl OpenPort {
    /// What steers its ingress queues.
    pub(super) fn steering(&self) -> Option<Arc<dyn Steering>> {
        match self.watch.spread() {
            Spread::Tables(steering) => Some(steering),
            Spread::Single | Spread::Hash(_) => None,
        }
    }

    /// For each ingress queue of an uplink the vNICs whose tables name it.
    pub(super) fn queue_vnics(&self) -> Vec<Vec<QueueVnicBody>> {
        let Some(steering) = self.steering() else { return Vec::new() };
        let mut queues = vec![Vec::new(); steering.queues().into()];
        for (vnic, of) in self.stations.vnics() {
            let Ok(table) = steering.table(vnic) else { continue };
            let mut counts = vec![0; queues.len()];
            for named in table {
                counts.get_mut(usize::from(named)).into_iter().for_each(|count| *count += 1);
            }
            for (vnics, entries) in queues.iter_mut().zip(counts) {
                if entries > 0 {
                    vnics.push(QueueVnicBody {
                        port: of.map(|(port, _)| port.to_string()),
                        mac: of.map(|(_, (mac, _))| mac.to_string()),
                        vlan: of.map(|(_, (_, vlan))| vlan),
                        entries,
                    });
                }
            }
        }
        queues
    }
}

impl Running {
    /// Updates the uplinks' programs for vNICs that were added, removed, or have another address or
    /// VLAN. While a plan is in work, they wait for its end: a port that a later step opens again
    /// keeps its table.
    pub(super) fn settle_vnics(&mut self, now: Instant) {
        let is_steered =
            |port: &RunningPort| port.open().is_some_and(|open| open.steering().is_some());
        if self.is_in_work() || !self.ports.values().any(is_steered) {
            return;
        }
        let vnics = self.vnics();
        let mut failed = Vec::new();
        for (name, port) in &mut self.ports {
            let PortDevice::Open(open) = &mut port.device else { continue };
            let Some(steering) = open.steering() else { continue };
            let at_uplink = |(port, mac, vlan): &(PortName, Mac, u16)| {
                Some(((*mac, tag(&open.settings.vlan, *vlan)?), port.clone()))
            };
            let wanted = vnics.iter().filter_map(at_uplink).collect();
            let texts = open.stations.follow(&*steering, &wanted, now);
            failed.extend(texts.into_iter().map(|text| format!("port {name}: {text}")));
        }
        for text in failed {
            self.events.note(Level::WARN, now, text);
        }
    }

    /// Adds and removes vNICs that waited for moves of entries, once these are done. Called before
    /// further moves begin.
    pub(super) fn settle_waiting_vnics(&mut self, now: Instant) {
        let is_due = |open: &OpenPort| open.stations.wait() && !self.vmmq.entries.is_busy(open.id);
        if self.ports.values().filter_map(RunningPort::open).any(is_due) {
            self.settle_vnics(now);
        }
    }

    /// The vNICs with a known address, configured or held, with the VLAN of their untagged frames.
    fn vnics(&self) -> Vec<(PortName, Mac, u16)> {
        let infos = self.infos();
        let vnic = |(name, port): (&PortName, &RunningPort)| {
            let open = port.open().filter(|_| port.config.role() == PortRole::Vnic)?;
            let info = infos.iter().find(|info| info.id == open.id)?;
            let vlan = match info.settings.vlan {
                Vlan::Access(vlan) | Vlan::Trunk { native: vlan, .. } => vlan,
            };
            Some((name.clone(), info.settings.mac.or(info.held_mac)?, vlan))
        };
        self.ports.iter().filter_map(vnic).collect()
    }
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
            let (_, port) = self.running.port("up").unwrap();
            for (queue, vnics) in port.open().unwrap().queue_vnics().into_iter().enumerate() {
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
