//! A stepped switch whose ports have hooks of the kernel path, and what happens to it.

use super::frame::{Conversation, Station, Written};
use super::{Step, Tried, change};
use datapath::{PortId, PortRole, PortSettings, PortState, Switch, SwitchOptions, WorkerOptions};
use ports::kernel_path::KernelPath;
use ports::kernel_path::trial::{Received, Trial};
use ports::memory::{self, MemoryFrame, Peer};
use ports::{Capabilities, Nanos, Offloads};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Kind, Mac, Traits};

/// Ports; the last is a guest without a hook.
pub(super) const PORTS: u8 = 5;

/// Frames a memory port holds.
const DEPTH: usize = 4096;

/// The programs, and an interface for each port in this thread's namespace.
pub(super) struct Site {
    path: KernelPath,
    trial: Trial,
    interfaces: Vec<u32>,
    pub(super) tried: Tried,
}

impl Site {
    pub(super) fn make() -> io::Result<Site> {
        let path = KernelPath::load()?;
        let trial = Trial::new(&path)?;
        for pair in 0..PORTS.div_ceil(2) {
            ip(&format!("link add o{pair} type veth peer name p{pair}"))?;
        }
        // A namespace numbers its interfaces anew; the first is its loopback.
        let interfaces = (2..2 + u32::from(PORTS)).collect();
        Ok(Site { path, trial, interfaces, tried: Tried::default() })
    }
}

fn ip(words: &str) -> io::Result<()> {
    let status = Command::new("ip").args(words.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("ip {words}: {status}"))) }
}

pub(super) struct World<'s> {
    site: &'s mut Site,
    switch: Switch,
    ports: Vec<Place>,
    now: Nanos,
}

/// A port of the world, which may be removed.
struct Place {
    id: PortId,
    peer: Peer,
    settings: PortSettings,
    is_there: bool,
}

