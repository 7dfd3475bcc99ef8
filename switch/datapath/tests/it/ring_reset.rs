//! One ring is reset and begins anew, while the guest's other rings run and lose nothing.
//!
//! Guests are not offered the feature for it (`VIRTIO_F_RING_RESET`): no front end that was read
//! carries a driver's reset out (docs/front-ends.md).

use datapath::{PortSettings, Rss, Steer, Switch, SwitchOptions};
use ports::vhost::{self, Features, Session, VhostOptions};
use tempfile::TempDir;
use test_guest::Guest;
use waiting::until;
use wire::Mac;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// How often each ring of the first pair is reset.
const RESETS: u32 = 20;
/// Frames each way over the second pair, while a ring is stopped and once it runs again.
const FRAMES: u32 = 25;

/// Returns a datagram with this number, of a flow of its own for each source port.
fn datagram(to: Mac, from: Mac, ports: [u8; 2], number: u32) -> Vec<u8> {
    let (source, destination) = if from == OWN { (1, 2) } else { (2, 1) };
    let mut frame = [&to.0[..], &from.0, &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, source, 10, 0, 0, destination]);
    frame.extend([ports[0], 9, ports[1], 9, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 7);
    frame
}

/// Returns the number in a datagram to or from this port; `None` for any other frame.
fn number(frame: &[u8], port: u8) -> Option<u32> {
    let is_datagram = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
    let ports = [frame.get(34), frame.get(36)];
    let bytes = frame.get(42..46)?.first_chunk()?;
    (is_datagram && ports.contains(&Some(&port))).then(|| u32::from_be_bytes(*bytes))
}

/// A switch with a guest of two pairs and one to talk to.
struct Bench {
    _folder: TempDir,
    _switch: Switch,
    _sessions: Vec<Session>,
    own: Guest,
    peer: Guest,
}

/// The ports of the flow over the second pair, and of the one over the first.
const STEADY: u8 = 2;
const RESET: u8 = 1;

impl Bench {
    fn new(format: Features) -> Bench {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::start(SwitchOptions::default()).unwrap();
        let sessions = [("own", 2), ("peer", 1)].map(|(name, queues)| {
            let mut options = VhostOptions::new(folder.path().join(name));
            options.queues = queues;
            let opened = vhost::open(&options).unwrap();
            let rss = Rss { steer: Steer::Follow, ..Rss::default() };
            let settings = PortSettings { mtu: 1500, rss, ..PortSettings::default() };
            switch.add_port(name, opened.device, settings).unwrap();
            opened.session
        });
        let wanted = Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ | format;
        let own = Guest::connect(&folder.path().join("own"), wanted.bits(), 2).unwrap();
        let peer = Guest::connect(&folder.path().join("peer"), wanted.bits(), 1).unwrap();
        let (switch, sessions) = (switch, sessions.into());
        Bench { _folder: folder, _switch: switch, _sessions: sessions, own, peer }
    }

    /// Sends over a pair and has each frame answered until one answer has come, by whichever pair.
    fn meet(&mut self, pair: usize, port: u8) {
        until("an answer comes", || {
            self.own.send(pair, &[0; 12], &datagram(PEER, OWN, [port; 2], u32::MAX));
            while self.peer.receive(0).is_some() {
                self.peer.send(0, &[0; 12], &datagram(OWN, PEER, [port; 2], u32::MAX));
            }
            let came = |pair| std::iter::from_fn(|| self.own.receive(pair)).count() > 0;
            [0, 1].map(came).contains(&true)
        });
    }

    /// Sends frames of the steady flow both ways. Returns nothing: each has to arrive, once and in
    /// order, and by the second pair.
    fn exchange(&mut self, first: u32) {
        let numbers = || first..first + FRAMES;
        for next in numbers() {
            let sent = datagram(PEER, OWN, [STEADY; 2], next);
            until("there is room", || self.own.send(1, &[0; 12], &sent));
        }
        for next in numbers() {
            let arrived = until("a frame arrives", || {
                let (_, frame) = self.peer.receive(0)?;
                number(&frame, STEADY).filter(|number| *number != u32::MAX)
            });
            assert_eq!(arrived, next, "to the peer");
            let sent = datagram(OWN, PEER, [STEADY; 2], next);
            until("there is room", || self.peer.send(0, &[0; 12], &sent));
        }
        for next in numbers() {
            let arrived = until("an answer arrives", || {
                let (_, frame) = self.own.receive(1)?;
                number(&frame, STEADY).filter(|number| *number != u32::MAX)
            });
            assert_eq!(arrived, next, "to the guest");
        }
    }
}

#[test]
fn a_ring_begins_anew_under_traffic_and_the_others_lose_nothing() {
    for format in [Features::empty(), Features::EVENT_IDX, Features::RING_PACKED] {
        let mut bench = Bench::new(format);
        bench.meet(0, RESET);
        bench.meet(1, STEADY);
        for reset in 0..2 * RESETS {
            // Frames of the first pair are under way while one of its rings is reset.
            for number in 0..8 {
                bench.own.send(0, &[0; 12], &datagram(PEER, OWN, [RESET; 2], number));
                bench.peer.send(0, &[0; 12], &datagram(OWN, PEER, [RESET; 2], number));
            }
            let ring = (reset % 2) as usize;
            bench.own.stop(ring).unwrap();
            bench.exchange(2 * reset * FRAMES);
            bench.own.restart_ring(ring).unwrap();
            bench.exchange((2 * reset + 1) * FRAMES);
        }
        bench.meet(0, RESET);
    }
}
