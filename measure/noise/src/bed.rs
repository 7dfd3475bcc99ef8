//! The test bed: a switch with one worker on a core of its own, two pairs of victims, and the ports
//! of the attacker.

use anyhow::Result;
use datapath::{
    PortId, PortSettings, RateLimit, StormLimit, Switch, SwitchOptions, Wait, WorkerOptions,
};
use hdrhistogram::Histogram;
use ports::Offloads;
use ports::memory::{self, Peer};
use ports::vhost::{self, Features, Session, VhostOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Frames that a victim's port holds in each direction.
const DEPTH: usize = 1024;
/// Time between two requests: 10,000 a second.
const PERIOD: Duration = Duration::from_micros(100);
/// Time to wait for answers and bulk frames after the last was sent.
const GRACE: Duration = Duration::from_millis(5);
/// Latency is recorded in windows of this length. A window in which the worker or the guests waited
/// for their core for longer than [`WAIT`] nanoseconds, because another process ran there, is left
/// out.
const WINDOW: Duration = Duration::from_millis(5);
const WAIT: u64 = 20_000;
/// Most frames that one poll takes from a port, so that no poll is long.
const LOOK: usize = 32;
/// Most trains that one poll sends.
const CATCH_UP: u64 = 8;
/// Payload of a bulk train, and its segment size.
const TRAIN: usize = 60_000;
const SEGMENT: u16 = 1448;

/// The hosts, by the last byte of their addresses.
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const SENDER: u8 = 3;
const RECEIVER: u8 = 4;
pub(crate) const SINK: u8 = 5;
pub(crate) const ATTACKER: u8 = 6;
pub(crate) const ACCOMPLICE: u8 = 7;

/// The switch, its victims, and the state of their traffic.
pub(crate) struct Bed {
    folder: TempDir,
    pub(crate) switch: Switch,
    _sessions: Vec<Session>,
    attacker: PortId,
    client: Peer,
    server: Peer,
    sender: Peer,
    receiver: Peer,
    sink: Peer,
    train: Vec<u8>,
    started: Instant,
    /// The time at which each of the last requests was sent.
    sent: Vec<Instant>,
    requests: u32,
}

/// Measurements of a period of time.
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    /// Nanoseconds from a request to its answer, in windows in which both cores were ours.
    pub(crate) latency: Histogram<u64>,
    /// Latencies of the current window.
    window: Histogram<u64>,
    pub(crate) windows: u64,
    pub(crate) undisturbed_windows: u64,
    pub(crate) trains_due: u64,
    /// Trains that were sent, or found the port full.
    pub(crate) trains_sent: u64,
    pub(crate) trains: u64,
    /// Frames that the switch took from the attacker, and how many of these it dropped.
    pub(crate) attacker_frames: u64,
    pub(crate) attacker_drops: u64,
    pub(crate) seconds: f64,
}

/// Makes a frame of an experimental protocol between two hosts.
pub(crate) fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.resize(len, 0);
    frame
}

/// Makes a TCP train over IPv4 with a valid header and an unfinished checksum.
pub(crate) fn train(to: u8, from: u8, payload: usize) -> Vec<u8> {
    let mut frame = frame(to, from, 54 + payload);
    let total = u16::try_from(40 + payload).unwrap_or(u16::MAX).to_be_bytes();
    let [high, low] = total;
    let headers = [
        8, 0, 0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to, 0x10,
        from, 0x10, to, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0,
    ];
    if let Some(place) = frame.get_mut(12..12 + headers.len()) {
        place.copy_from_slice(&headers);
    }
    frame
}

/// Makes the virtio header of a train.
pub(crate) fn train_header(segment: u16, ecn: bool) -> VnetHeader {
    let mut header = VnetHeader::default();
    header.set_flags(Flags::NEEDS_CSUM);
    header.set_gso(GsoType::Tcp4, ecn);
    header.gso_size.set(segment);
    header.hdr_len.set(54);
    header.csum_start.set(34);
    header.csum_offset.set(16);
    header
}

fn is_from_to(bytes: &[u8], from: u8, to: u8) -> bool {
    bytes.get(5) == Some(&to) && bytes.get(11) == Some(&from) && bytes.first() == Some(&2)
}

