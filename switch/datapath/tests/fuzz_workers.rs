//! Fuzz target: two workers in real time, a hostile guest on one of them whose frames cost the
//! kernel time, and victims on both. The victims' frames all wait before the workers start. Until
//! they have arrived, the workers may make only so many page faults and use only so much processor
//! time: the hostile guest's turns among theirs. Both are counted for the worker's thread, so a busy
//! host changes neither.
//!
//! It cannot see: what a worker waits for asleep, such as a lock of the other one, and disks.
//!
//! `FUZZ_SHOW=1` prints what each case used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    reason = "a test says what it means, and its numbers are small"
)]

#[allow(dead_code, reason = "fuzz_vhost uses the rest")]
mod world;

use bolero::TypeGenerator;
use datapath::{PortId, PortSettings, Switch, SwitchOptions, WorkerOptions};
use guestmem::Gpa;
use ports::memory::{self, Peer};
use ports::vhost::{self, Features, Session, VhostOptions};
use ports::{Device, Offloads};
use std::sync::LazyLock;
use std::time::Duration;
use tempfile::TempDir;
use test_guest::Guest;
use wire::Mac;
use wire::vnet::VnetHeader;
use world::accounting::{page_faults, until};
use world::frames::{clean, mac};
use world::hostile::{Hostile, Range};
use world::modern;

/// The ports. A queue belongs to the worker of its port's number, modulo two.
const SENDERS: [usize; 2] = [0, 1];
const HOSTILE: usize = 2;
/// The receiver of each sender.
const RECEIVERS: [usize; 2] = [4, 3];
const SINK: usize = 5;

/// Frames of each victim.
const FRAMES: usize = 32_768;

/// Page faults of a worker until its victim's frames have arrived.
const MOST_FAULTS: u64 = 8_192;
/// How much more processor time a worker may use than without the attack.
const DEARER: u32 = 4;
const SPARE: Duration = Duration::from_millis(20);

/// Frames that the hostile guest sends once those before are used.
const IN_FLIGHT: u16 = 32;

/// What the hostile guest sends.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Load {
    /// Pieces of each frame.
    pieces: u16,
    /// Pages from one to the next.
    pages: u8,
    /// Bytes of each.
    bytes: u8,
}

impl Load {
    fn send(self, hostile: &mut Hostile, header: &[u8]) {
        let pieces = 1023 - usize::from(self.pieces % 1024);
        let (pages, bytes) =
            (u64::from(self.pages % 4) + 1, [1, 8, 64][usize::from(self.bytes % 3)]);
        let header: Range = hostile.place(header);
        let pieces = hostile.untouched(pieces, pages, bytes);
        hostile.send(&[&[header][..], &pieces].concat(), true);
    }
}

#[test]
fn fuzz_workers() {
    bolero::check!().with_type::<Load>().cloned().for_each(|load| {
        static ALONE: LazyLock<Duration> = LazyLock::new(|| {
            (0..3).flat_map(|_| Stage::new().run(None)).map(|used| used.cpu).max().unwrap()
        });
        let most = *ALONE * DEARER + SPARE;
        for (worker, used) in Stage::new().run(Some(load)).into_iter().enumerate() {
            let Used { faults, cpu } = used;
            if std::env::var_os("FUZZ_SHOW").is_some() {
                eprintln!("worker {worker}: {used:?} of {load:?}");
            }
            assert!(
                faults <= MOST_FAULTS,
                "FINDING (page faults): a victim waited for {faults} of worker {worker}: {load:?}"
            );
            assert!(
                cpu <= most,
                "FINDING (processor time): a victim waited for {cpu:?} of worker {worker}, {most:?} \
                 may be: {load:?}"
            );
        }
    });
}

/// What a worker used until its victim's frames had arrived.
#[derive(Clone, Copy, Debug)]
struct Used {
    faults: u64,
    cpu: Duration,
}

impl Used {
    /// Returns what a thread has used so far.
    fn of(thread: &str) -> Used {
        let stat = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
        let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        Used { faults: page_faults(thread), cpu: Duration::from_nanos(ns) }
    }
}

struct Stage {
    switch: Switch,
    ports: Vec<PortId>,
    peers: Vec<Option<Peer>>,
    session: Option<Session>,
    folder: TempDir,
}

