//! Rehearsals show what the switch would do with frames: a copy of it over memory ports processes
//! them with the data path's own code, and no frame leaves the copy.
//!
//! [`Switch::snapshot`] copies the state that decides about frames, without open devices;
//! [`Snapshot::rehearse`] makes the copy on any thread. It cannot know a device's own state, such
//! as a full ring or a frame that the kernel refuses.

use super::{Entry, Switch, new_port};
use crate::frame::Frame;
use crate::port::bucket::Storm;
use crate::port::macs::{MacKey, MacTable, Seen};
use crate::port::pacer::Pacer;
use crate::port::view::Port;
use crate::worker::wait::time_since;
use crate::{MacEntry, PortId, PortSettings, PortState, SwitchOptions};
use ports::memory::{self, MemoryFrame, Peer};
use ports::steering::ENTRIES;
use ports::vhost::GuestSettings;
use ports::{Capabilities, Device, IngressQueue, Nanos, Offloads, Speaker, lock};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use wire::toeplitz::Key;
use wire::{Mac, parse};

/// Frames that a memory port holds: more than the segments of any burst.
const DEPTH: usize = 1 << 20;

/// The state that decides about frames entering by a port, at one moment.
pub struct Snapshot {
    from: PortId,
    frames: Vec<MemoryFrame>,
    /// The same frames, parsed.
    read: Vec<Frame>,
    /// The ports, by number.
    ports: Vec<Option<PortSnapshot>>,
    macs: Arc<MacTable>,
    mac_ageing_s: u32,
    now: Nanos,
}

/// A port's part of a [`Snapshot`].
struct PortSnapshot {
    name: String,
    settings: PortSettings,
    state: PortState,
    mac: Option<Mac>,
    held_mac: Option<Mac>,
    offloads: Offloads,
    datagrams: u16,
    speaker: Speaker,
    queues: usize,
    in_use: u16,
    kernel_ns: u32,
    key: Key,
    table: [u8; ENTRIES],
    /// What the port's guest has set about the frames that it receives.
    guest: Option<Arc<GuestSettings>>,
    pacer: Option<Pacer>,
    storm: Option<Storm>,
    /// The queue that each frame's flow was last sent from, where flows are followed.
    noted: Vec<Option<usize>>,
}

impl PortSnapshot {
    fn of(port: &Port, frames: &[MemoryFrame], read: &[Frame], now: Nanos) -> PortSnapshot {
        let shared = &port.shared;
        let frames = read.iter().zip(frames);
        PortSnapshot {
            name: shared.name.clone(),
            settings: port.settings.clone(),
            state: shared.state.get().0,
            mac: shared.mac,
            held_mac: shared.held_mac(),
            offloads: shared.live.offloads(),
            datagrams: shared.live.datagrams(),
            speaker: shared.live.speaker(),
            queues: shared.egress.len(),
            in_use: shared.live.queues(),
            kernel_ns: shared.kernel_ns,
            key: shared.steering.key,
            table: shared.steering.named(),
            guest: shared.live.guest_settings().1,
            pacer: port.pacer.as_ref().map(|pacer| lock(pacer).rehearsal()),
            storm: port.storm.as_ref().map(|storm| lock(storm).clone()),
            noted: frames.map(|(read, frame)| port.noted(read, &frame.bytes, now)).collect(),
        }
    }

    /// Opens a memory port of as many queues. Returns the far side of each.
    fn open(&self) -> (Device, Vec<Peer>) {
        let open = || memory::open_stepped(DEPTH, self.offloads, self.settings.mtu);
        let (mut device, first) = open();
        let mut peers = vec![first];
        for _ in 1..self.queues {
            let (more, peer) = open();
            device.egress.extend(more.egress);
            peers.push(peer);
        }
        device.egress.truncate(self.queues);
        device.live = Arc::new(match self.speaker {
            Speaker::Guest => Capabilities::new(self.offloads, self.in_use),
            Speaker::Kernel => Capabilities::of_kernel(self.offloads, self.in_use),
        });
        device.live.set_datagrams(self.datagrams);
        self.guest.iter().for_each(|guest| device.live.set_guest_settings(guest.clone()));
        device.mac = self.mac;
        (device, peers)
    }

