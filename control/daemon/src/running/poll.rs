//! The poll once a second: links, events of the workers, rates, and retries of broken ports.

use super::journal::Journal;
use super::parallel_open::AT_ONCE;
use super::port::{PortDevice, RunningPort};
use super::ports::Ports;
use super::{Running, team};
use config::PortName;
use datapath::{HealthEvent, PortInfo, PortState};
use devices::Condition;
use std::collections::BTreeSet;
use std::mem::discriminant;
use std::time::Instant;
use tracing::Level;

impl Running {
    /// Polls everything. `now` never runs backwards.
    pub fn poll(&mut self, now: Instant) {
        self.close_failed(now);
        self.poll_links(now);
        self.switch.tend_kernel_path();
        for event in self.switch.take_events() {
            note(event, &self.ports, &mut self.journal, now);
        }
        self.captures.poll(&self.ports, &mut self.switch, &mut self.journal, now);
        if self.all_answer().is_ok() {
            self.open_again(now);
            // Failures are events.
            let _ = self.settle(now);
            self.announce_again();
            self.settle_vnics(now);
            self.settle_pins();
        }
        self.look_at_flows(now);
        self.vmmq.find_homes(&mut self.ports, now);
        self.ports.sample(&self.switch, now);
        self.remember(now);
    }

    /// Removes ports that a worker found broken from the switch, so that their devices are closed
    /// and can be reopened.
    fn close_failed(&mut self, now: Instant) {
        for info in self.switch.ports() {
            if let PortState::Broken(reason) = info.state {
                let name = self.ports.find(&info.name).map(|(name, _)| name.clone());
                if let Some(name) = name {
                    self.detach(&name, &reason, now);
                }
            }
        }
    }

    /// Sends link changes to the switch, which reports each as an event. What the switch knows is
    /// read before the links are, so that a change by a worker meanwhile is not undone.
    fn poll_links(&mut self, now: Instant) {
        let infos = self.infos();
        let (mut failed, mut changed) = (Vec::new(), Vec::new());
        let (mut news, mut started_anew) = (Vec::new(), Vec::new());
        let mut came_or_went = Vec::new();
        for (name, open) in self.ports.open_mut() {
            let look = open.watch.state();
            news.extend(open.watch.news().into_iter().map(|text| (name.clone(), text)));
            let state = match look.condition {
                Condition::Up => PortState::Up,
                Condition::Down(reason) => PortState::Down(reason),
                // With `Broken` the switch would close it for good.
                Condition::Broken(fault) => {
                    PortState::Down(format!("its guest is broken: {fault}"))
                }
                Condition::Gone => {
                    failed.push((name.clone(), "its device no longer exists".to_owned()));
                    continue;
                }
                Condition::Failed(reason) => {
                    failed.push((name.clone(), reason));
                    continue;
                }
            };
            open.mtu = look.mtu;
            let front_ends = (look.connections, look.connected);
            let before = std::mem::replace(&mut open.front_ends, front_ends);
            came_or_went.extend(guest_news(before, front_ends).map(|text| (name.clone(), text)));
            if look.connections > 1 {
                // The first front end belonged to the guest before.
                started_anew.push(name.clone());
            }
            let place = infos.binary_search_by_key(&open.id, |info| info.id);
            let Some(known) = place.ok().and_then(|place| infos.get(place)) else { continue };
            if discriminant(&known.state) != discriminant(&state) {
                changed.push((name.clone(), known, state));
            }
        }
        started_anew.iter().for_each(|name| self.ports.forget_guest_mtu(name.as_str()));
        for (name, text) in came_or_went {
            let text = format!("port {name}: {text}");
            self.journal.note_of(Level::INFO, name.as_str(), now, text);
        }
        for (name, text) in news {
            self.journal.note_step(name.as_str(), now, format!("port {name}: {text}"));
        }
        for (name, known, state) in changed {
            if let Err(error) = self.switch.set_state(known, state) {
                self.journal.note(Level::ERROR, now, format!("port {name}: {error}"));
            }
        }
        for (name, reason) in failed {
            self.detach(&name, &reason, now);
        }
    }

