//! Restarts under guests: their front ends stay connected, and each frame comes once and in order.

use crate::outage::{Arrivals, restarts, told};
use crate::sandbox::{Need, story};
use crate::switch::{FILE, Switch};
use crate::systemd::Systemd;
use ports::vhost::Features;
use rustix::process::Signal;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use test_guest::Guest;
use waiting::until;

const PORTS: &str = "\
    [[port]]\nname = 'a'\nvhost-user = '/run/a.sock'\nmac = '02:00:00:00:00:01'\n\
    [[port]]\nname = 'b'\nvhost-user = '/run/b.sock'\nmac = '02:00:00:00:00:02'\n";
const SOCKETS: [&str; 2] = ["/run/a.sock", "/run/b.sock"];
/// Most frames under way: the receiver always has room.
const WINDOW: u32 = 32;

/// The number of a frame that only tests whether frames come.
const PROBE: u32 = u32::MAX;
/// EtherType for experiments on the local network (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];

/// Two guests, one of which sends numbered frames to the other.
pub(crate) struct Guests {
    guests: [Guest; 2],
    sent: u32,
    came: u32,
    /// Whether a switch was killed: frames that it had delivered and not given back come once more.
    has_crashed: bool,
}

impl Guests {
    /// Connects the guests and waits until the switch knows them: before that, frames to a guest
    /// are lost.
    pub(crate) fn connect(features: u64) -> Guests {
        let guest = |socket: &str| Guest::connect(Path::new(socket), features, 1).unwrap();
        let guests = SOCKETS.map(guest);
        let mut guests = Guests { guests, sent: 0, came: 0, has_crashed: false };
        until("a frame comes", || {
            guests.send(PROBE);
            guests.receive().contains(&PROBE).then_some(())
        });
        guests
    }

    fn send(&mut self, number: u32) -> bool {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(TYPE);
        frame.extend(number.to_le_bytes());
        frame.resize(60, 0);
        self.guests[0].send(0, &[0; 12], &frame)
    }

    /// Returns the numbers of frames that have come. Frames without a number announce a guest.
    fn receive(&mut self) -> Vec<u32> {
        let frames = std::iter::from_fn(|| self.guests[1].receive(0));
        let numbered = frames.map(|(_, frame)| frame).filter(|frame| frame[12..14] == TYPE);
        numbered.map(|frame| u32::from_le_bytes(*frame[14..].first_chunk().unwrap())).collect()
    }

    /// Sends as many frames as may be under way, and checks those that have come. Returns how many
    /// came.
    fn step(&mut self) -> u32 {
        while self.sent - self.came < WINDOW && self.send(self.sent) {
            self.sent += 1;
        }
        let before = self.came;
        for number in self.receive() {
            if number != PROBE && !(self.has_crashed && number < self.came) {
                assert_eq!(number, self.came);
                self.came += 1;
            }
        }
        self.came - before
    }

    /// Reconnects the guests, the receiver first: frames to an absent guest are lost.
    fn reconnect(&mut self) {
        self.has_crashed = true;
        for (guest, socket) in self.guests.iter_mut().zip(SOCKETS).rev() {
            guest.reconnect(Path::new(socket)).unwrap();
        }
    }
}

/// Runs the guests in a thread.
pub(crate) struct Traffic {
    guests: Arc<Mutex<Guests>>,
    pub(crate) arrivals: Arc<Arrivals>,
    thread: JoinHandle<()>,
}

impl Traffic {
    pub(crate) fn start(guests: Guests) -> Traffic {
        let (guests, arrivals) = (Arc::new(Mutex::new(guests)), Arc::new(Arrivals::default()));
        let (sends, seen) = (guests.clone(), arrivals.clone());
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            while !seen.is_over() {
                match sends.lock().unwrap().step() {
                    0 => thread::yield_now(),
                    count => (0..count).for_each(|_| seen.note(&mut last)),
                }
            }
        });
        Traffic { guests, arrivals, thread }
    }

    /// Restarts the switch repeatedly, and prints the outages.
    fn restart_all(
        &self,
        how: &str,
        switch: Switch,
        mut restart: impl FnMut(Switch) -> Switch,
    ) -> Switch {
        let mut running = Some(switch);
        let mut outages = Vec::new();
        for _ in 0..restarts() {
            let arrivals = &self.arrivals;
            outages.push(arrivals.outage_ms(|| running = running.take().map(&mut restart)));
            let switch = running.as_ref().unwrap();
            assert_eq!(["a", "b"].map(|port| switch.state(port).0), ["up", "up"]);
        }
        let frames = self.guests.lock().unwrap().came;
        println!("measured: {how}: {}; {frames} frames, each once and in order", told(outages));
        running.unwrap()
    }

    /// Stops sending, waits until all frames have come, and returns the guests.
    pub(crate) fn end(self) -> Guests {
        self.arrivals.end();
        self.thread.join().unwrap();
        let mut guests = Arc::into_inner(self.guests).unwrap().into_inner().unwrap();
        let sent = guests.sent;
        until("the last frame comes", || {
            guests.step();
            (guests.came >= sent).then_some(())
        });
        guests
    }
}

