//! Guests whose front end passes the control queue on, as those of OpenVMM, crosvm and user-mode
//! Linux do: what their drivers set by commands decides what they receive.

use crate::common::packet::{Packet, TCP, UDP, toeplitz};
use datapath::{PortId, PortSettings, Switch, SwitchOptions, Vlan};
use ports::Nanos;
use ports::vhost::{self, Features, Session, VhostOptions};
use std::path::PathBuf;
use tempfile::TempDir;
use test_guest::Guest;
use waiting::until;
use wire::Mac;
use wire::toeplitz::HashTypes;
use wire::vnet::VnetHeader;

/// The addresses of the guest with commands and of the other.
const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const GROUP: Mac = Mac([1, 0, 0x5e, 0, 0, 7]);

const KEY: [u8; 40] = [0x6d; 40];

/// Classes of commands.
const RX: u8 = 0;
const MAC: u8 = 1;
const VLAN: u8 = 2;
const MQ: u8 = 4;

/// A switch with two vNICs of four queue pairs.
struct Bench {
    folder: TempDir,
    switch: Switch,
    _sessions: Vec<Session>,
    ports: Vec<PortId>,
}

impl Bench {
    fn new(settings: &PortSettings) -> Bench {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::start(SwitchOptions::default()).unwrap();
        let (mut sessions, mut ports) = (Vec::new(), Vec::new());
        for (name, mac) in [("own", OWN), ("peer", PEER)] {
            let mut options = VhostOptions::new(folder.path().join(name));
            (options.queues, options.mac) = (4, Some(mac));
            let opened = vhost::open(&options).unwrap();
            let settings = PortSettings { mac: Some(mac), ..settings.clone() };
            ports.push(switch.add_port(name, opened.device, settings).unwrap());
            sessions.push(opened.session);
        }
        Bench { folder, switch, _sessions: sessions, ports }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a guest whose commands the switch gets, and one without commands.
    fn guests(&self, features: Features, pairs: u16) -> (Guest, Guest) {
        let modern = Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ | Features::CTRL_VQ;
        let wanted = modern | features;
        let own = Guest::connect_with_commands(&self.path("own"), wanted.bits(), pairs).unwrap();
        assert_eq!(own.features() & features.bits(), features.bits(), "all are offered");
        let peer = Guest::connect(&self.path("peer"), modern.bits(), 1).unwrap();
        let mut both = (own, peer);
        meet(&mut both.0, &mut both.1);
        both
    }

    fn unwanted(&self) -> u64 {
        self.switch.counters(self.ports[0]).unwrap().unwanted_frames
    }
}

/// Returns settings of a vNIC that leave the choice of queues to its guest.
fn settings() -> PortSettings {
    let rss = datapath::Rss { steer: datapath::Steer::Guest, ..datapath::Rss::default() };
    PortSettings { mtu: 9000, rss, ..PortSettings::default() }
}

/// Returns the content of a command that sets a table of four entries, of which frames without a
/// hash go to queue 3.
fn table(types: HashTypes, entries: [u16; 4]) -> Vec<u8> {
    let mut bytes = u32::from(types.bits()).to_le_bytes().to_vec();
    let words = [3, 3].into_iter().chain(entries).chain([4]);
    words.for_each(|word: u16| bytes.extend(word.to_le_bytes()));
    bytes.push(40);
    bytes.extend(KEY);
    bytes
}

/// Returns a packet of a flow.
fn packet(number: u8) -> Packet {
    let (source, destination) = ([number; 16], [10; 16]);
    let transport = if number.is_multiple_of(3) { UDP } else { TCP };
    let (chain, ports) = (Vec::new(), [number, 1, 0, 80]);
    let v6 = number.is_multiple_of(2);
    Packet { tags: 0, v6, source, destination, chain, fragment: false, transport, ports }
}

fn plain(to: Mac, from: Mac, fill: u8) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
    frame.resize(64, fill);
    frame
}