impl Stage {
    /// Makes a switch whose workers do not take frames yet.
    fn new() -> Stage {
        let workers = vec![WorkerOptions::default(); 2];
        let options = SwitchOptions { workers, ..SwitchOptions::default() };
        let mut switch = Switch::start(options).expect("two threads");
        switch.hold();
        let folder = TempDir::new().expect("a folder");
        let (ports, peers) = (Vec::new(), Vec::new());
        let mut stage = Stage { switch, ports, peers, session: None, folder };
        for number in 0..6 {
            stage.add(number);
        }
        stage
    }

    fn add(&mut self, number: usize) {
        let (device, peer): (Device, _) = if number == HOSTILE {
            let opened = vhost::open(&VhostOptions::new(self.folder.path().join("vm"))).unwrap();
            self.session = Some(opened.session);
            (opened.device, None)
        } else {
            let (device, peer) = memory::open(FRAMES, Offloads::empty(), 65535).unwrap();
            (device, Some(peer))
        };
        let own = Some(Mac(mac(number as u8)));
        let settings = PortSettings { mtu: 65535, mac: own, ..PortSettings::default() };
        let name = format!("port{number}");
        self.ports.push(self.switch.add_port(&name, device, settings).unwrap());
        self.peers.push(peer);
    }

    /// Lets the victims' frames pass, beside those of the hostile guest. Returns what each worker
    /// used.
    fn run(mut self, load: Option<Load>) -> [Used; 2] {
        for (from, to) in SENDERS.into_iter().zip(RECEIVERS) {
            let frame = clean(mac(to as u8), mac(from as u8), None, 0, 60);
            let peer = self.peers[from].as_ref().unwrap();
            (0..FRAMES).for_each(|_| assert!(peer.send(VnetHeader::default(), &frame)));
        }
        let features = modern() - Features::RING_PACKED;
        let path = self.folder.path().join("vm");
        let connect = || Guest::connect_sparsely(&path, features.bits(), 1).ok();
        let mut hostile = Hostile::new(until("a session for a front end", connect));
        let header = [&[0; 12][..], &mac(SINK as u8), &mac(HOSTILE as u8), &[0x88, 0xb6]].concat();
        let mut sent = 0;
        let mut refill = |hostile: &mut Hostile| {
            let Some(load) = load else { return };
            if used(hostile) == sent {
                sent = sent.wrapping_add(IN_FLIGHT);
                (0..IN_FLIGHT).for_each(|_| load.send(hostile, &header));
            }
        };
        refill(&mut hostile);
        let threads = [0, 1].map(|worker| thread_of(&format!("worker-{worker}")));
        let before = threads.each_ref().map(|thread| Used::of(thread));
        self.switch.let_go();
        let mut used = [None; 2];
        until("the victims' frames", || {
            refill(&mut hostile);
            while let Some(frame) = self.peers[SINK].as_ref()?.receive() {
                self.peers[SINK].as_ref()?.recycle(frame);
            }
            for worker in 0..2 {
                let to = self.ports[RECEIVERS[worker]];
                let arrived = self.switch.counters(to)?.egress_frames >= FRAMES as u64;
                if arrived && used[worker].is_none() {
                    let now = Used::of(&threads[worker]);
                    let Used { faults, cpu } = before[worker];
                    used[worker] = Some(Used { faults: now.faults - faults, cpu: now.cpu - cpu });
                }
            }
            Some([used[0]?, used[1]?])
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Before the next stage, whose workers have the same names.
        assert!(self.switch.stop(), "a worker hangs");
    }
}

/// Returns the number of chains that the switch has used, modulo 2^16.
fn used(hostile: &Hostile) -> u16 {
    let (guest, mut bytes) = (&hostile.guest, [0; 2]);
    let rings = guest.rings(1).expect("a sending ring");
    guest.memory().read(Gpa(rings.device.0 + 2), &mut bytes);
    u16::from_le_bytes(bytes)
}

/// Returns the directory in `/proc` of this process's thread of this name.
fn thread_of(name: &str) -> String {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_named = |id: &String| {
        let found = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        found.is_ok_and(|found| found.trim() == name)
    };
    let mut ids = threads.filter_map(|thread| thread.file_name().into_string().ok());
    format!("self/task/{}", ids.find(is_named).expect("the worker's thread"))
}