/// Returns the features that drivers accept, in either format of rings.
fn formats() -> [(&'static str, u64); 2] {
    let split = Features::VERSION_1 | Features::MRG_RXBUF;
    [("split", split.bits()), ("packed", (split | Features::RING_PACKED).bits())]
}

#[test]
fn guests_notice_nothing_of_a_hand_over() {
    story(&[], || {
        let mut switch = Switch::start(PORTS);
        for (format, features) in formats() {
            let traffic = Traffic::start(Guests::connect(features));
            let how = format!("hand-over, {format} rings");
            switch = traffic.restart_all(&how, switch, Switch::take_over);
            traffic.end();
        }
    });
}

/// After SIGTERM the sessions go on. After SIGKILL the sockets are still there: the next daemon
/// serves front ends that connect meanwhile, and the rings go on from their position.
#[test]
fn guests_stay_with_a_service_manager_and_its_sockets_outlive_a_crash() {
    story(&[Need::Program("bash")], || {
        let systemd = Systemd::new();
        let sockets = ["a.0", "b.0", "manifest"];
        std::fs::write(FILE, PORTS).unwrap();
        let mut switch = systemd.start();
        for (format, features) in formats() {
            systemd.wait_for(&sockets);
            let traffic = Traffic::start(Guests::connect(features));
            let how = format!("a service manager, {format} rings");
            switch = traffic.restart_all(&how, switch, |switch| {
                switch.end(Signal::TERM);
                systemd.wait_for(&["a.0", "a.session", "b.0", "b.session", "manifest"]);
                systemd.start()
            });
            systemd.wait_for(&sockets);
            let mut guests = traffic.end();
            switch.end(Signal::KILL);
            systemd.wait_for(&sockets);
            // No daemon runs now.
            for socket in SOCKETS {
                UnixStream::connect(socket).unwrap();
            }
            let came = guests.came;
            guests.step();
            let reconnected = thread::spawn(move || {
                guests.reconnect();
                guests
            });
            switch = systemd.start();
            let mut guests = reconnected.join().unwrap();
            until("what was sent meanwhile comes", || {
                guests.step();
                (guests.came > came + WINDOW).then_some(())
            });
        }
    });
}

/// A guest that sent within a second of connecting lost its address to the next poll, and a
/// neighbour took it: 10 of 10 frames for the guest went there.
#[test]
fn a_neighbour_does_not_take_the_address_of_a_guest_that_has_just_connected() {
    story(&[], || {
        let port =
            |name: &str| format!("[[port]]\nname = '{name}'\nvhost-user = '/run/{name}.sock'\n");
        let switch = Switch::start(&["victim", "peer", "thief"].map(port).concat());
        let features = Features::VERSION_1 | Features::MRG_RXBUF;
        let connect = |name: &str| {
            Guest::connect(Path::new(&format!("/run/{name}.sock")), features.bits(), 1).unwrap()
        };
        let frame = |to: [u8; 6], from: u8| {
            let mut frame = [to, [2, 0, 0, 0, 0, from]].concat();
            frame.extend(TYPE);
            frame.resize(60, 0);
            frame
        };
        let (all, victim_mac) = ([0xff; 6], [2, 0, 0, 0, 0, 1]);
        let count = |guest: &mut Guest, from: u8| {
            let frames = std::iter::from_fn(|| guest.receive(0));
            frames.filter(|(_, frame)| frame[..6] == victim_mac && frame[11] == from).count()
        };
        let mut peer = connect("peer");
        assert!(peer.send(0, &[0; 12], &frame(all, 2)));
        let received = |port: &str| switch.counter(port, "/ingress_frames");
        for round in 1..=3 {
            let mut victim = connect("victim");
            assert!(victim.send(0, &[0; 12], &frame(all, 1)));
            until("it is heard", || (received("victim") >= round).then_some(()));
            // Each poll computes the rates anew: frames that are in them have been polled.
            until("the port has been polled", || {
                let shown = switch.ask("port show victim");
                let rate = shown["rates"]["ingress_frames_per_s"].as_u64();
                (rate > Some(0)).then_some(())
            });
            let mut thief = connect("thief");
            assert!(thief.send(0, &[0; 12], &frame(all, 1)));
            let taken = || switch.counter("thief", "/drops/address_taken");
            until("it is refused", || (taken() >= round).then_some(()));
            for _ in 0..10 {
                assert!(peer.send(0, &[0; 12], &frame(victim_mac, 2)));
            }
            let mut came = 0;
            until("all have come", || {
                came += count(&mut victim, 2);
                (came == 10).then_some(())
            });
            assert_eq!(count(&mut thief, 2), 0);
            drop((victim, thief));
            until("both have left", || {
                ["victim", "thief"].iter().all(|port| switch.state(port).0 == "down").then_some(())
            });
            until("no rate is left", || {
                let shown = switch.ask("port show victim");
                (shown["rates"]["ingress_frames_per_s"] == 0).then_some(())
            });
        }
    });
}