/// Sends announcements both ways until they arrive: a port that was down, since its guest was not
/// there yet, rests for a moment.
fn meet(own: &mut Guest, peer: &mut Guest) {
    let announcement = |to: Mac, from: Mac| [&to.0[..], &from.0, &[0x80, 0x35], &[0; 46]].concat();
    let (mut here, mut there) = (false, false);
    until("frames pass both ways", || {
        own.send(0, &[0; 12], &announcement(PEER, OWN));
        peer.send(0, &[0; 12], &announcement(OWN, PEER));
        here |= (0..4).any(|pair| own.receive(pair).is_some());
        there |= peer.receive(0).is_some();
        here && there
    });
}

/// Returns whether a frame announces a guest: the switch sends those by itself.
fn announces(frame: &[u8]) -> bool {
    let is_rarp = |at: usize| frame.get(at..at + 2) == Some(&[0x80, 0x35]);
    is_rarp(12) || is_rarp(16)
}

/// Returns the next frame at any of the queues, with its queue and its header.
fn next(guest: &mut Guest) -> (usize, Vec<u8>, Vec<u8>) {
    until("a frame arrives", || {
        let one = |pair: usize| {
            guest.receive_with_header(pair).map(|(header, frame)| (pair, header, frame))
        };
        (0..4).filter_map(one).find(|(_, _, frame)| !announces(frame))
    })
}

/// Returns the hash that a header reports, and the number of its type.
fn reported(header: &[u8]) -> (u32, u16) {
    assert_eq!(header.len(), 20);
    let word = u32::from_le_bytes(*header[12..].first_chunk().unwrap());
    (word, u16::from_le_bytes([header[16], header[17]]))
}

#[test]
fn the_guest_s_table_names_the_queue_and_the_header_has_its_hash() {
    for format in [Features::empty(), Features::RING_PACKED, Features::EVENT_IDX] {
        let bench = Bench::new(&settings());
        let features = Features::RSS | Features::HASH_REPORT | format;
        let (mut own, mut peer) = bench.guests(features, 4);
        let types = HashTypes::PLAIN - HashTypes::UDPV6;
        assert!(own.command(MQ, 1, &table(types, [1, 0, 2, 1])));
        for number in 0..60 {
            let packet = packet(number);
            let sent = packet.frame(PEER, OWN);
            until("there is room", || peer.send(0, &[0; 12], &sent));
            let (queue, header, frame) = next(&mut own);
            assert_eq!(frame, sent);
            let (hash, kind) = reported(&header);
            let input = packet.hashed(types).unwrap();
            assert_eq!(hash, toeplitz(&KEY, &input));
            assert_eq!(queue, [1, 0, 2, 1][hash as usize % 4], "{packet:?}");
            let v6_without_udp = if packet.transport == UDP { 4 } else { 5 };
            let v4 = if packet.transport == UDP { 3 } else { 2 };
            assert_eq!(kind, if packet.v6 { v6_without_udp } else { v4 });
        }
        until("there is room", || peer.send(0, &[0; 12], &plain(OWN, PEER, 1)));
        let (queue, header, frame) = next(&mut own);
        assert_eq!((queue, reported(&header), frame), (3, (0, 0), plain(OWN, PEER, 1)));
    }
}

/// A header of 20 bytes stands before what the guest sends, and before frames of several buffers.
#[test]
fn frames_of_all_lengths_pass_beside_a_header_with_a_hash() {
    for format in [Features::empty(), Features::RING_PACKED] {
        let bench = Bench::new(&settings());
        let (mut own, mut peer) = bench.guests(Features::HASH_REPORT | format, 1);
        for len in [14, 60, 1514, 4075, 4076, 4077, 4096, 9014] {
            let long = |to, from| {
                let mut frame = plain(to, from, 3);
                frame.resize(len, 7);
                frame
            };
            until("there is room", || own.send(0, &[0; 12], &long(PEER, OWN)));
            let arrives = || peer.receive(0).filter(|(_, frame)| !announces(frame));
            let got = until("a frame arrives", arrives);
            assert!(got.1 == long(PEER, OWN), "sent with {len} bytes");
            until("there is room", || peer.send(0, &[0; 12], &long(OWN, PEER)));
            let (_, header, frame) = next(&mut own);
            assert!(frame == long(OWN, PEER) && header.len() == 20, "received with {len} bytes");
        }
    }
}