    /// Removes a port from the switch and keeps it as broken.
    fn detach(&mut self, name: &PortName, reason: &str, now: Instant) {
        let names = BTreeSet::from([name.as_str()]);
        let addresses = team::addresses_of(&self.ports, &self.switch, &names);
        let Some(port) = self.ports.get_mut(name) else { return };
        let closed = PortDevice::Closed { reason: reason.to_owned(), denied: false };
        let PortDevice::Open(open) = std::mem::replace(&mut port.device, closed) else { return };
        self.captures.fail(name, reason);
        let _ = self.settle_around(&names, now);
        if let Err(error) = self.switch.remove_port(open.id) {
            self.journal.note(Level::ERROR, now, format!("port {name}: {error}"));
        }
        team::forget(&self.ports, &addresses);
        self.journal.note_of(
            Level::ERROR,
            name.as_str(),
            now,
            format!("port {name} is broken: {reason}"),
        );
    }

    /// Opens broken ports again, but those that the plan in work closes, changes or opens anyway.
    fn open_again(&mut self, now: Instant) {
        let closed = |(name, port): &(&PortName, &RunningPort)| {
            port.closed().is_some()
                && !self.desired.is_pending(name.as_str())
                && !self.ports.is_opening(&port.config)
        };
        let broken: Vec<_> =
            self.ports.iter().filter(closed).map(|(_, port)| port.config.clone()).collect();
        for ports in broken.iter().collect::<Vec<_>>().chunks(AT_ONCE) {
            // The reasons are kept with the ports. The rest of the poll comes first.
            let _ = self.without_pauses(|running| running.open(ports, now));
        }
    }

    /// Announces addresses of ports that are up a second time, once the first announcement is sent.
    fn announce_again(&mut self) {
        if !self.ports.open().any(|(_, open)| open.announces) {
            return;
        }
        let up: Vec<_> =
            self.infos().into_iter().filter(|info| info.state == PortState::Up).collect();
        let mut due = Vec::new();
        for (_, open) in self.ports.open_mut() {
            let is_due = open.announces && !self.switch.is_announcing(open.id);
            if is_due && up.iter().any(|info| info.id == open.id) {
                open.announces = false;
                due.push(open.id);
            }
        }
        if !due.is_empty() {
            // A worker that does not answer announces once it does.
            let _ = self.switch.announce(&due);
        }
    }

    /// The ports in the switch, as the switch reports them.
    pub(super) fn infos(&self) -> Vec<PortInfo> {
        self.switch.ports()
    }
}

/// Returns what is said of a guest's front end that came or went since the poll before: how many
/// had connected and whether one was, then and now.
fn guest_news(
    (then, was): (u64, bool),
    (now, is): (u64, bool),
) -> impl Iterator<Item = &'static str> {
    const CAME: &str = "a guest connected";
    const LEFT: &str =
        "its guest disconnected: it was shut down or has crashed, and the port waits for it";
    let told: &[_] = match (was, is) {
        (true, true) if now > then => &[LEFT, CAME],
        (true, false) => &[LEFT],
        (false, true) => &[CAME],
        // It came and went between two polls.
        (false, false) if now > then => &[CAME, LEFT],
        (true, true) | (false, false) => &[],
    };
    told.iter().copied()
}

fn note(event: HealthEvent, ports: &Ports, journal: &mut Journal, now: Instant) {
    let (level, port, text) = told(event, ports);
    match port {
        Some(port) => journal.note_of(level, &port, now, text),
        None => journal.note(level, now, text),
    }
}

