//! A switch with a hostile guest among its victims, turned by hand on virtual time, so that each
//! turn can be counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    reason = "a test says what it means, and its numbers are small"
)]

pub(crate) mod accounting;
pub(crate) mod attack;
pub(crate) mod frames;
pub(crate) mod hostile;
mod judge;
#[path = "../common/limits.rs"]
mod limits;
pub(crate) mod packets;
mod receiver;
mod scenes;

use accounting::{Cost, Watch, measure, until};
use datapath::{
    AclAction, AclEnd, AclProtocol, AclRule, Guards, PortId, PortRole, PortSettings, RateLimit,
    Rsc, RscPolicy, StormLimit, Switch, SwitchOptions, Vlan,
};
use frames::{clean, mac};
use hostile::Hostile;
use judge::{Limits, Sent, judge, round_of};
use limits::{most_allocated, most_in_one_allocation};
use ports::capture::Direction;
use ports::memory::{self, MemoryFrame, Peer};
use ports::packet::{self, PacketOptions};
use ports::tap::{self, TapOptions};
use ports::vhost::{self, Features, Session, State, VhostOptions};
use ports::{Device, Nanos, Offloads};
use receiver::Receiver;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use test_guest::Guest;
use wire::vnet::VnetHeader;
use wire::{Mac, Prefix};

/// The ports, by number; a port's address ends in its number.
pub(crate) const GUEST: usize = 0;
pub(crate) const PLAIN_GUEST: usize = 1;
pub(crate) const HOSTILE: usize = 2;
pub(crate) const RECEIVER: usize = 3;
pub(crate) const MEMORY_1500: usize = 4;
pub(crate) const MEMORY_9000: usize = 5;
pub(crate) const MEMORY_64K: usize = 6;
pub(crate) const VLAN_10: usize = 7;
pub(crate) const TRUNK: usize = 8;
pub(crate) const RATED: usize = 9;
pub(crate) const TAP: usize = 10;
pub(crate) const PACKET: usize = 11;
pub(crate) const RESTARTING: usize = 12;
pub(crate) const ABSENT: usize = 13;
pub(crate) const TO_ABSENT: usize = 14;
pub(crate) const TRUNK_GUEST: usize = 15;
pub(crate) const GUARDED: usize = 16;
pub(crate) const RULED: usize = 17;

/// Frames a memory port holds: more than the segments of any burst.
const DEPTH: usize = 8192;

/// What the rated port may send.
pub(crate) const RATE: RateLimit = RateLimit { bits_per_second: 80_000_000, burst_bytes: 3_000 };

/// Addresses that the hostile guest may have in the table.
const MOST_ADDRESSES: u16 = 64;

/// What the hostile guest may flood, and what of it may pass at once.
const STORM: StormLimit = StormLimit { frames_per_second: 1000, bytes_per_second: 640 << 10 };
const STORM_BURST: u64 = 100;
/// Frames that others than the hostile guest flood in a case.
const OTHER_FLOODS: u64 = 50;

/// Bytes of the attackers' longest headers: Ethernet, two tags and one that the switch adds, IPv6,
/// TCP.
const LONGEST_HEADER: u64 = 14 + 8 + 4 + 40 + 20;

/// What a turn of all queues may cost, whatever the attackers do.
const MOST_ALLOCATED: u64 = most_allocated(LONGEST_HEADER);
const MOST_IN_ONE_ALLOCATION: u64 = most_in_one_allocation(LONGEST_HEADER);
const MOST_WRITES: u64 = 4096;
const MOST_COPIED: u64 = 2 << 20;
/// Cases of a history.
const HISTORY: u32 = 32;
/// Turns after which a frame has arrived or is lost.
const MOST_TURNS: usize = 200;
const MOST_CPU: Duration = Duration::from_millis(400);

/// Two pairs of victims at a time that must hear each other.
const FLOWS: [(usize, usize); 9] = [
    (GUEST, PLAIN_GUEST),
    (PLAIN_GUEST, GUEST),
    (MEMORY_1500, MEMORY_9000),
    (MEMORY_9000, MEMORY_64K),
    (MEMORY_64K, GUEST),
    (GUEST, MEMORY_1500),
    (PLAIN_GUEST, MEMORY_9000),
    (TRUNK, VLAN_10),
    (VLAN_10, TRUNK),
];