#[test]
fn a_guest_that_has_set_no_table_keeps_the_switch_s_and_a_number_of_pairs_ends_its_own() {
    let bench = Bench::new(&settings());
    let (mut own, mut peer) = bench.guests(Features::RSS, 4);
    assert!(own.command(MQ, 0, &[4, 0]));
    let sent = packet(1).reversed().frame(OWN, PEER);
    let mut arrives_by = |own: &mut Guest| {
        until("there is room", || peer.send(0, &[0; 12], &packet(1).frame(PEER, OWN)));
        next(own).0
    };
    until("there is room", || own.send(2, &[0; 12], &sent));
    until("the flow is noted", || arrives_by(&mut own) == 2);
    assert!(own.command(MQ, 1, &table(HashTypes::PLAIN, [1; 4])));
    until("the table is in force", || arrives_by(&mut own) == 1);
    let info = bench.switch.rss(bench.ports[0]).unwrap();
    assert!(info.is_by_guest && info.in_force == [1; 128]);
    assert!(own.command(MQ, 0, &[4, 0]));
    until("the flow is followed again", || {
        own.send(2, &[0; 12], &sent);
        arrives_by(&mut own) == 2
    });
    for entries in [[4, 0, 0, 0], [0, 0, 0, u16::MAX]] {
        assert!(!own.command(MQ, 1, &table(HashTypes::PLAIN, entries)), "there is no such queue");
    }
}

/// Sends a frame that is not wanted, and returns once it was refused.
fn refused(bench: &Bench, peer: &mut Guest, to: Mac) {
    let before = bench.unwanted();
    until("there is room", || peer.send(0, &[0; 12], &plain(to, PEER, 9)));
    until("it is refused", || bench.unwanted() == before + 1);
}

/// Sends a frame that is wanted.
fn arrives(own: &mut Guest, peer: &mut Guest, to: Mac) {
    until("there is room", || peer.send(0, &[0; 12], &plain(to, PEER, 8)));
    assert_eq!(next(own).2, plain(to, PEER, 8));
}

#[test]
fn a_frame_that_the_guest_does_not_want_does_not_wake_it() {
    let bench = Bench::new(&settings());
    let (mut own, mut peer) = bench.guests(Features::CTRL_RX | Features::CTRL_RX_EXTRA, 1);
    let other = Mac([2, 0, 0, 0, 0, 9]);
    [GROUP, other, Mac::BROADCAST].into_iter().for_each(|to| arrives(&mut own, &mut peer, to));
    assert!(own.command(RX, 0, &[0]), "not promiscuous");
    own.was_called(0);
    [GROUP, other].into_iter().for_each(|to| refused(&bench, &mut peer, to));
    assert!(!own.was_called(0));
    [OWN, Mac::BROADCAST].into_iter().for_each(|to| arrives(&mut own, &mut peer, to));
    let macs = [&[0; 4][..], &[1, 0, 0, 0], &GROUP.0].concat();
    assert!(own.command(MAC, 0, &macs));
    arrives(&mut own, &mut peer, GROUP);
    refused(&bench, &mut peer, Mac([1, 0, 0x5e, 0, 0, 8]));
    assert!(own.command(RX, 5, &[1]), "no broadcast");
    refused(&bench, &mut peer, Mac::BROADCAST);
    assert!(own.command(RX, 0, &[1]), "promiscuous");
    [GROUP, other, Mac::BROADCAST].into_iter().for_each(|to| arrives(&mut own, &mut peer, to));
    assert!(own.command(RX, 0, &[0]));
    refused(&bench, &mut peer, other);
    assert_eq!(bench.switch.counters(bench.ports[0]).unwrap().dropped(), 0, "no error");
}

