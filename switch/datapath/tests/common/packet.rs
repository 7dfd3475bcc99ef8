//! Packets of all kinds that receive-side scaling tells apart, and a switch with a guest of several
//! queues for them.

use super::{ALL, Bench, trunk};
use datapath::{PortId, PortSettings};
use ports::Capabilities;
use ports::memory::MemoryFrame;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;
use wire::Mac;
use wire::toeplitz::HashTypes;
use wire::vnet::VnetHeader;

/// The addresses of the guest and of the station that talks to it.
pub const GUEST: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The VLAN of tagged packets.
pub const VLAN: u16 = 5;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// An IPv6 extension header.
#[derive(Clone, Debug)]
pub enum Extension {
    Options,
    /// Destination options with a home address where RFC 6275 aligns it, or after padding.
    Home {
        padded: bool,
        address: [u8; 16],
    },
    /// A routing header of this type.
    Route(u8, [u8; 16]),
}

/// A packet as a test describes it. IPv4 addresses are the first four bytes.
#[derive(Clone, Debug)]
pub struct Packet {
    pub tags: usize,
    pub v6: bool,
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub chain: Vec<Extension>,
    pub fragment: bool,
    pub transport: u8,
    pub ports: [u8; 4],
}

impl Packet {
    /// Returns the answer to the packet.
    pub fn reversed(&self) -> Packet {
        let [a, b, c, d] = self.ports;
        let (source, destination) = (self.destination, self.source);
        Packet { source, destination, ports: [c, d, a, b], ..self.clone() }
    }

    pub fn frame(&self, from: Mac, to: Mac) -> Vec<u8> {
        let mut transport = [&self.ports[..], &[0; 36]].concat();
        match self.transport {
            TCP => transport[12] = 0x50,
            UDP => transport[5] = 40,
            _ => {}
        }
        let mut frame = [to.0, from.0].concat();
        (0..self.tags).for_each(|_| frame.extend([0x81, 0, 0, VLAN as u8]));
        if !self.v6 {
            let more = if self.fragment { 0x20 } else { 0 };
            frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, more, 0, 64, self.transport, 0, 0]);
            frame.extend([&self.source[..4], &self.destination[..4], &transport].concat());
            return frame;
        }
        let mut headers = Vec::new();
        let mut kinds: Vec<u8> = self.chain.iter().map(Extension::kind).collect();
        kinds.extend(self.fragment.then_some(44));
        kinds.push(self.transport);
        for (header, next) in self.chain.iter().zip(&kinds[1..]) {
            headers.extend(header.bytes(*next));
        }
        if self.fragment {
            headers.extend([self.transport, 0, 0, 1, 0, 0, 0, 0]);
        }
        let length = (headers.len() + transport.len()) as u8;
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, kinds[0], 64]);
        frame.extend([&self.source[..], &self.destination, &headers, &transport].concat());
        frame
    }

    /// Returns the bytes of the packet that are hashed by virtio 1.2, section 5.1.6.4.3.
    pub fn hashed(&self, types: HashTypes) -> Option<Vec<u8>> {
        let is =
            |transport, set| !self.fragment && self.transport == transport && types.contains(set);
        let length = if self.v6 { 16 } else { 4 };
        let addresses = [&self.source[..length], &self.destination[..length]].concat();
        let with_ports = |addresses: &[u8]| Some([addresses, &self.ports].concat());
        if !self.v6 {
            if is(TCP, HashTypes::TCPV4) || is(UDP, HashTypes::UDPV4) {
                return with_ports(&addresses);
            }
            return types.contains(HashTypes::IPV4).then_some(addresses);
        }
        if self.fragment || !self.chain.is_empty() {
            let (mut home, mut route) = (self.source, self.destination);
            for header in &self.chain {
                match header {
                    Extension::Home { address, .. } => home = *address,
                    Extension::Route(2, address) => route = *address,
                    _ => {}
                }
            }
            let addresses = [home, route].concat();
            if is(TCP, HashTypes::TCPV6_EX) || is(UDP, HashTypes::UDPV6_EX) {
                return with_ports(&addresses);
            }
            if types.contains(HashTypes::IPV6_EX) {
                return Some(addresses);
            }
        }
        if is(TCP, HashTypes::TCPV6) || is(UDP, HashTypes::UDPV6) {
            return with_ports(&addresses);
        }
        types.contains(HashTypes::IPV6).then_some(addresses)
    }
}