pub(crate) struct World {
    folder: TempDir,
    pub(crate) switch: Switch,
    pub(crate) ports: Vec<PortId>,
    pub(crate) sessions: HashMap<usize, Session>,
    pub(crate) peers: HashMap<usize, Peer>,
    limits: HashMap<usize, Limits>,
    pub(crate) guests: HashMap<usize, Guest>,
    pub(crate) receiver: Option<Hostile>,
    /// The hosts behind each port, see `receiver`.
    receivers: HashMap<usize, Receiver>,
    /// The number that the last packet's fragments share.
    pub(crate) fragment_id: u16,
    pub(crate) now: Nanos,
    /// Cases begun so far.
    cases: u32,
    began: Nanos,
    flooded_before: u64,
    round: u32,
    pub(crate) sent: Sent,
    /// Rounds that arrived, with the port.
    arrived: Vec<(usize, u32)>,
    /// Bytes that the rated port got through.
    pub(crate) rated_bytes: u64,
    /// What is being done, for findings.
    pub(crate) doing: String,
    /// The last to go: it wakes what sleeps.
    pub(crate) watch: Watch,
}

/// Returns the features that a modern Linux driver accepts.
pub(crate) fn modern() -> Features {
    plain()
        | Features::MRG_RXBUF
        | Features::CSUM
        | Features::GUEST_CSUM
        | Features::GUEST_TSO4
        | Features::GUEST_TSO6
        | Features::HOST_TSO4
        | Features::INDIRECT_DESC
}

fn plain() -> Features {
    Features::VERSION_1 | Features::INDIRECT_DESC
}

impl World {
    pub(crate) fn new() -> World {
        let options = SwitchOptions { mac_entries: 1024, ..SwitchOptions::default() };
        let mut world = World {
            folder: TempDir::new().unwrap(),
            switch: Switch::stepped(options),
            ports: Vec::new(),
            sessions: HashMap::new(),
            peers: HashMap::new(),
            limits: HashMap::new(),
            guests: HashMap::new(),
            receiver: None,
            receivers: HashMap::new(),
            fragment_id: 0,
            now: Nanos::SECOND,
            cases: 0,
            began: Nanos::SECOND,
            flooded_before: 0,
            round: 0,
            sent: Sent::default(),
            arrived: Vec::new(),
            rated_bytes: 0,
            doing: "the beginning".into(),
            watch: Watch::new(),
        };
        world.add_ports();
        for (number, features) in [(GUEST, modern()), (PLAIN_GUEST, plain())] {
            let guest = world.connect(number, features);
            world.guests.insert(number, guest);
        }
        world
    }

    fn add_ports(&mut self) {
        let all = Offloads::all();
        let no_ecn = all - Offloads::ECN;
        let to_guest = Offloads::CSUM | Offloads::TSO4 | Offloads::TSO6;
        let own = |number: usize| Some(Mac(mac(number as u8)));
        let victim = |number, mtu| PortSettings {
            mtu,
            mac: own(number),
            mac_guard: true,
            ..PortSettings::default()
        };
        let free = PortSettings { mtu: 1500, ..PortSettings::default() };
        let rsc = Rsc { policy: RscPolicy::Ndis, ..Rsc::default() };
        let in_10 = PortSettings { vlan: Vlan::Access(10), rsc, ..victim(VLAN_10, 9000) };
        let allowed = [10, 20].into_iter().collect();
        let vlan = Vlan::Trunk { native: 0, allowed };
        let guest_trunk = PortSettings { vlan: vlan.clone(), rsc, ..victim(TRUNK_GUEST, 9000) };
        let trunk =
            PortSettings { role: PortRole::Uplink, mtu: 65535, vlan, ..PortSettings::default() };
        let rated = PortSettings { rate: Some(RATE), ..victim(RATED, 65535) };
        let alone = PortSettings { vlan: Vlan::Access(30), ..free.clone() };
        self.add_vhost(GUEST, to_guest, victim(GUEST, 9000));
        self.add_vhost(PLAIN_GUEST, Offloads::empty(), victim(PLAIN_GUEST, 1500));
        let hostile =
            PortSettings { storm: Some(STORM), mac_limit: MOST_ADDRESSES, ..free.clone() };
        self.add_vhost(HOSTILE, Offloads::empty(), hostile);
        self.add_vhost(RECEIVER, Offloads::empty(), victim(RECEIVER, 65535));
        self.add_memory(
            MEMORY_1500,
            Offloads::empty(),
            PortSettings { acl: denials(Direction::Egress), ..victim(MEMORY_1500, 1500) },
        );
        self.add_memory(MEMORY_9000, no_ecn, PortSettings { rsc, ..victim(MEMORY_9000, 9000) });
        self.add_memory(MEMORY_64K, all, victim(MEMORY_64K, 65535));
        self.add_memory(VLAN_10, no_ecn, in_10);
        self.add_memory(TRUNK, all, trunk);
        self.add_memory(RATED, all, rated);
        self.add_kernel(TAP, tap_device);
        self.add_kernel(PACKET, packet_device);
        self.add_vhost(RESTARTING, Offloads::empty(), victim(RESTARTING, 65535));
        self.add_vhost(ABSENT, Offloads::empty(), alone.clone());
        self.add_memory(TO_ABSENT, Offloads::empty(), alone);
        self.add_memory(TRUNK_GUEST, no_ecn, guest_trunk);
        let guarded = PortSettings { mac: None, ..victim(GUARDED, 1500) };
        self.add_memory(GUARDED, Offloads::empty(), guarded);
        let acl = denials(Direction::Ingress);
        let ruled = PortSettings { guards: guards(), acl, ..victim(RULED, 1500) };
        self.add_memory(RULED, Offloads::empty(), ruled);
    }