impl Bed {
    pub(crate) fn new(core: usize, limit: Option<RateLimit>) -> Result<Bed> {
        let options = SwitchOptions {
            workers: vec![WorkerOptions { cpu: Some(core) }],
            wait: Wait::Always,
            ..SwitchOptions::default()
        };
        let mut switch = Switch::start(options)?;
        let settings = PortSettings { mtu: 1500, ..PortSettings::default() };
        // The default limits of a vNIC; the spoofing guard, which would end half of the
        // attacks at their first frame, is off.
        let storm = StormLimit { frames_per_second: 10_000, bytes_per_second: 12_500_000 };
        let hostile = PortSettings { storm: Some(storm), mac_limit: 64, ..settings.clone() };
        let mut add = |name: &str, offloads| -> Result<Peer> {
            let (device, peer) = memory::open(DEPTH, offloads, 1500)?;
            switch.add_port(name, device, settings.clone())?;
            Ok(peer)
        };
        let (client, server) =
            (add("client", Offloads::empty())?, add("server", Offloads::empty())?);
        let (sender, receiver) =
            (add("sender", Offloads::all())?, add("receiver", Offloads::all())?);
        let sink = add("sink", Offloads::empty())?;
        let folder = TempDir::new()?;
        let (mut sessions, mut ids) = (vec![], vec![]);
        for (name, rate) in [("attacker", limit), ("accomplice", None)] {
            let opened = vhost::open(&VhostOptions::new(folder.path().join(name)))?;
            ids.push(switch.add_port(
                name,
                opened.device,
                PortSettings { rate, ..hostile.clone() },
            )?);
            sessions.push(opened.session);
        }
        let attacker = ids.first().copied().unwrap_or(PortId(0));
        let (now, train) = (Instant::now(), train(RECEIVER, SENDER, TRAIN));
        let sent = vec![now; 4096];
        let mut bed = Bed {
            folder,
            switch,
            _sessions: sessions,
            attacker,
            client,
            server,
            sender,
            receiver,
            sink,
            train,
            started: now,
            sent,
            requests: 0,
        };
        bed.introduce();
        Ok(bed)
    }

    /// Sends a frame from every victim, so that the switch knows its port.
    fn introduce(&mut self) {
        let stations = [
            (&self.client, CLIENT),
            (&self.server, SERVER),
            (&self.sender, SENDER),
            (&self.receiver, RECEIVER),
            (&self.sink, SINK),
        ];
        for (peer, station) in stations {
            let mut hello = frame(0, station, 60);
            hello.iter_mut().take(6).for_each(|byte| *byte = 0xff);
            peer.send(VnetHeader::default(), &hello);
        }
        self.settle();
    }