    /// Returns the port's state in the copy: a port that carries frames carries them there, and no
    /// other is tried.
    fn state(&self) -> PortState {
        match &self.state {
            PortState::Up if self.in_use == 0 => PortState::Down("it is not ready".into()),
            state => state.clone(),
        }
    }
}

impl Switch {
    /// Returns the workers' time in a switch that was started.
    pub fn now(&self) -> Nanos {
        time_since(self.start)
    }

    /// Copies what decides about frames that would enter by a port at this time.
    pub fn snapshot(&self, from: PortId, frames: Vec<MemoryFrame>, now: Nanos) -> Snapshot {
        let vlan = self.entry(from).ok().map(|entry| &entry.port.settings.vlan);
        let read = |frame: &MemoryFrame| {
            let mut read = Frame::at(0);
            read.parsed = parse(&frame.bytes, frame.bytes.len()).unwrap_or_default();
            read.vlan = vlan.and_then(|vlan| vlan.admit(&read.parsed)).unwrap_or_default();
            read
        };
        let read: Vec<_> = frames.iter().map(read).collect();
        let port = |entry: &Entry| PortSnapshot::of(&entry.port, &frames, &read, now);
        let ports = self.ports.iter().map(|entry| entry.as_ref().map(port)).collect();
        let (macs, mac_ageing_s) = (self.macs.clone(), self.options.mac_ageing_s);
        Snapshot { from, frames, read, ports, macs, mac_ageing_s, now }
    }

    /// Adds the copy of a port. Returns its ingress queue, and the far side of its queues.
    fn copy_port(&mut self, id: PortId, port: &PortSnapshot) -> (Vec<IngressQueue>, Vec<Peer>) {
        let (device, peers) = port.open();
        let (mut shared, ingress) = self.shared_of(id, &port.name, device);
        (shared.kernel_ns, shared.steering.key) = (port.kernel_ns, port.key);
        let entries = port.table.iter().enumerate();
        entries.for_each(|(entry, queue)| shared.steering.set(entry, (*queue).into()));
        shared.resting_until.iter().for_each(|until| until.store(u64::MAX, Ordering::Relaxed));
        shared.set_state(port.state());
        if let Some(mac) = port.held_mac {
            shared.held_mac.get_or_hold(mac.to_u64(), shared.live.guest());
        }
        let pacer = port.pacer.as_ref().map(|pacer| Arc::new(Mutex::new(pacer.rehearsal())));
        let storm = port.storm.clone().map(|storm| Arc::new(Mutex::new(storm)));
        let new = new_port(Arc::new(shared), port.settings.clone(), None, None);
        // The frames of the rehearsal wait for no debt of the port's rate.
        let port = Arc::new(Port { pacer, storm, rate: None, ..new });
        self.ports.push(Some(Entry { port, queue_workers: vec![0], loads: vec![Arc::default()] }));
        (ingress, peers)
    }
}

impl Snapshot {
    /// Makes the copy.
    pub fn rehearse(self) -> Rehearsal {
        let (macs, learned) = (self.macs(), self.macs.learned_at(self.from));
        let mut switch = Switch::stepped(SwitchOptions {
            mac_entries: 4 * (macs.len() + learned.len() + self.frames.len()),
            mac_ageing_s: self.mac_ageing_s,
            ..SwitchOptions::default()
        });
        let (mut peers, mut taken) = (Vec::new(), Vec::new());
        for (id, port) in (0..).map(PortId).zip(&self.ports) {
            let (ingress, far) = match port {
                Some(port) => switch.copy_port(id, port),
                None => {
                    switch.ports.push(None);
                    Default::default()
                }
            };
            peers.push(far);
            if id == self.from {
                taken = ingress;
            }
        }
        // A stepped worker always answers.
        let _ = switch.publish().and_then(|()| switch.hand_out(vec![(self.from, taken)]));
        self.teach_macs(&switch.macs, &macs, &learned);
        self.teach_flows(&switch);
        let frames = self.frames.into_iter();
        Rehearsal { switch, from: self.from, frames, peers, now: self.now }
    }