    fn path(&self, number: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("vm{number}"))
    }

    fn add_vhost(&mut self, number: usize, offloads: Offloads, settings: PortSettings) {
        let options = VhostOptions {
            mac: Some(Mac(mac(number as u8))),
            ..VhostOptions::new(self.path(number))
        };
        let opened = vhost::open(&options).unwrap();
        self.sessions.insert(number, opened.session);
        self.add(number, opened.device, offloads, settings);
    }

    fn add_memory(&mut self, number: usize, offloads: Offloads, settings: PortSettings) {
        let (device, peer) = memory::open(DEPTH, offloads, settings.mtu).unwrap();
        self.peers.insert(number, peer);
        self.add(number, device, offloads, settings);
    }

    /// Adds a port of this kernel, in a network namespace of its own, or a memory port in its
    /// stead.
    fn add_kernel(&mut self, number: usize, open: fn() -> Option<Device>) {
        let settings = PortSettings { mtu: 1500, ..PortSettings::default() };
        match ports::namespace::fresh(open).ok().flatten() {
            Some(device) => self.add(number, device, Offloads::empty(), settings),
            None => {
                eprintln!(
                    "port {number} is a memory port: no network namespace with devices can be made here"
                );
                self.add_memory(number, Offloads::all(), settings);
            }
        }
    }

    fn add(&mut self, number: usize, device: Device, offloads: Offloads, settings: PortSettings) {
        const NAMES: [&str; 18] = [
            "guest",
            "plain-guest",
            "hostile",
            "receiver",
            "memory-1500",
            "memory-9000",
            "memory-64k",
            "vlan-10",
            "trunk",
            "rated",
            "tap",
            "packet",
            "restarting",
            "absent",
            "to-absent",
            "trunk-guest",
            "guarded",
            "ruled",
        ];
        let name = NAMES[number];
        let apart = settings.vlan == Vlan::Access(10) || settings.vlan == Vlan::Access(30);
        self.limits.insert(number, Limits { name, offloads, mtu: settings.mtu, apart });
        self.ports.push(self.switch.add_port(name, device, settings).unwrap());
    }

    /// Connects a front end to a port. The session must serve it in time.
    pub(crate) fn connect(&self, number: usize, features: Features) -> Guest {
        let path = self.path(number);
        let connect = match number {
            RESTARTING => Guest::connect_plainly,
            HOSTILE | RECEIVER => Guest::connect_sparsely,
            _ => Guest::connect,
        };
        let serve =
            || until("a session for a front end", || connect(&path, features.bits(), 1).ok());
        self.watch.during("the next front end", serve)
    }

    /// Runs a turn of every queue.
    pub(crate) fn step(&mut self) -> Cost {
        self.now = self.now + Nanos(10_000);
        self.step_at(self.now)
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let _ = self.step();
        }
    }

    /// Turns until the hostile guest's queue has been empty for a while: one that has cost much
    /// pauses. Returns the page faults of all these turns.
    pub(crate) fn run_dry(&mut self) -> u64 {
        let taken = |world: &World| {
            world
                .switch
                .counters(world.ports[HOSTILE])
                .map_or(0, |counters| counters.ingress_frames)
        };
        let (mut last, mut empty, mut faults) = (taken(self), 0, 0);
        for _ in 0..MOST_TURNS {
            faults += self.step().faults;
            let now = taken(self);
            empty = if now == last { empty + 1 } else { 0 };
            last = now;
            if empty > 8 {
                break;
            }
        }
        faults
    }

    /// Like `step` at another time: a worker's clock may be behind another's.
    pub(crate) fn step_at(&mut self, now: Nanos) -> Cost {
        let before = self.copied();
        let (watch, switch) = (&self.watch, &mut self.switch);
        let (_, cost) = watch.during(&self.doing, || measure(|| switch.step(now)));
        let copied = self.copied() - before;
        let doing = &self.doing;
        assert!(copied <= MOST_COPIED, "FINDING (copied bytes): {copied} in a turn: {doing}");
        assert!(cost.allocated <= MOST_ALLOCATED, "FINDING (allocated bytes): {cost:?} by {doing}");
        let largest = cost.largest;
        assert!(largest <= MOST_IN_ONE_ALLOCATION, "FINDING (one allocation): {cost:?} by {doing}");
        assert!(cost.writes <= MOST_WRITES, "FINDING (system calls): {cost:?} by {doing}");
        assert!(cost.cpu <= MOST_CPU, "FINDING (processor time): {cost:?} by {doing}");
        self.collect();
        cost
    }

    /// Returns the number of bytes that were delivered to all ports.
    fn copied(&self) -> u64 {
        let bytes =
            |port: &PortId| self.switch.counters(*port).map_or(0, |counters| counters.egress_bytes);
        self.ports.iter().map(bytes).sum()
    }

    /// Holds all that arrived against what may.
    fn collect(&mut self) {
        let mut arrived = Vec::new();
        for (number, peer) in &self.peers {
            while let Some(frame) = peer.receive() {
                if *number == MEMORY_64K && frame.bytes[6..12] == mac(RATED as u8) {
                    self.rated_bytes += frame.bytes.len() as u64;
                }
                judge(&frame, &self.limits[number], &self.sent);
                let guarded = frame.bytes[6..12] == mac(RULED as u8);
                if guarded || *number == MEMORY_1500 {
                    let receiver = self.receivers.entry(*number).or_default();
                    let wrong = receiver.take(&frame.bytes, guarded);
                    let (name, doing) = (self.limits[number].name, &self.doing);
                    assert!(wrong.is_none(), "FINDING (rules): {wrong:?} at {name}: {doing}");
                }
                arrived.extend(round_of(&frame.bytes).map(|round| (*number, round)));
                peer.recycle(frame);
            }
        }
        for (number, guest) in &mut self.guests {
            while let Some((header, bytes)) = guest.receive(0) {
                let mut vnet = VnetHeader::decode(header);
                vnet.num_buffers.set(0);
                let frame = MemoryFrame { vnet, bytes };
                judge(&frame, &self.limits[number], &self.sent);
                arrived.extend(round_of(&frame.bytes).map(|round| (*number, round)));
            }
        }
        self.arrived.append(&mut arrived);
    }

    /// Sends a frame from one that means well.
    pub(crate) fn send_clean(&mut self, from: usize, to: usize, len: usize) -> u32 {
        self.round += 1;
        let tag = (from == TRUNK).then_some(10);
        let frame = clean(mac(to as u8), mac(from as u8), tag, self.round, len);
        let sent = match self.peers.get(&from) {
            Some(peer) => peer.send(VnetHeader::default(), &frame),
            None => self.guests.get_mut(&from).is_some_and(|guest| guest.send(0, &[0; 12], &frame)),
        };
        assert!(sent, "FINDING (service): a victim's own queue is full: {}", self.doing);
        self.round
    }

    /// Whether a round has arrived at a port.
    pub(crate) fn has_arrived(&self, to: usize, round: u32) -> bool {
        self.arrived.contains(&(to, round))
    }

    /// Checks that every victim receives from every other, and that sessions answer requests.
    pub(crate) fn check(&mut self) {
        let doing = std::mem::replace(&mut self.doing, "the victims' own frames".into());
        self.send_to_attackers();
        let sent = FLOWS.map(|(from, to)| (from, to, self.send_clean(from, to, 60 + 100 * to)));
        self.until_arrived(&sent);
        for (from, to, round) in sent {
            let (from, to_name) = (self.limits[&from].name, self.limits[&to].name);
            let arrived = self.has_arrived(to, round);
            assert!(arrived, "FINDING (lost): {from} to {to_name}, after {doing}");
        }
        self.arrived.clear();
        for number in [GUEST, PLAIN_GUEST, HOSTILE, RECEIVER] {
            let session = &self.sessions[&number];
            let status = self.watch.during("the status of a session", || session.status());
            let clean = [GUEST, PLAIN_GUEST].contains(&number);
            assert!(!clean || status.state == State::Running, "FINDING (service): {status:?}");
        }
        self.doing = doing;
        self.check_addresses();
        self.check_floods();
    }

    /// Turns until all of these have arrived, or none can be on its way any more: a queue that has
    /// cost much pauses.
    fn until_arrived(&mut self, sent: &[(usize, usize, u32)]) {
        for _ in 0..MOST_TURNS {
            let _ = self.step();
            if sent.iter().all(|(_, to, round)| self.has_arrived(*to, *round)) {
                return;
            }
        }
    }

    /// Sends frames to the attackers, so that their rings are used and signalled.
    fn send_to_attackers(&mut self) {
        for to in [HOSTILE, RECEIVER] {
            let _ = self.send_clean(MEMORY_64K, to, 60);
        }
        let _ = self.step();
    }

    fn check_addresses(&mut self) {
        let learned = self.switch.macs();
        for (number, most) in [(HOSTILE, MOST_ADDRESSES), (GUARDED, 1)] {
            let port = self.ports[number];
            let count = learned.iter().filter(|entry| entry.port == port).count();
            let name = self.limits[&number].name;
            assert!(
                count <= most.into(),
                "FINDING (addresses): {name} has {count} in the table, {most} may be: {}",
                self.doing
            );
        }
    }

    /// Checks the number of frames flooded to a victim since the case began.
    fn check_floods(&self) {
        let elapsed = self.now.since(self.began).0;
        let most = STORM_BURST + OTHER_FLOODS + elapsed * STORM.frames_per_second / 1_000_000_000;
        let flooded = self.flooded() - self.flooded_before;
        assert!(
            flooded <= most,
            "FINDING (storm): {flooded} flooded, {most} may be: {}",
            self.doing
        );
    }

    fn flooded(&self) -> u64 {
        self.switch.counters(self.ports[MEMORY_64K]).map_or(0, |counters| counters.flooded_frames)
    }

    /// Begins a case: forgets what was sent before. What the switch has learned stays, and no pause
    /// fills its buckets, until a history ends: a finding may be owed to the cases before.
    pub(crate) fn begin(&mut self) {
        self.now = self.now + Nanos::MILLISECOND;
        if self.cases.is_multiple_of(HISTORY) {
            self.now = self.now + Nanos(2 * Nanos::SECOND.0);
            self.switch.forget_macs(None);
        }
        self.cases += 1;
        self.sent = Sent::default();
        self.receivers.clear();
        self.watch.forget_rescues();
        self.switch.take_events();
        (self.began, self.flooded_before) = (self.now, self.flooded());
        self.doing = format!("nothing yet, in case {} of a history", self.cases % HISTORY);
    }
}