/// A driver that was loaded anew, or another guest, would miss frames for a filter that is not its
/// own.
#[test]
fn a_reset_restores_everything() {
    let bench = Bench::new(&settings());
    let (mut own, mut peer) = bench.guests(Features::CTRL_RX | Features::RSS, 4);
    let commands = |own: &mut Guest| {
        assert!(own.command(MQ, 1, &table(HashTypes::PLAIN, [1; 4])));
        assert!(own.command(RX, 0, &[0]));
    };
    commands(&mut own);
    refused(&bench, &mut peer, GROUP);
    let is_by_guest = || bench.switch.rss(bench.ports[0]).unwrap().is_by_guest;
    assert!(is_by_guest());
    // SET_STATUS
    own.ask(39, Some(0)).unwrap();
    assert!(!is_by_guest());
    drop(own);
    let features = Features::VERSION_1 | Features::MQ | Features::CTRL_RX | Features::RSS;
    let next = || Guest::connect_with_commands(&bench.path("own"), features.bits(), 4).unwrap();
    let mut own = next();
    meet(&mut own, &mut peer);
    arrives(&mut own, &mut peer, GROUP);
    commands(&mut own);
    refused(&bench, &mut peer, GROUP);
    drop(own);
    until("the guest is gone", || !is_by_guest());
    let mut own = next();
    meet(&mut own, &mut peer);
    arrives(&mut own, &mut peer, GROUP);
}

#[test]
fn a_vlan_that_the_guest_has_not_named_is_not_delivered() {
    let vlan = Vlan::Trunk { native: 0, allowed: [5, 6].into_iter().collect() };
    let bench = Bench::new(&PortSettings { vlan, ..settings() });
    let (mut own, mut peer) = bench.guests(Features::CTRL_RX | Features::CTRL_VLAN, 1);
    let tagged =
        |vlan: u8| [&OWN.0[..], &PEER.0, &[0x81, 0, 0, vlan, 0x88, 0xb5], &[vlan; 46]].concat();
    let mut arrives = |own: &mut Guest, vlan: u8| {
        let before = bench.unwanted();
        until("there is room", || peer.send(0, &[0; 12], &tagged(vlan)));
        until("it is delivered or not", || {
            let frame = own.receive(0).map(|(_, frame)| frame).filter(|it| !announces(it));
            frame
                .map(|frame| frame == tagged(vlan))
                .or((bench.unwanted() > before).then_some(false))
        })
    };
    assert!(own.command(RX, 0, &[0]));
    assert!(arrives(&mut own, 5) && arrives(&mut own, 6), "it has named none");
    assert!(own.command(VLAN, 0, &[5, 0]));
    assert!(arrives(&mut own, 5) && !arrives(&mut own, 6));
    assert!(own.command(VLAN, 1, &[5, 0]) && own.command(VLAN, 0, &[6, 0]));
    assert!(!arrives(&mut own, 5) && arrives(&mut own, 6));
}

/// The front end of QEMU keeps the control queue, so the switch would not hear of a table.
#[test]
fn commands_of_features_that_were_not_taken_are_refused() {
    let bench = Bench::new(&settings());
    let (mut own, _peer) = bench.guests(Features::empty(), 4);
    assert!(own.command(MQ, 0, &[2, 0]));
    assert!(!own.command(MQ, 1, &table(HashTypes::PLAIN, [1; 4])));
    assert!(!own.command(RX, 0, &[0]) && !own.command(VLAN, 0, &[5, 0]));
    assert!(!own.command(MQ, 2, &[0; 53]));
}

/// A stepped switch with a guest whose commands it gets, and a memory port that sends to it.
struct Stepped {
    switch: Switch,
    ports: [PortId; 2],
    own: Guest,
    peer: ports::memory::Peer,
    now: Nanos,
    _kept: (TempDir, Session),
}