impl World<'_> {
    pub(super) fn new(site: &mut Site) -> World<'_> {
        let options = SwitchOptions {
            mac_entries: 64,
            workers: vec![WorkerOptions::default()],
            ..SwitchOptions::default()
        };
        let mut switch = Switch::stepped(options);
        switch.use_kernel_path(site.path.clone());
        site.path.extend_lease();
        while site.path.sweep(256, Duration::from_secs(60), |_| true) == 256 {}
        let mut world = World { site, switch, ports: vec![], now: Nanos::SECOND };
        for number in 0..PORTS {
            let role = if number == 0 { PortRole::Uplink } else { PortRole::Vnic };
            let settings = change::plain(role);
            let (id, peer) = world.add(number, settings.clone());
            world.ports.push(Place { id, peer, settings, is_there: true });
        }
        world
    }

    fn add(&mut self, number: u8, settings: PortSettings) -> (PortId, Peer) {
        let (mut device, peer) = memory::open_stepped(DEPTH, Offloads::all(), settings.mtu);
        if number + 1 < PORTS {
            let interface = self.site.interfaces[usize::from(number)];
            device.hook = Some(Arc::new(self.site.trial.hook(interface).unwrap()));
            device.live = Arc::new(Capabilities::of_kernel(Offloads::all(), 1));
        }
        let id = self.switch.add_port(&format!("p{number}"), device, settings).unwrap();
        (id, peer)
    }

    pub(super) fn carry_out(&mut self, conversations: &[Conversation; 4], step: Step) {
        let conversation = conversations[usize::from(step.place % 4)];
        match step.kind {
            0..200 => self.talk(conversation, step),
            200..206 => self.wander(conversation, step),
            206..226 => self.change(step),
            226..240 => self.switch.tend_kernel_path(),
            _ => self.rest(),
        }
    }

    /// Sends the next frame of a conversation from where it belongs.
    fn talk(&mut self, conversation: Conversation, step: Step) {
        let is_answer = step.place & 0x10 != 0;
        let ends = conversation.ends(is_answer, PORTS);
        let mut sketch = conversation.frame(is_answer, ends);
        match step.edit {
            0..80 => sketch.edit(step.edit, step.values),
            80..90 => sketch.open(is_answer),
            _ => {}
        }
        self.send(ends[0].port, &sketch.write());
    }

    /// Sends a frame of a conversation from another port: its sender has moved, or pretends to be
    /// another.
    fn wander(&mut self, conversation: Conversation, step: Step) {
        let ends = conversation.ends(step.place & 0x10 != 0, PORTS);
        self.send(step.edit % PORTS, &conversation.frame(step.place & 0x10 != 0, ends).write());
    }

    /// Has the kernel judge a frame, and then the switch.
    fn send(&mut self, port: u8, frame: &Written) {
        let from = &self.ports[usize::from(port)];
        if !from.is_there {
            return;
        }
        self.site.tried.frames += 1;
        let received = Received {
            interface: self.site.interfaces[usize::from(port)],
            bytes: &frame.bytes,
            tag: frame.tag,
            segment_size: frame.vnet.gso_size.get(),
            segments: frame.segments(),
        };
        let carried = self.site.trial.run(&received);
        let carried =
            carried.unwrap_or_else(|error| panic!("FINDING (programs) {error}: {frame:?}"));
        let whole = frame.whole();
        assert!(from.peer.send(whole.vnet, &whole.bytes), "room for a frame");
        let out = self.step();
        if let Some(interface) = carried {
            self.site.tried.carried += 1;
            let to = self.site.interfaces.iter().position(|known| *known == interface);
            self.compare(port, to.expect("a port's interface"), &whole, &out);
        }
    }

    fn compare(&self, from: u8, to: usize, whole: &MemoryFrame, out: &[(usize, MemoryFrame)]) {
        let told = || {
            let settings = |port: usize| &self.ports[port].settings;
            let (from, to) = (settings(from.into()), settings(to));
            let came: Vec<_> = out.iter().map(|(at, frame)| (at, text(frame))).collect();
            format!("{from:?} to {to:?}: {}; the switch: {came:?}", text(whole))
        };
        assert!(is_plain(whole), "FINDING (kind) the switch has to see it {}", told());
        match out {
            [] => panic!("FINDING (refused) the kernel carries what the switch drops {}", told()),
            [(at, frame)] => {
                assert!(*at == to, "FINDING (elsewhere) the switch delivers to {at} {}", told());
                assert!(frame.bytes == whole.bytes, "FINDING (changed) {}", told());
            }
            _ => panic!("FINDING (copies) {}", told()),
        }
    }

    /// Runs a round, and returns what came out of each port.
    fn step(&mut self) -> Vec<(usize, MemoryFrame)> {
        self.now = self.now + Nanos(1000);
        self.switch.step(self.now);
        let mut out = vec![];
        for (place, port) in self.ports.iter().enumerate() {
            out.extend(std::iter::from_fn(|| port.peer.receive()).map(|frame| (place, frame)));
        }
        out
    }

    /// Lets rings be found empty for longer than a pending flow waits.
    fn rest(&mut self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(25) {}
        self.step();
    }

    fn change(&mut self, step: Step) {
        self.site.tried.changes += 1;
        let number = step.place % PORTS;
        let Place { id, is_there, ref mut settings, .. } = self.ports[usize::from(number)];
        match step.edit % 32 {
            _ if !is_there => {
                let settings = settings.clone();
                let (id, peer) = self.add(number, settings.clone());
                self.ports[usize::from(number)] = Place { id, peer, settings, is_there: true };
            }
            0..22 => {
                change::change(settings, step.edit % 32, step.values, PORTS);
                let settings = settings.clone();
                self.switch.change_port(id, settings).unwrap();
            }
            22..24 => {
                self.switch.remove_port(id).unwrap();
                self.ports[usize::from(number)].is_there = false;
            }
            24 => self.set_state(id, PortState::Down("test".to_owned())),
            25 | 26 => self.set_state(id, PortState::Up),
            27 => self.switch.forget_macs(Some(id)),
            28 => drop(self.switch.take_events()),
            29 => {
                let station = Station::of(step.values[0] as u8, PORTS);
                self.switch.hold_mac(id, Mac(station.mac())).unwrap();
            }
            30 => {
                *settings = change::plain(settings.role);
                let settings = settings.clone();
                self.switch.change_port(id, settings).unwrap();
            }
            _ => self.site.path.extend_lease(),
        }
        // What is announced or waits comes out now.
        while !self.step().is_empty() {}
    }

    fn set_state(&mut self, id: PortId, state: PortState) {
        let ports = self.switch.ports();
        let known = ports.iter().find(|known| known.id == id).expect("a port that is there");
        self.switch.set_state(known, state).unwrap();
    }
}

/// Returns a frame's headers and length for people.
fn text(frame: &MemoryFrame) -> String {
    let headers: String = frame.bytes.iter().take(78).map(|byte| format!("{byte:02x}")).collect();
    format!("{headers} ({} bytes, {:?})", frame.bytes.len(), frame.vnet)
}

/// Returns whether a frame is of a kind that may be carried at all: an untagged segment in the
/// middle of a connection, or a datagram.
fn is_plain(frame: &MemoryFrame) -> bool {
    /// FIN, SYN, RST, ACK and URG, of which a segment in the middle has ACK.
    const FLAGS: u8 = 0x37;
    const ACK: u8 = 0x10;
    let bytes = &frame.bytes;
    let Some(parsed) = wire::parse(bytes, bytes.len()) else { return false };
    let flags = bytes.get(usize::from(parsed.l4) + 13).copied();
    let is_unusual = parsed.traits.intersects(Traits::VLAN | Traits::OLD_TAG | Traits::IP_OPTIONS);
    let may_go = match parsed.kind {
        Kind::Tcp => flags.is_some_and(|flags| flags & FLAGS == ACK),
        Kind::Udp => frame.vnet.gso_size.get() == 0,
        _ => false,
    };
    may_go && !is_unusual && bytes[0] & 1 == 0
}