    /// Teaches a copy the addresses, and the order in which the port's own make room.
    fn teach_macs(&self, copy: &MacTable, macs: &[MacEntry], learned: &[MacKey]) {
        let (limit, second) = (self.mac_limit(self.from), self.now.as_secs());
        let keys = macs.iter().map(|entry| MacKey::new(entry.mac.to_u64(), entry.vlan));
        let keys: Vec<_> = keys.collect();
        let known: HashSet<_> = keys.iter().collect();
        let too_old = second.saturating_sub(u64::from(self.mac_ageing_s) + 1);
        for key in learned {
            let seen = if known.contains(key) { second } else { too_old };
            copy.insert(*key, Seen::at(self.from), limit, seen);
        }
        for (key, entry) in keys.iter().zip(macs) {
            copy.insert(*key, Seen::at(entry.port), 0, second.saturating_sub(entry.age_s));
        }
    }

    /// Teaches a copy by which queues flows were last sent.
    fn teach_flows(&self, copy: &Switch) {
        for (entry, port) in copy.entries().zip(self.ports.iter().flatten()) {
            for ((read, frame), noted) in self.read.iter().zip(&self.frames).zip(&port.noted) {
                if let Some(queue) = noted.and_then(|queue| u8::try_from(queue).ok()) {
                    entry.port.note(read, &frame.bytes, queue, self.now);
                }
            }
        }
    }

    fn mac_limit(&self, port: PortId) -> u16 {
        let port = self.ports.get(usize::from(port.0)).and_then(Option::as_ref);
        port.map_or(0, |port| port.settings.mac_limit)
    }

    /// Returns the learned addresses that decide: those of the frames, and all of a port that has a
    /// limit.
    fn macs(&self) -> Vec<MacEntry> {
        let pairs = self.frames.iter().filter_map(|frame| frame.bytes.first_chunk::<12>());
        let named: HashSet<&[u8]> = pairs.flat_map(|pair| pair.chunks(6)).collect();
        let limited = self.mac_limit(self.from) > 0;
        let mut macs = self.macs.entries(self.now.as_secs());
        macs.retain(|entry| {
            limited && entry.port == self.from || named.contains(entry.mac.0.as_slice())
        });
        macs
    }
}

/// A copy of a switch that frames enter, turn by turn.
pub struct Rehearsal {
    switch: Switch,
    from: PortId,
    /// The frames that have not entered yet.
    frames: std::vec::IntoIter<MemoryFrame>,
    /// The peers, by number of the port and of its queue.
    peers: Vec<Vec<Peer>>,
    now: Nanos,
}

impl Rehearsal {
    /// Returns the copy.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns what the copy has learned by now, and what it knew of the frames' addresses.
    pub fn macs(&self) -> Vec<MacEntry> {
        self.switch.macs.entries(self.now.as_secs())
    }

    /// Lets the next `count` frames enter as one burst, or as many as they need. Returns how many
    /// there were.
    pub fn turn(&mut self, count: usize) -> usize {
        let peers = self.peers.get(usize::from(self.from.0));
        let Some(peer) = peers.and_then(|peers| peers.first()) else { return 0 };
        let frames = self.frames.by_ref().take(count);
        let sent = frames.filter(|frame| peer.send(frame.vnet, &frame.bytes)).count();
        let mut left = sent;
        while left > 0 {
            left -= left.min(self.switch.step(self.now));
        }
        sent
    }

    /// Returns the frames that left by a port since the last call, each with its queue.
    pub fn received(&self, port: PortId) -> Vec<(usize, MemoryFrame)> {
        let peers = self.peers.get(usize::from(port.0)).into_iter().flatten();
        let of = |(queue, peer): (usize, &Peer)| {
            std::iter::from_fn(|| peer.receive()).map(|frame| (queue, frame)).collect::<Vec<_>>()
        };
        peers.enumerate().flat_map(of).collect()
    }
}