/// Returns an event's level, its port, if it is of one, and its text.
fn told(event: HealthEvent, ports: &Ports) -> (Level, Option<String>, String) {
    match event {
        HealthEvent::TooBig { from, from_mtu, to, to_mtu } => {
            let (from, to) = (ports.name_of(from), ports.name_of(to));
            let text =
                format!("{to} has MTU {to_mtu}, {from} has {from_mtu}: raise {to} or lower {from}");
            (Level::WARN, Some(from), text)
        }
        HealthEvent::BlackHole { from, from_mtu, to, to_mtu } => {
            let (from, to) = (ports.name_of(from), ports.name_of(to));
            let text = format!(
                "{from} (MTU {from_mtu}) repeatedly retransmits large packets through {to} (MTU {to_mtu}) while small \
                 ones pass: a hop behind {to} has a smaller MTU and does not report it; `millrace mtu check` finds it"
            );
            (Level::WARN, Some(from), text)
        }
        HealthEvent::PortState { port, state } => {
            let port = ports.name_of(port);
            let text = format!("port {port} {}", state_text(&state));
            let level = match state {
                PortState::Broken(_) => Level::ERROR,
                _ => Level::INFO,
            };
            (level, Some(port), text)
        }
        HealthEvent::WorkerHangs { worker, port } => {
            let port = port.map_or("no port".to_owned(), |port| ports.name_of(port));
            let text = format!(
                "worker {worker} does not answer: its ports carry no frames, and nothing can be changed; it last served \
                 {port}"
            );
            (Level::ERROR, None, text)
        }
        HealthEvent::WorkerAnswers { worker } => {
            (Level::INFO, None, format!("worker {worker} answers again"))
        }
    }
}

