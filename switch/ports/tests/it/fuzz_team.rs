//! Fuzz target: whatever guests send through a team and whatever arrives at its members, nothing
//! panics, and a failover announces only the truth. Another parser must find each announcement
//! whole, for an address that sent, with IP addresses that it told.

use crate::world::{NAMES, START, World, own_mac, tagged, vnic};
use bolero::TypeGenerator;
use etherparse::{EtherType, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice};
use ports::Nanos;
use ports::team::Algorithm;
use std::collections::HashSet;
use wire::Mac;
use wire::announce::{self, Station};

/// An event of a run.
#[derive(Debug, TypeGenerator)]
enum Event {
    /// A station sends a frame that tells its address, altered at some places and cut short.
    Sends {
        station: u8,
        kind: u8,
        tag: Option<u16>,
        edits: Vec<(u8, u8)>,
        cut: u8,
    },
    /// A frame like that of `Sends` arrives at a member.
    Comes {
        member: u8,
        station: u8,
        kind: u8,
        tag: Option<u16>,
        edits: Vec<(u8, u8)>,
        cut: u8,
    },
    /// Any bytes are sent.
    SendsAny(Vec<u8>),
    ComesAny(u8, Vec<u8>),
    /// A member goes down or comes back.
    Turns(u8, bool),
    /// A port of a station is closed.
    Closes(u8),
    /// Milliseconds pass.
    Passes(u16),
}

/// Returns a frame of a station: ARP, neighbour advertisement or solicitation, or RARP.
fn telling(station: u8, kind: u8, tag: Option<u16>, edits: &[(u8, u8)], cut: u8) -> Vec<u8> {
    let (number, mut buffer) = (station % 4, [0; 90]);
    let of = Station { mac: vnic(number), tci: None };
    let v6 = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number];
    let mut frame = match kind % 4 {
        0 => announce::gratuitous_arp(&mut buffer, of, [10, 0, 0, number]).to_vec(),
        3 => announce::rarp(&mut buffer, of).to_vec(),
        _ => announce::unsolicited_advertisement(&mut buffer, of, v6).to_vec(),
    };
    if kind % 4 == 2 {
        frame[54] = 135;
    }
    if let Some(tci) = tag {
        frame = tagged(tci, &frame);
    }
    for (place, byte) in edits.iter().take(4) {
        let place = usize::from(*place) % frame.len();
        frame[place] ^= byte;
    }
    let len = frame.len();
    frame.truncate(if cut < 200 { len } else { usize::from(cut) % len });
    frame
}

/// Facts that a frame may have told: its source, and any of its bytes that could be an address.
#[derive(Default)]
struct Known {
    sources: HashSet<[u8; 6]>,
    told: HashSet<([u8; 6], Vec<u8>)>,
}

impl Known {
    fn note(&mut self, frame: &[u8]) {
        let Some(source) = frame.get(6..12).and_then(|bytes| bytes.first_chunk()) else { return };
        self.sources.insert(*source);
        let parts = frame.windows(4).chain(frame.windows(16));
        self.told.extend(parts.map(|part| (*source, part.to_vec())));
    }

    /// Checks that an announcement is whole and true.
    fn check(&self, frame: &[u8]) {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let source: [u8; 6] = frame[6..12].try_into().unwrap();
        assert!(self.sources.contains(&source), "FINDING: {source:?} never sent: {frame:?}");
        let told = |address: &[u8]| self.told.contains(&(source, address.to_vec()));
        match packet.net {
            Some(NetSlice::Arp(arp)) => {
                assert_eq!(arp.sender_hw_addr(), source);
                assert!(told(arp.sender_protocol_addr()), "FINDING: not told: {frame:?}");
            }
            Some(NetSlice::Ipv6(ip)) => {
                let Some(TransportSlice::Icmpv6(message)) = packet.transport else {
                    panic!("{frame:?}")
                };
                assert!(matches!(message.icmp_type(), Icmpv6Type::NeighborAdvertisement(_)));
                let header = ip.header();
                assert!(told(&header.source()), "FINDING: not told: {frame:?}");
                let (from, to) = (header.source(), header.destination());
                assert!(message.is_checksum_valid(from, to), "{frame:?}");
            }
            Some(NetSlice::Ipv4(_)) => panic!("FINDING: IPv4 is no announcement: {frame:?}"),
            None => {
                let kind = packet.payload_ether_type().unwrap();
                assert_eq!(kind, EtherType(0x8035), "{frame:?}");
            }
        }
    }
}

#[test]
fn fuzz_team() {
    bolero::check!().with_type::<(bool, Vec<Event>)>().for_each(|(dynamic, events)| {
        let algorithm = if *dynamic { Algorithm::Dynamic } else { Algorithm::HyperVPort };
        let mut world = World::new(&NAMES[..3], algorithm, 1 << 12);
        let (mut known, mut now) = (Known::default(), START);
        world.taken(now);
        for event in events {
            match event {
                Event::Sends { station, kind, tag, edits, cut } => {
                    send(&mut world, &mut known, now, telling(*station, *kind, *tag, edits, *cut));
                }
                Event::SendsAny(bytes) => send(&mut world, &mut known, now, bytes.clone()),
                Event::Comes { member, station, kind, tag, edits, cut } => {
                    comes(&mut world, now, *member, &telling(*station, *kind, *tag, edits, *cut));
                }
                Event::ComesAny(member, bytes) => comes(&mut world, now, *member, bytes),
                Event::Turns(member, up) => {
                    world.set(NAMES[usize::from(*member) % 3], *up, now);
                    world.received().iter().for_each(|(_, frame)| known.check(frame));
                }
                Event::Closes(station) => world.team.forget(&[vnic(station % 4)]),
                Event::Passes(ms) => {
                    now = now + Nanos(u64::from(*ms) * 1_000_000);
                    world.taken(now);
                }
            }
        }
    });
}

/// Sends a frame, which must leave at most once, under its own address or a member's.
fn send(world: &mut World, known: &mut Known, now: Nanos, frame: Vec<u8>) {
    known.note(&frame);
    let drops = world.send(now, std::slice::from_ref(&frame));
    let sent = world.received();
    assert_eq!(sent.len() + drops.len(), 1);
    for (member, out) in sent {
        let own =
            Mac(out.get(6..12).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default());
        assert!(out == frame || own == own_mac(&member), "FINDING: {frame:?} became {out:?}");
        assert_eq!(out.len(), frame.len());
    }
}

/// Brings a frame to a member, which must be taken at most once.
fn comes(world: &mut World, now: Nanos, member: u8, frame: &[u8]) {
    world.bring(NAMES[usize::from(member) % 3], frame);
    let taken = world.taken(now);
    assert!(taken.is_empty() || taken == [frame]);
}