    /// Waits until no frame moves.
    pub(crate) fn settle(&mut self) {
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            for peer in [&self.client, &self.server, &self.sender, &self.receiver, &self.sink] {
                drain(peer, |_| {});
            }
        }
    }

    /// Connects a guest to the attacker's port or its accomplice's.
    pub(crate) fn guest(&self, name: &str, packed: bool) -> Result<Guest> {
        let mut wanted = Features::VERSION_1
            | Features::MRG_RXBUF
            | Features::CSUM
            | Features::GUEST_CSUM
            | Features::HOST_TSO4
            | Features::GUEST_TSO4
            | Features::HOST_ECN
            | Features::CTRL_VQ;
        wanted.set(Features::RING_PACKED, packed);
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            match Guest::connect(&self.folder.path().join(name), wanted.bits(), 1) {
                Ok(guest) => return Ok(guest),
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Returns the trains a second from sender to receiver if as many are sent as find room.
    pub(crate) fn most_trains(&mut self, time: Duration) -> f64 {
        let (start, mut received) = (Instant::now(), 0_u32);
        while start.elapsed() < time {
            self.sender.send(train_header(SEGMENT, false), &self.train);
            received += self.receive_trains();
        }
        self.settle();
        f64::from(received) / time.as_secs_f64()
    }

    /// Sends requests and bulk for a while, with or without a step of the attack between two polls.
    pub(crate) fn slice(
        &mut self,
        time: Duration,
        trains_per_s: f64,
        mut attack: Option<&mut dyn FnMut()>,
    ) -> Result<Slice> {
        let before = self.switch.counters(self.attacker).unwrap_or_default();
        let mut slice = Slice {
            requests: 0,
            answers: 0,
            latency: Histogram::new(3)?,
            window: Histogram::new(3)?,
            windows: 0,
            undisturbed_windows: 0,
            trains_due: 0,
            trains_sent: 0,
            trains: 0,
            attacker_frames: 0,
            attacker_drops: 0,
            seconds: time.as_secs_f64(),
        };
        let start = Instant::now();
        let (mut next, mut window_ends) = (start, start + WINDOW);
        let waits = Waits::open();
        let mut waited_before = waits.read();
        let first = self.requests;
        loop {
            let now = Instant::now();
            if now >= start + time {
                break;
            }
            if now >= window_ends {
                let so_far = waits.read();
                slice.close_window(so_far - waited_before < WAIT)?;
                (waited_before, window_ends) = (so_far, Instant::now() + WINDOW);
                next = next.max(now);
            }
            if now >= next {
                next += PERIOD;
                slice.requests += 1;
                self.request(now);
            }
            let due = (now - start).as_secs_f64() * trains_per_s;
            while (slice.trains_due as f64) < due {
                slice.trains_due += 1;
            }
            // Catches up on what the guests' core was too slow to send, so that the switch carries
            // the intended load.
            for _ in 0..CATCH_UP.min(slice.trains_due - slice.trains_sent) {
                slice.trains_sent += 1;
                self.sender.send(train_header(SEGMENT, false), &self.train);
            }
            self.look(&mut slice, first);
            if let Some(attack) = &mut attack {
                attack();
            }
        }
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            self.look(&mut slice, first);
        }
        let after = self.switch.counters(self.attacker).unwrap_or_default();
        slice.attacker_frames = after.ingress_frames - before.ingress_frames;
        slice.attacker_drops = after.dropped() - before.dropped();
        Ok(slice)
    }

    fn request(&mut self, now: Instant) {
        self.requests += 1;
        let place = self.requests as usize % self.sent.len();
        if let Some(sent) = self.sent.get_mut(place) {
            *sent = now;
        }
        let mut request = frame(SERVER, CLIENT, 64);
        if let Some(number) = request.get_mut(14..18) {
            number.copy_from_slice(&self.requests.to_le_bytes());
        }
        self.client.send(VnetHeader::default(), &request);
    }

    /// Answers requests, takes answers and trains, and empties the ports that only floods reach.
    fn look(&mut self, slice: &mut Slice, first: u32) {
        let server = &self.server;
        drain(server, |bytes| {
            if is_from_to(bytes, CLIENT, SERVER) {
                let mut answer = frame(CLIENT, SERVER, 64);
                if let (Some(to), Some(from)) = (answer.get_mut(14..18), bytes.get(14..18)) {
                    to.copy_from_slice(from);
                }
                server.send(VnetHeader::default(), &answer);
            }
        });
        let (sent, now) = (&self.sent, self.started.elapsed());
        let now = self.started + now;
        drain(&self.client, |bytes| {
            let number = bytes.get(14..18).and_then(|number| number.first_chunk());
            let number = number.map_or(0, |number| u32::from_le_bytes(*number));
            if is_from_to(bytes, SERVER, CLIENT) && number > first {
                slice.answers += 1;
                let sent = sent.get(number as usize % sent.len()).copied().unwrap_or(now);
                let latency = u64::try_from((now - sent).as_nanos()).unwrap_or(u64::MAX);
                let _ = slice.window.record(latency);
            }
        });
        slice.trains += u64::from(self.receive_trains());
        drain(&self.sender, |_| {});
        drain(&self.sink, |_| {});
    }

    fn receive_trains(&self) -> u32 {
        let mut trains = 0;
        drain(&self.receiver, |bytes| {
            trains += u32::from(bytes.len() > TRAIN && is_from_to(bytes, SENDER, RECEIVER));
        });
        trains
    }
}

impl Slice {
    fn close_window(&mut self, undisturbed: bool) -> Result<()> {
        self.windows += 1;
        if undisturbed {
            self.undisturbed_windows += 1;
            self.latency.add(&self.window)?;
        }
        self.window.reset();
        Ok(())
    }
}

/// Time, by the kernel's count, that this thread and the worker waited for their cores while other
/// threads ran there.
struct Waits(Vec<File>);

impl Waits {
    fn open() -> Waits {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let polls = |folder: &Path| {
            let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
            name.starts_with("worker-") || name.trim() == "noise"
        };
        let folders = threads.map(|thread| thread.path()).filter(|folder| polls(folder));
        Waits(folders.filter_map(|folder| File::open(folder.join("schedstat")).ok()).collect())
    }

    /// Returns the nanoseconds so far.
    fn read(&self) -> u64 {
        let waited = |file: &File| {
            let mut bytes = [0; 64];
            let len = file.read_at(&mut bytes, 0).ok()?;
            let text = std::str::from_utf8(bytes.get(..len)?).ok()?;
            text.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        self.0.iter().filter_map(waited).sum()
    }
}

fn drain(peer: &Peer, mut look_at: impl FnMut(&[u8])) {
    for _ in 0..LOOK {
        let Some(frame) = peer.receive() else { return };
        look_at(&frame.bytes);
        peer.recycle(frame);
    }
}