/// Returns rules that deny some of what `packets` makes.
fn denials(direction: Direction) -> Vec<AclRule> {
    let deny = |protocol, port| AclRule {
        action: AclAction::Deny,
        direction,
        protocol: AclProtocol::Ip(protocol),
        from: AclEnd::default(),
        to: AclEnd { ports: Some(port..=port), ..AclEnd::default() },
    };
    vec![deny(17, packets::DENIED_UDP), deny(6, packets::DENIED_TCP)]
}

/// Returns all guards; of the addresses of `packets` one is the port's own.
fn guards() -> Guards {
    let own = |address: IpAddr| Prefix { first: address, last: address };
    let v6 = Ipv6Addr::from_bits(u128::from_be_bytes([0xfd; 16]) & !0xff | 1);
    let addresses = vec![own(Ipv4Addr::new(10, 0, 0, 1).into()), own(v6.into())];
    Guards { dhcp: true, router: true, addresses: Some(addresses) }
}

fn ip(words: &str) -> Option<()> {
    let output = Command::new("ip").args(words.split(' ')).output().ok()?;
    output.status.success().then_some(())
}

/// Turns IPv6 off, by which the kernel would send frames of its own.
fn no_ipv6() {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

fn tap_device() -> Option<Device> {
    no_ipv6();
    tap::open(&TapOptions::new("mill0")).ok().map(|opened| opened.device)
}

fn packet_device() -> Option<Device> {
    no_ipv6();
    ip("link add mill0 type veth peer name mill1")?;
    ip("link set mill0 up")?;
    ip("link set mill1 up")?;
    packet::open(&PacketOptions::new("mill0")).ok().map(|opened| opened.device)
}
