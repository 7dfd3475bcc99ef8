//! Announcements: what the network hears of a guest that comes to run at a port, before it says
//! anything itself.

use crate::common::{ALL, Bench, access, plain, trunk};
use datapath::{DropReason, Guards, PortRole, PortSettings, PortState, Prefix};
use ports::vhost::{self, Features, Session, VhostOptions};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use wire::Mac;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ASKED: Mac = Mac([2, 0, 0, 0, 0, 9]);
const ETHERTYPE_RARP: u16 = 0x8035;

/// A port with a guest to come, beside an uplink of all VLANs.
struct Place {
    folder: TempDir,
    bench: Bench,
    _session: Session,
    /// The uplink's peer.
    uplink: usize,
}

impl Place {
    fn new(settings: PortSettings) -> Place {
        let folder = TempDir::new().unwrap();
        let mut options = VhostOptions::new(folder.path().join("vm"));
        options.mac = settings.mac;
        let opened = vhost::open(&options).unwrap();
        let uplink = PortSettings { role: PortRole::Uplink, ..trunk(0, &[10, 20]) };
        let mut bench = Bench::new(&[(uplink, ALL)]);
        bench.ids.push(bench.switch.add_port("vm", opened.device, settings).unwrap());
        Place { folder, bench, _session: opened.session, uplink: 0 }
    }

    fn guest(&self) -> Guest {
        let features = Features::VERSION_1 | Features::MRG_RXBUF;
        Guest::connect(&self.folder.path().join("vm"), features.bits(), 1).unwrap()
    }

    /// Returns the announcements at the uplink: source, VLAN and ethertype of each frame.
    fn heard(&mut self) -> Vec<(Mac, u16, u16)> {
        heard(&mut self.bench, self.uplink)
    }

    fn state(&self) -> PortState {
        self.bench.switch.ports()[1].state.clone()
    }
}

/// Returns the announcements at an uplink: source, VLAN and ethertype of each frame.
fn heard(bench: &mut Bench, uplink: usize) -> Vec<(Mac, u16, u16)> {
    (0..10).for_each(|_| bench.step());
    let frames = bench.received(uplink);
    let told = frames.iter().map(|frame| {
        let parsed = wire::parse(&frame.bytes, frame.bytes.len()).unwrap();
        assert_eq!(frame.bytes[..6], parsed_destination(parsed.ethertype));
        (Mac(*frame.bytes[6..].first_chunk().unwrap()), parsed.vlan_id(), parsed.ethertype)
    });
    told.collect()
}

fn parsed_destination(ethertype: u16) -> [u8; 6] {
    if ethertype == 0x86dd { [0x33, 0x33, 0, 0, 0, 1] } else { [0xff; 6] }
}

fn owned() -> PortSettings {
    PortSettings { mac: Some(OWN), mac_guard: true, ..plain() }
}

#[test]
fn a_guest_is_announced_when_its_rings_start_and_once() {
    let mut place = Place::new(owned());
    place.bench.set_state(1, PortState::Down("no guest".into()));
    assert_eq!(place.heard(), []);
    let mut guest = place.guest();
    assert_eq!(place.heard(), [(OWN, 0, ETHERTYPE_RARP)]);
    assert_eq!(place.state(), PortState::Up, "told by the frame, not by the next look");
    assert_eq!(place.heard(), []);
    guest.stop(0).unwrap();
    guest.kick_anew(0).unwrap();
    assert_eq!(place.heard(), [(OWN, 0, ETHERTYPE_RARP)], "it runs again");
}

#[test]
fn a_guest_is_announced_in_every_vlan_of_its_port_with_the_addresses_of_its_guard() {
    let own = |text: &str, length| Prefix::new(text.parse().unwrap(), length).unwrap();
    let addresses = vec![own("10.0.0.5", 32), own("10.1.0.0", 16), own("fd00::5", 128)];
    let guards = Guards { addresses: Some(addresses), ..Guards::default() };
    let settings = PortSettings { vlan: trunk(10, &[20, 30]).vlan, guards, ..owned() };
    let mut place = Place::new(settings);
    let _guest = place.guest();
    // VLAN 30 is not of the uplink.
    let kinds = [ETHERTYPE_RARP, 0x0806, 0x86dd];
    let wanted = kinds.iter().flat_map(|kind| [(OWN, 10, *kind), (OWN, 20, *kind)]);
    assert_eq!(place.heard(), wanted.collect::<Vec<_>>());
    let drops = place.bench.switch.counters(place.bench.ids[1]).unwrap().drops;
    assert_eq!(drops[DropReason::NoPort as usize], 3, "VLAN 30, three times: {drops:?}");
    assert_eq!(drops.iter().sum::<u64>(), 3);
}