impl Extension {
    fn kind(&self) -> u8 {
        match self {
            Extension::Options | Extension::Home { .. } => 60,
            Extension::Route(..) => 43,
        }
    }

    fn bytes(&self, next: u8) -> Vec<u8> {
        match self {
            Extension::Options => vec![next, 0, 1, 4, 0, 0, 0, 0],
            Extension::Home { padded: false, address } => {
                [&[next, 2, 0, 1, 1, 0, 201, 16], &address[..]].concat()
            }
            Extension::Home { padded: true, address } => {
                let padding = [1, 4, 0, 0, 0, 0];
                [&[next, 3], &padding[..], &[201, 16], &address[..], &padding[..]].concat()
            }
            Extension::Route(kind, address) => {
                [&[next, 2, *kind, 1, 0, 0, 0, 0], &address[..]].concat()
            }
        }
    }
}

/// Microsoft's definition, bit by bit.
pub fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], place: usize| bytes[place / 8] >> (7 - place % 8) & 1;
    let window =
        |place: usize| (0..32).fold(0, |all, at| all << 1 | u32::from(bit(key, place + at)));
    let set = (0..input.len() * 8).filter(|place| bit(input, *place) == 1);
    set.fold(0, |hash, place| hash ^ window(place))
}

pub fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![
        Just(Extension::Options),
        any::<(bool, [u8; 16])>().prop_map(|(padded, address)| Extension::Home { padded, address }),
        (0..4u8, any::<[u8; 16]>()).prop_map(|(kind, address)| Extension::Route(kind, address)),
    ]
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let transport = prop_oneof![Just(TCP), Just(UDP), Just(1u8), Just(47), Just(50)];
    let rest = (vec(extension(), 0..4), prop::bool::weighted(0.2), transport, any::<[u8; 4]>());
    let addresses = any::<([u8; 16], [u8; 16])>();
    (0..3usize, any::<bool>(), addresses, rest).prop_map(
        |(tags, v6, (source, destination), (chain, fragment, transport, ports))| Packet {
            tags,
            v6,
            source,
            destination,
            chain,
            fragment,
            transport,
            ports,
        },
    )
}

/// A station at port 0 and a guest of `queues` pairs at port 1.
pub struct Scene {
    pub bench: Bench,
    pub guest: PortId,
    pub live: Arc<Capabilities>,
    queues: usize,
}

impl Scene {
    pub fn new(queues: u16, settings: PortSettings) -> Scene {
        let mut bench = Bench::new(&[(PortSettings { mac: Some(PEER), ..trunk(0, &[VLAN]) }, ALL)]);
        let settings = PortSettings { mac: Some(GUEST), ..settings };
        let (guest, live) = bench.add_queues(settings, ALL, queues);
        Scene { bench, guest, live, queues: queues.into() }
    }

    /// Sends a packet from the station to the guest. Returns the queue by which it arrives.
    pub fn receives(&mut self, packet: &Packet) -> usize {
        self.bench.send(0, &[memory_frame(packet.frame(PEER, GUEST))]);
        let by: Vec<usize> = (0..self.queues)
            .flat_map(|queue| vec![queue; self.bench.received(1 + queue).len()])
            .collect();
        assert_eq!(by.len(), 1, "{packet:?} came by {by:?}");
        by[0]
    }
}

pub fn memory_frame(bytes: Vec<u8>) -> MemoryFrame {
    MemoryFrame { vnet: VnetHeader::default(), bytes }
}
