//! Front ends by name: what each of them sends, as its sources have it, is replayed by one of ours, and
//! then a frame goes each way. The tables of messages are those of `test_guest::FrontEnd`.

use datapath::{PortSettings, Switch, SwitchOptions};
use ports::vhost::{self, Features, Session, State, VhostOptions};
use std::path::PathBuf;
use tempfile::TempDir;
use test_guest::{FrontEnd, Guest, Replay};
use waiting::until;
use wire::Mac;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PAIRS: u16 = 2;

/// `VIRTIO_F_RING_RESET`.
const RING_RESET: u64 = 1 << 40;

/// A switch with the vNIC of a replayed front end, and that of a guest to talk to.
struct Bench {
    folder: TempDir,
    _switch: Switch,
    sessions: Vec<Session>,
}

impl Bench {
    fn new(folder: TempDir) -> Bench {
        let mut switch = Switch::start(SwitchOptions::default()).unwrap();
        let sessions = [("own", OWN), ("peer", PEER)].map(|(name, mac)| {
            let mut options = VhostOptions::new(folder.path().join(name));
            (options.queues, options.mac) = (PAIRS, Some(mac));
            let opened = vhost::open(&options).unwrap();
            let settings = PortSettings { mtu: 1500, mac: Some(mac), ..PortSettings::default() };
            switch.add_port(name, opened.device, settings).unwrap();
            opened.session
        });
        Bench { folder, _switch: switch, sessions: sessions.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends this switch and starts another at the same sockets.
    fn again(self) -> Bench {
        let Bench { folder, _switch: switch, sessions } = self;
        drop((switch, sessions));
        Bench::new(folder)
    }
}

/// Returns the features that a driver takes, with rings of this format. The rings of the guest here
/// cannot do more.
fn driver(format: Features) -> Features {
    let rings = Features::RING_PACKED | Features::EVENT_IDX | Features::IN_ORDER;
    (Features::OWN - rings - Features::LOG_ALL - Features::RSC_EXT) | format
}

fn frame(to: Mac, from: Mac, fill: u8) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
    frame.resize(64, fill);
    frame
}

/// Sends frames of a number both ways until one has come each way: a port that was down rests for a
/// moment.
fn talk(own: &mut Replay, peer: &mut Guest, number: u8) {
    let (there, back) = (frame(PEER, OWN, number), frame(OWN, PEER, number));
    let (mut came_there, mut came_back) = (false, false);
    until("frames go both ways", || {
        own.send(0, &there);
        peer.send(0, &[0; 12], &back);
        came_back |= (0..usize::from(PAIRS))
            .any(|pair| std::iter::from_fn(|| own.receive(pair)).any(|frame| frame == back));
        came_there |= std::iter::from_fn(|| peer.receive(0)).any(|(_, frame)| frame == there);
        came_there && came_back
    });
}

/// Returns each front end with the formats of rings that it passes on.
fn formats() -> impl Iterator<Item = (&'static FrontEnd, Features)> {
    FrontEnd::all().into_iter().flat_map(|front_end| {
        let packed = front_end.has_packed_rings().then_some(Features::RING_PACKED);
        let formats = [Some(Features::empty()), Some(Features::EVENT_IDX), packed];
        formats.into_iter().flatten().map(move |format| (front_end, format))
    })
}

#[test]
fn each_front_end_s_guest_talks_and_is_started_anew() {
    for (front_end, format) in formats() {
        let bench = Bench::new(TempDir::new().unwrap());
        let wanted = driver(format);
        let about = format!("{}, {format:?}", front_end.name);
        let connected = Replay::connect(front_end, &bench.path("own"), wanted.bits(), PAIRS);
        let mut own = connected.unwrap_or_else(|error| panic!("{about}: {error}"));
        let mut peer = Guest::connect(&bench.path("peer"), Features::VERSION_1.bits(), 1).unwrap();
        for driver in 1..=2 {
            own.start().unwrap_or_else(|error| panic!("{about}, driver {driver}: {error}"));
            // Some wait for no acknowledgement.
            until(&about, || bench.sessions[0].status().state == State::Running);
            talk(&mut own, &mut peer, driver);
            has_what_it_can_use(front_end, &mut own, &about);
            own.stop().unwrap_or_else(|error| panic!("{about}, driver {driver}: {error}"));
        }
        assert_eq!(bench.sessions[0].status().connections, 1, "{about}");
    }
}

/// Checks that a guest is offered commands if the switch gets them, and no feature that its front
/// end would not serve.
fn has_what_it_can_use(front_end: &FrontEnd, own: &mut Replay, about: &str) {
    let (offered, taken) = own.features();
    let taken = Features::from_bits_retain(taken);
    let commands = front_end.passes_commands();
    let is_left_out = !taken.intersects(Features::COMMANDED);
    match commands {
        true => assert!(taken.contains(Features::COMMANDED), "{about}: {taken:?}"),
        false => assert_ne!(is_left_out, front_end.takes_what_it_keeps(), "{about}: {taken:?}"),
    }
    // Two queue pairs.
    assert_eq!(own.command(4, 0, &[2, 0]), commands, "{about}");
    assert_eq!(offered & RING_RESET, 0, "{about}");
}

/// The front end connects again by itself, and its guest notices nothing. Packed rings need a front
/// end that keeps their places, which those of these do not.
#[test]
fn those_that_come_back_go_on_with_another_switch() {
    let come_back = formats().filter(|(front_end, format)| {
        front_end.comes_back() && !format.contains(Features::RING_PACKED)
    });
    let mut count = 0;
    for (front_end, format) in come_back {
        let bench = Bench::new(TempDir::new().unwrap());
        let wanted = driver(format).bits();
        let mut own = Replay::connect(front_end, &bench.path("own"), wanted, PAIRS).unwrap();
        let mut peer = Guest::connect(&bench.path("peer"), Features::VERSION_1.bits(), 1).unwrap();
        own.start().unwrap();
        for round in 1..=3 {
            talk(&mut own, &mut peer, round);
        }
        let bench = bench.again();
        let about = format!("{}, {format:?}", front_end.name);
        own.come_back(&bench.path("own")).unwrap_or_else(|error| panic!("{about}: {error}"));
        peer.reconnect(&bench.path("peer")).unwrap();
        talk(&mut own, &mut peer, 4);
        count += 1;
    }
    assert_eq!(count, 6, "QEMU of two versions and Cloud Hypervisor, with two formats each");
}