/// QEMU asks for it a millisecond before it starts the rings, which was no time at which it could
/// be done.
#[test]
fn an_address_that_is_asked_for_before_the_rings_start_is_announced_when_they_do() {
    let mut place = Place::new(access(10));
    let mut guest = place.guest();
    assert_eq!(place.heard(), [], "no address is known");
    guest.stop(0).unwrap();
    assert_eq!(guest.announce(ASKED.0).unwrap(), 0);
    assert_eq!(place.heard(), [], "no ring");
    guest.kick_anew(0).unwrap();
    assert_eq!(place.heard(), [(ASKED, 10, ETHERTYPE_RARP)]);
    guest.announce(ASKED.0).unwrap();
    assert_eq!(place.heard(), [(ASKED, 10, ETHERTYPE_RARP)], "asked again");
}

/// The station behind a TAP does not say when its address changes.
#[test]
fn a_new_address_of_a_port_is_announced_once_and_when_asked() {
    let uplink = PortSettings { role: PortRole::Uplink, ..trunk(0, &[10, 20]) };
    let mut bench = Bench::new(&[(uplink, ALL), (plain(), ALL)]);
    let id = bench.ids[1];
    assert_eq!(heard(&mut bench, 0), []);
    let addresses = vec![Prefix::new("10.0.0.5".parse().unwrap(), 32).unwrap()];
    let guards = Guards { addresses: Some(addresses), ..Guards::default() };
    let settings = PortSettings { guards, ..owned() };
    bench.switch.change_port(id, settings.clone()).unwrap();
    let wanted = [(OWN, 0, ETHERTYPE_RARP), (OWN, 0, 0x0806)];
    assert_eq!(heard(&mut bench, 0), wanted);
    let limited = PortSettings { mac_limit: 7, ..settings };
    bench.switch.change_port(id, limited).unwrap();
    assert_eq!(heard(&mut bench, 0), [], "the address is the same");
    bench.switch.announce(&[id]).unwrap();
    assert_eq!(heard(&mut bench, 0), wanted);
}

/// A front end says any address: it is the guards that say which the port may have.
#[test]
fn no_front_end_announces_the_address_of_another_port() {
    let mut place = Place::new(owned());
    let mut guest = place.guest();
    place.heard();
    guest.announce(ASKED.0).unwrap();
    assert_eq!(place.heard(), []);
    let drops = place.bench.switch.counters(place.bench.ids[1]).unwrap().drops;
    assert_eq!(drops[DropReason::MacSpoofed as usize], 1);
}

/// The destination's switch had the guest at its uplink until the guest spoke.
#[test]
fn frames_from_beside_reach_a_guest_that_has_said_nothing() {
    let mut place = Place::new(plain());
    let station = place.bench.add(plain(), ALL);
    let beside = place.bench.peers.len() - 1;
    let mut guest = place.guest();
    let frame = |to: Mac, from: Mac| {
        let mut bytes = [to.0, from.0].concat();
        bytes.resize(60, 0x88);
        ports::memory::MemoryFrame { bytes, ..Default::default() }
    };
    place.bench.send(place.uplink, &[frame(Mac::BROADCAST, ASKED)]);
    guest.announce(ASKED.0).unwrap();
    place.heard();
    while guest.receive(0).is_some() {}
    place.bench.send(beside, &[frame(ASKED, OWN)]);
    let end = Instant::now() + Duration::from_secs(20);
    while guest.receive(0).is_none() {
        assert!(Instant::now() < end, "it was not delivered");
    }
    assert_eq!(place.bench.received(place.uplink).len(), 0);
    assert_eq!(place.bench.switch.counters(station).unwrap().dropped(), 0);
}