impl Stepped {
    fn new(features: Features) -> Stepped {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::stepped(SwitchOptions::default());
        let mut options = VhostOptions::new(folder.path().join("own"));
        options.mac = Some(OWN);
        let opened = vhost::open(&options).unwrap();
        let add = |switch: &mut Switch, name: &str, device, mac| {
            let settings = PortSettings { mac: Some(mac), ..settings() };
            switch.add_port(name, device, settings).unwrap()
        };
        let first = add(&mut switch, "own", opened.device, OWN);
        let (device, peer) = ports::memory::open(256, ports::Offloads::empty(), 9000).unwrap();
        let second = add(&mut switch, "peer", device, PEER);
        let wanted = Features::VERSION_1 | Features::CTRL_VQ | features;
        let own = Guest::connect_with_commands(&options.socket, wanted.bits(), 1).unwrap();
        let (now, kept) = (Nanos::SECOND, (folder, opened.session));
        let mut stepped = Stepped { switch, ports: [first, second], own, peer, now, _kept: kept };
        // Its announcement is taken, and its ring is known to run.
        until("it receives", || {
            stepped.deliver(1);
            stepped.counted() > 0
        });
        stepped.pass(1_000_000);
        stepped.own.was_called(0);
        stepped
    }

    fn counted(&self) -> u64 {
        self.switch.counters(self.ports[0]).unwrap().egress_frames
    }

    /// Delivers so many frames in one turn.
    fn deliver(&mut self, frames: usize) {
        (0..frames).for_each(|_| {
            assert!(self.peer.send(VnetHeader::default(), &plain(OWN, PEER, 4)));
        });
        self.switch.step(self.now);
        while self.own.receive(0).is_some() {}
    }

    /// Lets time pass. Returns whether the guest was signalled by then.
    fn pass(&mut self, ns: u64) -> bool {
        self.now = self.now + Nanos(ns);
        self.switch.step(self.now);
        self.own.was_called(0)
    }

    /// Returns a command that holds signals back.
    fn hold(packets: u32, microseconds: u32) -> Vec<u8> {
        [packets, microseconds].map(u32::to_le_bytes).concat()
    }
}

#[test]
fn signals_are_held_back_as_the_guest_asks_and_none_is_lost() {
    const COALESCE: u8 = 6;
    let mut it = Stepped::new(Features::NOTF_COAL | Features::VQ_NOTF_COAL);
    it.deliver(1);
    assert!(it.pass(0), "nothing was asked for");
    assert!(it.own.command(COALESCE, 1, &Stepped::hold(4, 100)));
    it.deliver(3);
    assert!(!it.pass(0) && !it.pass(99_999));
    assert!(it.pass(1), "the time has come");
    it.deliver(3);
    assert!(!it.pass(0));
    it.deliver(1);
    assert!(it.pass(0), "so many frames");
    it.deliver(9);
    assert!(it.pass(0), "more at once");
    assert!(it.own.command(COALESCE, 2, &[&[0; 4][..], &Stepped::hold(64, u32::MAX)].concat()));
    it.deliver(1);
    assert!(!it.pass(vhost::LONGEST_HOLD_NS - 1));
    assert!(it.pass(1), "the switch's bound");
    it.deliver(1);
    assert!(!it.pass(0));
    assert!(it.own.command(COALESCE, 1, &Stepped::hold(0, 0)));
    assert!(it.own.was_called(0), "a new wish leaves none behind");
    it.deliver(1);
    assert!(it.pass(0));
    assert!(!it.own.command(COALESCE, 2, &[&[2, 0, 0, 0][..], &[0; 8]].concat()), "no such ring");
}

/// The guest would wait for a signal of a ring that is not there any more.
#[test]
fn a_ring_that_stops_leaves_no_signal_behind() {
    let mut it = Stepped::new(Features::NOTF_COAL);
    assert!(it.own.command(6, 1, &Stepped::hold(100, 1_000)));
    it.deliver(1);
    assert!(!it.pass(0));
    it.own.stop(0).unwrap();
    assert!(it.own.was_called(0));
}