fn state_text(state: &PortState) -> String {
    match state {
        PortState::Up => "is up".to_owned(),
        PortState::Down(reason) => format!("is down: {reason}"),
        PortState::Broken(reason) => format!("is broken: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use datapath::DropReason;
    use std::time::Duration;
    use test_devices::MemoryDevices;
    use wire::Mac;
    use wire::vnet::VnetHeader;

    /// A guest that crashed before its driver was ready left no trace: the port had not been up.
    #[test]
    fn a_guest_that_comes_and_goes_is_an_event() {
        let news = |before, now| guest_news(before, now).collect::<Vec<_>>().len();
        assert_eq!((news((0, false), (0, false)), news((1, true), (1, true))), (0, 0));
        assert_eq!((news((0, false), (1, true)), news((1, true), (1, false))), (1, 1));
        assert_eq!(news((1, true), (2, true)), 2, "another one within a second");
        assert_eq!(news((1, false), (2, false)), 2, "it crashed within a second");
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let config = "[[port]]\nname='vm1'\nvhost-user='/run/vm1'\n";
        let config = Config::from_toml("t", config).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        let mut second = 0;
        let mut told = |running: &mut Running, text: &str| {
            second += 1;
            running.poll(start + Duration::from_secs(second));
            running.switch_body(start).events.iter().any(|event| event.text.starts_with(text))
        };
        assert!(!told(&mut running, "port vm1: a guest connected"));
        devices.replace_guest("/run/vm1");
        assert!(told(&mut running, "port vm1: a guest connected"));
        assert!(!told(&mut running, "port vm1: its guest disconnected"));
        devices.set("/run/vm1", test_devices::Fate::Down);
        assert!(told(&mut running, "port vm1: its guest disconnected"));
    }

    /// A guest that left and the next one that connected within a second were one guest: the next
    /// was held to the address of the first.
    #[test]
    fn a_guest_that_follows_within_a_second_is_not_held_to_the_address_of_the_last() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='vm1'\nvhost-user='/run/vm1'\n";
        let config = Config::from_toml("t", text).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        let peer = devices.peer("/run/vm1").unwrap();
        let held = |running: &Running| running.infos()[0].held_mac;
        // Sends from an address until the switch holds the port to one.
        let held_after = |running: &Running, mac: Mac| {
            let mut frame = [[0xff; 6], mac.0].concat();
            frame.resize(64, 0);
            let end = Instant::now() + Duration::from_secs(60);
            while held(running).is_none() {
                peer.send(VnetHeader::default(), &frame);
                assert!(Instant::now() < end, "no address is held");
                std::thread::sleep(Duration::from_millis(1));
            }
            held(running)
        };
        let mut second = 0;
        let mut poll = |running: &mut Running| {
            second += 1;
            running.poll(start + Duration::from_secs(second));
        };
        let [first, next] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
        assert_eq!(held_after(&running, first), Some(first));
        poll(&mut running);
        assert_eq!(held(&running), Some(first), "the same guest");
        devices.replace_guest("/run/vm1");
        poll(&mut running);
        assert_eq!((held(&running), &running.infos()[0].state), (None, &PortState::Up));
        let events = running.switch_body(start).events;
        assert!(!events.iter().any(|event| event.text.contains("is down")), "{events:?}");
        assert_eq!(held_after(&running, next), Some(next));
        poll(&mut running);
        assert_eq!(held(&running), Some(next), "released once");
    }

    /// A container made its device anew with the address of another guest or of the gateway, and
    /// got their frames.
    #[test]
    fn a_device_that_comes_back_with_another_address_takes_it_from_nobody() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='vm1'\ntap='tap1'\n[[port]]\nname='vm2'\ntap='tap2'\n";
        let config = Config::from_toml("t", text).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        let own = |running: &Running, name: &str| {
            running.infos().iter().find(|info| info.name == name).unwrap().settings.mac
        };
        let (first, other) = (own(&running, "vm1").unwrap(), own(&running, "vm2").unwrap());
        let mut second = 0;
        let mut remade_with = |running: &mut Running, mac| {
            for fate in [test_devices::Fate::Gone, test_devices::Fate::Up] {
                devices.set("tap1", fate);
                devices.set_mac("tap1", mac);
                second += 1;
                running.poll(start + Duration::from_secs(second));
            }
            own(running, "vm1")
        };
        assert_eq!(remade_with(&mut running, other), None);
        assert_eq!(own(&running, "vm2"), Some(other));
        let events = running.switch_body(start).events;
        assert!(events.iter().any(|event| event.text.contains("set `mac`")), "{events:?}");
        assert_eq!(remade_with(&mut running, first), Some(first), "its own is known again");
    }

    /// A guest that reconnected went on with the MTU that it was started with, and nothing said so.
    #[test]
    fn a_running_guests_changed_mtu_is_told_until_it_starts_anew() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = |mtu: u16| {
            let text = format!("[[port]]\nname='vm1'\nvhost-user='/run/vm1'\nmtu={mtu}\n");
            Config::from_toml("t", &text).unwrap()
        };
        let mut running = Running::start(text(1500), Box::new(devices.clone()), start).unwrap();
        let mut second = 0;
        let mut told = |running: &mut Running| {
            second += 1;
            running.poll(start + Duration::from_secs(second));
            let findings = running.health(start + Duration::from_secs(second)).findings;
            let errors = findings.into_iter().map(|found| found.problem.error);
            errors.filter(|error| error.contains("was started with MTU")).collect::<Vec<_>>()
        };
        let change = |running: &mut Running, mtu| running.reload(text(mtu), start).map(drop);
        change(&mut running, 1600).unwrap();
        assert!(told(&mut running).is_empty(), "there was no guest");
        devices.replace_guest("/run/vm1");
        assert!(told(&mut running).is_empty());
        change(&mut running, 9000).unwrap();
        let wanted = "port vm1 has MTU 9000, its guest was started with MTU 1600";
        assert_eq!(
            (told(&mut running), told(&mut running)),
            (vec![wanted.into()], vec![wanted.into()])
        );
        devices.replace_guest("/run/vm1");
        assert!(told(&mut running).is_empty(), "it has started anew");
    }

    /// Nothing was said of an address that a guest had taken from a machine outside.
    #[test]
    fn a_held_address_that_lives_behind_an_uplink_is_found() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='vm1'\nvhost-user='/run/vm1'\n\
            [[port]]\nname='uplink0'\npacket='eth9'\n";
        let config = Config::from_toml("t", text).unwrap();
        let running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        let (vm, outside) = (devices.peer("/run/vm1").unwrap(), devices.peer("eth9").unwrap());
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut frame = [[0xff; 6], mac.0].concat();
        frame.resize(64, 0);
        let found = |running: &Running| {
            let told = "port vm1 is held to an address that is also behind uplink0";
            running.health(start).findings.iter().any(|found| found.problem.error == told)
        };
        let end = Instant::now() + Duration::from_secs(60);
        while running.infos().iter().all(|info| info.held_mac.is_none()) {
            vm.send(VnetHeader::default(), &frame);
            assert!(Instant::now() < end, "no address is held");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!found(&running));
        while !found(&running) {
            outside.send(VnetHeader::default(), &frame);
            assert!(Instant::now() < end, "not found");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The first look took a guest whose session went on for another one: it was free to hold a
    /// neighbour's address.
    #[test]
    fn a_guest_whose_session_goes_on_is_held_to_its_address_at_the_first_look() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        devices.replace_guest("/run/vm1");
        let config = Config::from_toml("t", "[[port]]\nname='vm1'\nvhost-user='/run/vm1'\n");
        let mut running =
            Running::start(config.unwrap(), Box::new(devices.clone()), start).unwrap();
        let peer = devices.peer("/run/vm1").unwrap();
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut frame = [[0xff; 6], mac.0].concat();
        frame.resize(64, 0);
        let end = Instant::now() + Duration::from_secs(60);
        while running.infos()[0].held_mac.is_none() {
            peer.send(VnetHeader::default(), &frame);
            assert!(Instant::now() < end, "no address is held");
            std::thread::sleep(Duration::from_millis(1));
        }
        running.poll(start + Duration::from_secs(1));
        assert_eq!(running.infos()[0].held_mac, Some(mac));
    }

    /// After a restart it was held to whatever address it sent from first: its neighbour's, if it
    /// was quicker.
    #[test]
    fn a_guest_whose_session_goes_on_is_held_to_the_address_of_the_earlier_process() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='vm1'\nvhost-user='/run/vm1'\n";
        let config = Config::from_toml("t", text).unwrap();
        let running = |devices: &MemoryDevices| {
            Running::start(config.clone(), Box::new(devices.clone()), start).unwrap()
        };
        let [own, other] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
        devices.set_earlier_mac("/run/vm1", own);
        let next = running(&devices);
        let peer = devices.peer("/run/vm1").unwrap();
        let mut frame = [[0xff; 6], other.0].concat();
        frame.resize(64, 0);
        let spoofed = || {
            next.switch.counters(next.infos()[0].id).unwrap().drops[DropReason::MacSpoofed as usize]
        };
        let end = Instant::now() + Duration::from_secs(60);
        while spoofed() == 0 {
            peer.send(VnetHeader::default(), &frame);
            assert!(Instant::now() < end, "frames from another address pass");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(next.infos()[0].held_mac, Some(own));
        let kept: Vec<_> = next
            .ports
            .addresses_to_keep(&next.infos())
            .into_iter()
            .map(|(port, mac)| (port, mac.0))
            .collect();
        assert_eq!(kept, [("vm1".to_owned(), own)]);
    }

    #[test]
    fn what_is_down_is_found_by_its_role_and_clears() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let text = "[[port]]\nname='up'\npacket='eth1'\n[[port]]\nname='vm1'\ntap='tap1'\n";
        let config = Config::from_toml("t", text).unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        let mut second = 0;
        let mut kinds = |running: &mut Running| {
            second += 1;
            let now = start + Duration::from_secs(second);
            running.poll(now);
            let health = running.health(now);
            let kinds = health.findings.into_iter().map(|found| found.kind);
            (health.healthy, kinds.collect::<Vec<_>>())
        };
        assert_eq!(kinds(&mut running), (true, vec![]));
        for device in ["eth1", "tap1"] {
            devices.set(device, test_devices::Fate::Down);
        }
        let told = ["uplink_down", "port_down"].map(str::to_owned).to_vec();
        let found = waiting::until("what is told appears", || {
            Some(kinds(&mut running)).filter(|found| found.1 == told)
        });
        assert!(!found.0);
        for device in ["eth1", "tap1"] {
            devices.set(device, test_devices::Fate::Up);
        }
        waiting::until("nothing is told", || kinds(&mut running) == (true, vec![]));
    }

    /// Else it would be broken for good, because the device itself is there and up.
    #[test]
    fn a_device_that_failed_is_opened_anew_at_once() {
        let (devices, start) = (MemoryDevices::default(), Instant::now());
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='eth9'\n").unwrap();
        let mut running = Running::start(config, Box::new(devices.clone()), start).unwrap();
        devices.set("eth9", test_devices::Fate::Failed);
        running.poll(start + Duration::from_secs(1));
        let events = running.switch_body(start).events;
        let text = "port u is broken: its ring has stalled";
        assert!(events.iter().any(|event| event.text == text), "{events:?}");
        assert_eq!(running.infos().len(), 1, "it is open again");
    }
}
