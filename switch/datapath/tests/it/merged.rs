//! Trains as the kernel hands them over. What is right is what was on the wire before it was
//! merged: each test writes the segments, with a builder and checksums of its own, lets them be
//! merged as GRO does, and compares what leaves a port that takes no trains with the segments, byte
//! for byte.

use crate::common::{ALL, Bench, drops, plain};
use datapath::{DropReason, PortSettings};
use ports::Offloads;
use ports::memory::MemoryFrame;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Kind, Traits};

const NONE: Offloads = Offloads::empty();

/// A header around a transport.
#[derive(Clone, Debug)]
enum Around {
    Ip4,
    Ip6,
    /// Port, and whether there is a checksum.
    Udp(u16, bool),
    /// Whether there are a checksum and a key.
    Gre(bool, bool),
    /// An Ethernet header inside a tunnel.
    Ethernet,
    Mpls,
    Pppoe,
    /// VXLAN, Geneve with its options, or anything else before what it carries.
    Bytes(Vec<u8>),
}

use Around::{Bytes, Ethernet, Gre, Ip4, Ip6, Mpls, Pppoe, Udp};

/// Sum of RFC 1071, from its definition.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2);
    let total: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from))
        .fold(start, |sum, word| {
            let sum = sum + word;
            (sum >> 16) + (sum & 0xffff)
        });
    (total >> 16) + (total & 0xffff)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// The addresses of every IP header of these tests.
fn addresses(v6: bool) -> Vec<u8> {
    if v6 { [[0xfd; 16], [0xfe; 16]].concat() } else { vec![10, 0, 0, 1, 10, 0, 0, 2] }
}

fn pseudo(v6: bool, protocol: u8, len: usize) -> u32 {
    let len = sum(&(len as u32).to_be_bytes(), u32::from(protocol));
    sum(&addresses(v6), len)
}

/// One train, from the outside in: headers, then the transport.
#[derive(Clone, Debug)]
struct Train {
    around: Vec<Around>,
    udp: bool,
    options: usize,
    payload: Vec<u8>,
    size: usize,
}

/// How the checksum of the transport stands in a frame.
#[derive(Clone, Copy, PartialEq)]
enum Sums {
    Right,
    /// Only the pseudo-header's, as in a merged frame.
    Begun,
}

impl Train {
    fn v6(&self) -> bool {
        matches!(self.around.iter().rev().find(|it| matches!(it, Ip4 | Ip6)), Some(Ip6))
    }

    fn transport_len(&self) -> usize {
        if self.udp { 8 } else { 20 + self.options }
    }

    /// Returns the transport of the segment at these bytes of payload.
    fn transport(&self, from: usize, payload: &[u8], sums: Sums) -> Vec<u8> {
        let last = from + payload.len() == self.payload.len();
        let mut bytes = vec![0; self.transport_len()];
        put(&mut bytes, 0, 1000);
        put(&mut bytes, 2, 2000);
        let field = if self.udp { 6 } else { 16 };
        if self.udp {
            put(&mut bytes, 4, (8 + payload.len()) as u32);
        } else {
            bytes[4..8].copy_from_slice(&(7 + from as u32).to_be_bytes());
            bytes[12] = ((5 + self.options / 4) << 4) as u8;
            bytes[13] = if last { 0x18 } else { 0x10 };
            bytes[20..].fill(1);
        }
        bytes.extend(payload);
        let protocol = if self.udp { 17 } else { 6 };
        let begun = pseudo(self.v6(), protocol, bytes.len());
        let value = match sums {
            Sums::Begun => begun,
            Sums::Right => match !sum(&bytes, begun) & 0xffff {
                0 if self.udp => 0xffff,
                value => value,
            },
        };
        put(&mut bytes, field, value);
        bytes
    }

    /// Returns the frame of some payload, the `number`th segment and those behind it.
    #[allow(clippy::too_many_lines, reason = "a table of headers")]
    fn frame(&self, number: usize, payload: &[u8], sums: Sums) -> Vec<u8> {
        let mut bytes = self.transport(number * self.size, payload, sums);
        let (mut protocol, mut kind) = (if self.udp { 17 } else { 6 }, 0u16);
        for (place, around) in self.around.iter().enumerate().rev() {
            let len = bytes.len();
            let (header, as_protocol, as_kind) = match around {
                Ip4 => {
                    let total = if len + 20 > 0xffff { 0 } else { len + 20 };
                    let mut ip = vec![0x45, 0, 0, 0, 0x12, 0, 0x40, 0, 64, protocol, 0, 0];
                    put(&mut ip, 2, total as u32);
                    put(&mut ip, 4, 0x1200 + number as u32);
                    ip.extend(addresses(false));
                    let checksum = !sum(&ip, 0);
                    put(&mut ip, 10, checksum);
                    (ip, 4, 0x0800)
                }
                Ip6 => {
                    let mut ip = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
                    put(&mut ip, 4, if len > 0xffff { 0 } else { len as u32 });
                    ip.extend(addresses(true));
                    (ip, 41, 0x86dd)
                }
                Udp(port, has_checksum) => {
                    let mut udp = vec![0x30, 0x39, 0, 0, 0, 0, 0, 0];
                    put(&mut udp, 2, u32::from(*port));
                    put(&mut udp, 4, (len + 8) as u32);
                    if *has_checksum && sums == Sums::Begun {
                        put(&mut udp, 6, 0x1234);
                    } else if *has_checksum {
                        let v6 = matches!(self.around[place - 1], Ip6);
                        let all = [&udp[..], &bytes].concat();
                        let checksum = !sum(&all, pseudo(v6, 17, len + 8)) & 0xffff;
                        put(&mut udp, 6, if checksum == 0 { 0xffff } else { checksum });
                    }
                    (udp, 17, 0)
                }
                Gre(has_checksum, has_key) => {
                    let flags = u8::from(*has_checksum) << 7 | u8::from(*has_key) << 5;
                    let mut gre = vec![flags, 0, (kind >> 8) as u8, kind as u8];
                    gre.extend([0; 4].iter().filter(|_| *has_checksum));
                    gre.extend([0, 0, 0, 9].iter().filter(|_| *has_key));
                    if *has_checksum && sums == Sums::Right {
                        let checksum = !sum(&[&gre[..], &bytes].concat(), 0);
                        put(&mut gre, 4, checksum);
                    }
                    (gre, 47, 0)
                }
                Ethernet => {
                    let inner = [&[4; 12][..], &kind.to_be_bytes()].concat();
                    (inner, 0, 0x6558)
                }
                Mpls => (vec![0, 1, 0, 64, 0, 2, 1, 64], 137, 0x8847),
                Pppoe => {
                    let inside = if kind == 0x0800 { 0x21 } else { 0x57 };
                    let mut session = vec![0x11, 0, 0, 1, 0, 0, 0, inside];
                    put(&mut session, 4, (len + 2) as u32);
                    (session, 0, 0x8864)
                }
                Bytes(bytes) => {
                    let mut bytes = bytes.clone();
                    if bytes.starts_with(b"geneve") {
                        let units = (bytes.len() - 8) / 4;
                        bytes[..8].copy_from_slice(&[units as u8, 0, 0x65, 0x58, 0, 0, 7, 0]);
                    }
                    (bytes, 17, 0)
                }
            };
            bytes.splice(0..0, header);
            (protocol, kind) = (as_protocol, as_kind);
        }
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind.to_be_bytes(), &bytes].concat()
    }

    /// Returns what was on the wire.
    fn segments(&self) -> Vec<Vec<u8>> {
        let chunks = self.payload.chunks(self.size).enumerate();
        chunks.map(|(number, chunk)| self.frame(number, chunk, Sums::Right)).collect()
    }

    /// Returns the header that the kernel writes for the train, with the checksum to be finished.
    fn vnet(&self, frame: &[u8]) -> VnetHeader {
        let mut vnet = VnetHeader::default();
        let l4 = frame.len() - self.payload.len() - self.transport_len();
        vnet.set_flags(Flags::NEEDS_CSUM);
        vnet.csum_start.set(l4 as u16);
        vnet.csum_offset.set(if self.udp { 6 } else { 16 });
        vnet.hdr_len.set((l4 + self.transport_len()) as u16);
        let tcp = if self.v6() { GsoType::Tcp6 } else { GsoType::Tcp4 };
        vnet.set_gso(if self.udp { GsoType::UdpL4 } else { tcp }, false);
        vnet.gso_size.set(self.size as u16);
        vnet
    }

    /// Returns the train as GRO makes it.
    fn merged(&self) -> MemoryFrame {
        let bytes = self.frame(0, &self.payload, Sums::Begun);
        MemoryFrame { vnet: self.vnet(&bytes), bytes }
    }

    /// Returns the train as `rx-gro-list` and LRO make it: checked, and with the first segment's
    /// checksum.
    fn listed(&self) -> MemoryFrame {
        let MemoryFrame { mut vnet, mut bytes } = self.merged();
        let at = usize::from(vnet.csum_start.get() + vnet.csum_offset.get());
        let first = self.payload.chunks(self.size).next().unwrap();
        let first = self.frame(0, first, Sums::Right);
        bytes[at..at + 2].copy_from_slice(&first[at..at + 2]);
        vnet.set_flags(Flags::DATA_VALID);
        (vnet.csum_start, vnet.csum_offset) = Default::default();
        MemoryFrame { vnet, bytes }
    }
}

/// A kernel's port that sends, a port that takes everything, one that takes nothing.
fn bench(mtu: u16) -> Bench {
    let settings = || PortSettings { mtu, ..plain() };
    let mut bench = Bench::new(&[]);
    bench.add_kernel(settings(), ALL, 128);
    bench.add(settings(), ALL);
    bench.add(settings(), NONE);
    bench
}

/// Finishes an unfinished checksum, as a receiver does.
fn finished(frame: MemoryFrame) -> Vec<u8> {
    let MemoryFrame { vnet, mut bytes } = frame;
    if vnet.flags().contains(Flags::NEEDS_CSUM) {
        let start = usize::from(vnet.csum_start.get());
        let offset = usize::from(vnet.csum_offset.get());
        let checksum = match !sum(&bytes[start..], 0) & 0xffff {
            0 if offset == 6 => 0xffff,
            checksum => checksum,
        };
        put(&mut bytes, start + offset, checksum);
    }
    bytes
}

fn bytes(frames: Vec<MemoryFrame>) -> Vec<Vec<u8>> {
    frames.into_iter().map(finished).collect()
}

fn vxlan() -> Around {
    Bytes(vec![8, 0, 0, 0, 0, 0, 7, 0])
}

fn geneve(options: usize) -> Around {
    let mut bytes = b"geneve00".to_vec();
    bytes.resize(8 + options, 1);
    Bytes(bytes)
}

/// Tunnels around an IP header, each with its name.
fn tunnels() -> Vec<(&'static str, Vec<Around>)> {
    vec![
        ("IP in IPv4", vec![Ip4]),
        ("IP in IPv6", vec![Ip6]),
        ("VXLAN", vec![Ip4, Udp(4789, false), vxlan(), Ethernet]),
        ("VXLAN with a checksum", vec![Ip6, Udp(8472, true), vxlan(), Ethernet]),
        ("Geneve", vec![Ip4, Udp(6081, true), geneve(0), Ethernet]),
        ("Geneve with most options", vec![Ip6, Udp(6081, true), geneve(252), Ethernet]),
        ("GRE", vec![Ip4, Gre(false, false)]),
        ("GRE with checksum and key", vec![Ip6, Gre(true, true)]),
        ("Ethernet in GRE", vec![Ip4, Gre(true, false), Ethernet]),
        ("MPLS", vec![Mpls]),
        ("MPLS in GRE", vec![Ip4, Gre(false, true), Mpls]),
        ("PPPoE", vec![Pppoe]),
        ("FOU, which says nothing of what it carries", vec![Ip4, Udp(5555, true)]),
        ("GUE", vec![Ip6, Udp(6080, true), Bytes(vec![0, 4, 0, 0])]),
        ("VXLAN in IP in IP", vec![Ip4, Ip6, Udp(4789, true), vxlan(), Ethernet]),
    ]
}

/// The network header inside, and the transport.
fn insides() -> impl Iterator<Item = (Around, bool)> {
    [(Ip4, false), (Ip6, false), (Ip4, true), (Ip6, true)].into_iter()
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_train_in_a_tunnel_leaves_as_the_segments_that_it_was_merged_from() {
    for (name, tunnel) in tunnels() {
        for (inside, udp) in insides() {
            let around = [tunnel.clone(), vec![inside]].concat();
            let train = Train { around, udp, options: 12, payload: payload(4011), size: 900 };
            let mut bench = bench(1500);
            bench.send(0, &[train.merged()]);
            let expected = train.segments();
            for port in [1, 2] {
                let seen = bytes(bench.received(port));
                assert_eq!(seen.len(), expected.len(), "{name}, UDP: {udp}, port {port}");
                for (number, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                    assert_eq!(seen, expected, "{name}, UDP: {udp}, port {port}, {number}");
                }
            }
        }
    }
}

#[test]
fn a_train_without_an_unfinished_checksum_is_found_by_reading() {
    let known = tunnels().into_iter().filter(|(name, _)| !name.contains("FOU") && *name != "GUE");
    for (name, tunnel) in known.chain([("no tunnel", vec![])]) {
        for (inside, udp) in insides() {
            // A datagram merged in a tunnel is one of the outer UDP, if there is that.
            if udp && tunnel.iter().any(|around| matches!(around, Udp(..))) {
                continue;
            }
            let around = [tunnel.clone(), vec![inside]].concat();
            let train = Train { around, udp, options: 0, payload: payload(3000), size: 1000 };
            let mut bench = bench(1500);
            bench.send(0, &[train.listed()]);
            assert_eq!(bytes(bench.received(2)), train.segments(), "{name}, UDP: {udp}");
        }
    }
}

#[test]
fn a_train_of_no_tunnel_passes_whole_to_a_port_that_takes_it() {
    for (inside, udp) in insides() {
        let train =
            Train { around: vec![inside], udp, options: 12, payload: payload(5000), size: 1200 };
        for sent in [train.merged(), train.listed()] {
            let mut bench = bench(1500);
            bench.send(0, &[sent]);
            let [whole] = <[MemoryFrame; 1]>::try_from(bench.received(1)).unwrap();
            let merged = train.merged();
            assert_eq!((whole.vnet.gso(), whole.bytes), (merged.vnet.gso(), merged.bytes));
            assert_eq!(whole.vnet.csum_start, merged.vnet.csum_start);
            assert_eq!(bytes(bench.received(2)), train.segments());
        }
    }
}

/// Segments trains that came out of a port, by the tests' own rules: concatenates their payload.
fn stream(frames: &[MemoryFrame], header: usize) -> Vec<u8> {
    frames.iter().flat_map(|frame| frame.bytes[header..].to_vec()).collect()
}

#[test]
fn a_train_beyond_64_kib_is_cut_into_what_the_port_takes() {
    for (inside, jumbo) in [(Ip4, false), (Ip6, false), (Ip6, true)] {
        let around = vec![inside];
        let train =
            Train { around, udp: false, options: 12, payload: payload(300_000), size: 1400 };
        let mut sent = train.merged();
        if jumbo {
            let length = (train.payload.len() + 32 + 8) as u32;
            let [a, b, c, d] = length.to_be_bytes();
            sent.bytes[20] = 0;
            sent.bytes.splice(54..54, [6, 0, 0xc2, 4, a, b, c, d]);
            sent.vnet.csum_start += 8;
            sent.vnet.hdr_len += 8;
        }
        let mut bench = bench(1500);
        bench.send(0, &[sent]);
        let trains = bench.received(1);
        let header = if train.v6() { 86 } else { 66 };
        assert!(trains.len() >= 5 && trains.iter().all(|it| it.bytes.len() <= 65_549));
        assert_eq!(stream(&trains, header), train.payload);
        let mut at = 0;
        for it in &trains {
            let payload = &it.bytes[header..];
            let expected = train.frame(at / 1400, payload, Sums::Begun);
            assert_eq!(it.vnet.gso_size.get(), 1400);
            // Flags are those of the last segment in the last train only.
            assert_eq!(it.bytes, expected);
            at += payload.len();
        }
        assert_eq!(bytes(bench.received(2)), train.segments());
    }
}

#[test]
fn a_udp_train_longer_than_a_kernel_takes_is_cut_into_trains_that_it_takes() {
    for (most, counts) in [(128, vec![128, 128, 44]), (64, vec![64, 64, 64, 64, 44])] {
        for v6 in [false, true] {
            let around = vec![if v6 { Ip6 } else { Ip4 }];
            let train =
                Train { around, udp: true, options: 0, payload: payload(29_990), size: 100 };
            let mut bench = Bench::new(&[(plain(), ALL)]);
            bench.add_kernel(plain(), ALL, most);
            bench.send(0, &[train.merged()]);
            let seen = bench.received(1);
            let header = if v6 { 62 } else { 42 };
            let count = |frame: &MemoryFrame| (frame.bytes.len() - header).div_ceil(100);
            assert_eq!(seen.iter().map(count).collect::<Vec<_>>(), counts);
            let mut number = 0;
            for frame in seen {
                let expected = train.frame(number, &frame.bytes[header..], Sums::Begun);
                number += count(&frame);
                assert_eq!(frame.bytes, expected);
                assert_eq!(frame.vnet.gso(), GsoType::UdpL4);
            }
        }
    }
}

#[test]
fn segments_as_small_as_the_kernel_makes_them_pass_and_a_guests_do_not() {
    for (udp, size, len) in
        [(false, 8, 16_000), (false, 47, 60_000), (true, 1, 128), (true, 8, 800)]
    {
        let train = Train { around: vec![Ip4], udp, options: 0, payload: payload(len), size };
        let mut kernel = bench(1500);
        kernel.send(0, &[train.merged()]);
        assert_eq!(kernel.received(1).len(), 1, "{size} B");
        assert_eq!(bytes(kernel.received(2)), train.segments(), "{size} B");
        let mut guest = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
        guest.send(0, &[train.merged()]);
        let few = if udp { 128 } else { 42 };
        let refused = u64::from(len.div_ceil(size) > few);
        assert_eq!(drops(&guest, 0, DropReason::BadOffload), refused, "{size} B");
    }
    let train =
        Train { around: vec![Ip4], udp: false, options: 0, payload: payload(2000), size: 7 };
    let mut kernel = bench(1500);
    kernel.send(0, &[train.merged()]);
    assert_eq!(drops(&kernel, 0, DropReason::BadOffload), 1);
}

#[test]
fn a_train_that_the_switch_cannot_read_is_counted_and_a_guests_is_not_believed() {
    let unknown = [Ip4, Udp(5555, false), Ip4].to_vec();
    let train =
        Train { around: unknown, udp: false, options: 0, payload: payload(3000), size: 1000 };
    let mut bench = bench(1500);
    let mut old = train.merged();
    old.vnet.set_gso(GsoType::Unknown(3), false);
    bench.send(0, &[train.listed(), old]);
    assert_eq!(drops(&bench, 0, DropReason::UnknownTrain), 2);
    assert!(bench.received(1).is_empty());
    for (_, tunnel) in tunnels() {
        let around = [tunnel, vec![Ip4]].concat();
        let train = Train { around, udp: false, options: 0, payload: payload(3000), size: 1000 };
        let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
        bench.send(0, &[train.merged()]);
        assert_eq!(drops(&bench, 0, DropReason::BadOffload), 1);
    }
}

/// CRC-32C, from its definition.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    });
    (!crc).to_le_bytes()
}

#[test]
fn an_unfinished_checksum_of_sctp_is_finished_where_it_enters() {
    let sctp = [&[0x13, 0x88, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 0][..], &payload(301)].concat();
    let whole = [&sctp[..8], &crc32c(&sctp), &sctp[12..]].concat();
    let all = tunnels().into_iter().chain([("no tunnel", vec![])]);
    for ((name, tunnel), v6) in all.flat_map(|it| [(it.clone(), false), (it, true)]) {
        let inside = if v6 { Ip6 } else { Ip4 };
        let around = [tunnel, vec![inside]].concat();
        // UDP's and GRE's checksums must be right for what is inside: a train of one datagram is
        // built, and SCTP put in the place of its transport.
        let carrier = |inside: &[u8]| {
            let train = Train {
                around: around.clone(),
                udp: true,
                options: 0,
                payload: inside[8..].to_vec(),
                size: 9000,
            };
            (train.frame(0, &inside[8..], Sums::Right), train)
        };
        let (frame, train) = carrier(&sctp);
        let start = frame.len() - sctp.len();
        let mut sent = frame;
        sent[start..].copy_from_slice(&sctp);
        let protocol = if v6 { start - 40 + 6 } else { start - 20 + 9 };
        sent[protocol] = 132;
        if !v6 {
            sent[start - 10..start - 8].fill(0);
            let checksum = !sum(&sent[start - 20..start], 0);
            put(&mut sent, start - 10, checksum);
        }
        let mut expected = sent.clone();
        expected[start..].copy_from_slice(&whole);
        fix_sums(&mut expected, &train);
        let mut vnet = VnetHeader::default();
        vnet.set_flags(Flags::NEEDS_CSUM);
        vnet.csum_start.set(start as u16);
        vnet.csum_offset.set(8);
        let mut bench = bench(1500);
        bench.send(0, &[MemoryFrame { vnet, bytes: sent }]);
        for port in [1, 2] {
            let [seen] = <[MemoryFrame; 1]>::try_from(bench.received(port)).unwrap();
            assert!(!seen.vnet.flags().contains(Flags::NEEDS_CSUM), "{name}");
            assert_eq!(seen.bytes, expected, "{name}, IPv6: {v6}, port {port}");
        }
    }
}

/// Computes the checksums of a frame's tunnel headers anew, by the places that its train has them.
fn fix_sums(frame: &mut [u8], train: &Train) {
    let mut at = 14;
    let mut places = Vec::new();
    for around in &train.around {
        places.push(at);
        at += match around {
            Ip4 => 20,
            Ip6 => 40,
            Udp(..) | Mpls | Pppoe => 8,
            Gre(checksum, key) => 4 + 4 * (usize::from(*checksum) + usize::from(*key)),
            Ethernet => 14,
            Bytes(bytes) => bytes.len(),
        };
    }
    for (place, around) in train.around.iter().enumerate().rev() {
        let at = places[place];
        match around {
            Udp(_, true) => {
                put(frame, at + 6, 0);
                let v6 = matches!(train.around[place - 1], Ip6);
                let checksum = !sum(&frame[at..], pseudo(v6, 17, frame.len() - at)) & 0xffff;
                put(frame, at + 6, if checksum == 0 { 0xffff } else { checksum });
            }
            Gre(true, _) => {
                put(frame, at + 4, 0);
                let checksum = !sum(&frame[at..], 0);
                put(frame, at + 4, checksum);
            }
            _ => {}
        }
    }
}

#[test]
fn segmentation_of_a_train_ends_where_the_turn_reaches_its_limit_of_work() {
    let train =
        Train { around: vec![Ip4], udp: false, options: 0, payload: payload(500_000), size: 8 };
    let mut bench = bench(1500);
    bench.send(0, &[train.merged()]);
    let to = bench.switch.counters(bench.ids[2]).unwrap();
    assert!((15_000..40_000).contains(&to.segments), "{} of 62,500", to.segments);
    assert_eq!((to.segmented_trains, to.drops[DropReason::WorkLimit as usize]), (0, 1));
}

/// A train whose headers take long to write: 440 bytes, and three checksums.
fn deep(len: usize) -> Train {
    let tunnel = [Ip6, Udp(6081, true), geneve(252), Ethernet, Ip4, Gre(true, true), Ip4];
    let around = [&tunnel[..], &[Gre(true, true), Ip4]].concat();
    Train { around, udp: false, options: 0, payload: payload(len), size: 8 }
}

#[test]
fn segments_in_a_tunnel_pay_for_their_headers_and_none_is_made_beyond_the_limit_of_work() {
    let sent = |frames: &[MemoryFrame]| {
        let mut bench = Bench::new(&[]);
        bench.add_kernel(plain(), ALL, 128);
        bench.add(plain(), NONE);
        bench.send(0, frames);
        bench.switch.counters(bench.ids[1]).unwrap()
    };
    let to = sent(&[deep(200_000).merged()]);
    assert!((2000..9000).contains(&to.segments), "{} of 25,000", to.segments);
    // Nor to finish a train that is as short as a guest's.
    let to = sent(&vec![deep(8 * 1300).merged(); 12]);
    assert!((2000..9000).contains(&to.segments), "{}", to.segments);
    assert_ne!(to.segments % 1300, 0);
    assert_eq!(to.segmented_trains + to.drops[DropReason::WorkLimit as usize], 12);
}

#[test]
fn a_checksum_of_sctp_is_paid_for() {
    let sctp =
        Train { around: vec![Ip4], udp: true, options: 0, payload: payload(60_000), size: 65_535 };
    let MemoryFrame { bytes: mut frame, .. } = sctp.merged();
    frame[14 + 9] = 132;
    let taken = |claim: bool| {
        let mut vnet = VnetHeader::default();
        if claim {
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(34);
            vnet.csum_offset.set(8);
        }
        let mut bench = bench(65_535);
        let burst = vec![MemoryFrame { vnet, bytes: frame.clone() }; 8];
        bench.send(0, &burst);
        assert_eq!(bench.received(1).len(), 8);
        bench.send(0, &burst);
        bench.received(1).len()
    };
    assert_eq!(taken(false), 8);
    // Dear frames come in short bursts.
    assert!(taken(true) < 8);
}

#[test]
fn datagrams_to_a_tunnels_port_are_not_cut_unless_the_header_says_whose_they_are() {
    for (port, front) in
        [(4789, vxlan()), (8472, vxlan()), (6081, geneve(8)), (6635, Bytes(vec![0, 1, 1, 64]))]
    {
        let mut around = vec![Ip4, Udp(port, false), front, Ethernet, Ip4];
        if port == 6635 {
            around.remove(3);
        }
        let train = Train { around, udp: true, options: 0, payload: payload(3000), size: 1000 };
        let mut bench = bench(1500);
        bench.send(0, &[train.listed()]);
        assert_eq!(drops(&bench, 0, DropReason::UnknownTrain), 1, "{port}");
        bench.send(0, &[train.merged()]);
        assert_eq!(bytes(bench.received(2)), train.segments(), "{port}");
    }
}

#[test]
fn every_packet_of_a_train_in_a_tunnel_ends_where_the_frame_ends() {
    let vxlan = vec![Ip4, Udp(4789, false), vxlan(), Ethernet];
    for (tunnel, len) in [
        (vec![Ip4], 4000),
        (vec![Ip4, Ip4], 4000),
        (vxlan.clone(), 4000),
        (vec![Ip4], 300_000),
        (vxlan, 300_000),
    ] {
        let around = [tunnel, vec![Ip4]].concat();
        let train = Train { around, udp: false, options: 0, payload: payload(len), size: 1400 };
        let sent = train.merged();
        let mut honest = bench(1500);
        honest.send(0, std::slice::from_ref(&sent));
        assert_eq!(bytes(honest.received(2)), train.segments(), "{:?}, {len}", train.around);
        let inner = usize::from(sent.vnet.csum_start.get()) - 20;
        for ip in [14, inner, if train.around.len() == 3 { 34 } else { inner }] {
            let mut short = sent.clone();
            put(&mut short.bytes, ip + 2, 1000);
            let mut bench = bench(1500);
            bench.send(0, &[short]);
            assert_eq!(drops(&bench, 0, DropReason::UnknownTrain), 1, "{:?}, {ip}", train.around);
            assert!(bench.received(2).is_empty());
        }
    }
}

#[test]
fn a_checksum_inside_lies_in_the_first_512_bytes_and_a_guests_is_never_sctps() {
    let claim = |(start, offset): (u16, u16)| {
        let train =
            Train { around: vec![Ip4], udp: true, options: 0, payload: payload(900), size: 1000 };
        let mut frame = train.merged();
        frame.vnet = VnetHeader::default();
        frame.vnet.set_flags(Flags::NEEDS_CSUM);
        frame.vnet.csum_start.set(start);
        frame.vnet.csum_offset.set(offset);
        frame
    };
    let refused = |bench: &mut Bench, place| {
        bench.send(0, &[claim(place)]);
        drops(bench, 0, DropReason::BadOffload) == 1
    };
    for (place, is_refused) in
        [((248, 6), false), ((282, 0), false), ((502, 6), false), ((503, 6), true)]
    {
        let mut guest = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
        for bench in [&mut guest, &mut bench(1500)] {
            assert_eq!(refused(bench, place), is_refused, "{place:?}");
        }
    }
    // What a guard judges in DHCP is not written, the checksum of UDP is.
    for (place, is_refused) in [((42, 0), true), ((282, 0), true), ((34, 6), false)] {
        let mut dhcp = claim(place);
        dhcp.bytes[14 + 9] = 17;
        put(&mut dhcp.bytes, 34, 68);
        put(&mut dhcp.bytes, 36, 67);
        let mut guest = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
        guest.send(0, &[dhcp]);
        assert_eq!(drops(&guest, 0, DropReason::BadOffload), u64::from(is_refused), "{place:?}");
    }
    // SCTP's is left as any other: unfinished, no byte changed.
    let mut sctp = claim((34, 8));
    sctp.bytes[14 + 9] = 132;
    let mut guest = Bench::new(&[(plain(), ALL), (plain(), ALL)]);
    guest.send(0, &[sctp.clone()]);
    let [seen] = <[MemoryFrame; 1]>::try_from(guest.received(1)).unwrap();
    assert_eq!((seen.vnet.csum_offset, &seen.bytes), (sctp.vnet.csum_offset, &sctp.bytes));
}

/// A frame with something that rules and guards judge: its name, EtherType, version and protocol of
/// IP, and the bytes that make it one, from the transport or the network header on.
type Judged = (&'static str, u16, Option<(bool, u8)>, &'static [(usize, &'static [u8])]);

const JUDGED: [Judged; 15] = [
    ("TCP over IPv4", 0x0800, Some((false, 6)), &[(12, &[0x50])]),
    ("TCP over IPv6", 0x86dd, Some((true, 6)), &[(12, &[0x50])]),
    ("SCTP over IPv4", 0x0800, Some((false, 132)), &[]),
    ("SCTP over IPv6", 0x86dd, Some((true, 132)), &[]),
    ("redirect", 0x0800, Some((false, 1)), &[(0, &[5, 0])]),
    ("neighbour advertisement", 0x86dd, Some((true, 58)), &[(0, &[136, 0])]),
    ("router advertisement", 0x86dd, Some((true, 58)), &[(0, &[134, 0])]),
    ("DHCP", 0x0800, Some((false, 17)), &[(0, &[0, 67, 0, 68, 7, 188])]),
    ("DHCPv6", 0x86dd, Some((true, 17)), &[(0, &[2, 35, 2, 34, 7, 168])]),
    ("UDP", 0x0800, Some((false, 17)), &[(0, &[1, 0, 21, 179, 7, 188])]),
    ("ARP", 0x0806, None, &[(0, &[0, 1, 8, 0, 6, 4, 0, 1])]),
    ("LLC", 0x0100, None, &[(0, &[0x42, 0x42, 3])]),
    ("SNAP", 0x0100, None, &[(0, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0])]),
    ("malformed", 0x0800, None, &[(0, &[0x45, 0, 0xff, 0xff])]),
    ("fragment", 0x0800, None, &[(0, &[0x45, 0, 7, 208, 0, 1, 0x20, 0, 64, 17])]),
];

/// Returns the frame, of 2014 bytes, with headers at `plant` that could be taken for those of a
/// packet in a tunnel.
fn planted((_, kind, ip, fixes): Judged, plant: usize, v6: bool, protocol: u8) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind.to_be_bytes()].concat();
    frame.resize(2014, 0x50);
    let room = (2014 - plant) as u16;
    let ([a, b], [c, d]) = (room.to_be_bytes(), (room - 40).to_be_bytes());
    let fake = match v6 {
        false => vec![0x45, 0, a, b, 0, 1, 0, 0, 64, protocol, 0, 0],
        true => vec![0x60, 0, 0, 0, c, d, protocol, 64],
    };
    frame[plant..plant + fake.len()].copy_from_slice(&fake);
    let start = match ip {
        None => 14,
        Some((false, protocol)) => {
            let header =
                [0x45, 0, 7, 208, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            frame[14..34].copy_from_slice(&header);
            34
        }
        Some((true, protocol)) => {
            frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 7, 168, protocol, 64]);
            54
        }
    };
    for (at, bytes) in fixes {
        frame[start + at..start + at + bytes.len()].copy_from_slice(bytes);
    }
    frame
}

/// Returns where the bytes are that were judged, and that segmentation does not own.
fn judged(frame: &[u8], is_own: bool) -> Vec<usize> {
    let parsed = wire::parse(frame, frame.len()).unwrap();
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    let mut all: Vec<_> = (0..14).collect();
    if parsed.traits.contains(Traits::IPV4) {
        all.extend((l3 + 8..l3 + 10).chain(l3 + 12..l3 + 20));
    }
    if parsed.traits.contains(Traits::IPV6) {
        all.extend(l3 + 6..l3 + 40);
    }
    match parsed.kind {
        Kind::Tcp => all.extend((l4..l4 + 4).chain(l4 + 8..l4 + 13).chain(l4 + 14..l4 + 16)),
        Kind::Udp => {
            all.extend(l4..l4 + 4);
            if !is_own && matches!(frame[l4 + 1], 67 | 35) {
                all.extend(l4 + 8..l4 + 248);
            }
        }
        Kind::OtherIp => all.extend(l4..l4 + 64),
        Kind::NotIp if parsed.ethertype == 0x0806 => all.extend(l3..l3 + 28),
        Kind::NotIp | Kind::Fragment | Kind::Malformed(_) => all.extend(l3..l3 + 60),
    }
    all
}

/// Sends such a frame with a claim of the kernel's, and returns what a port without offloads gets,
/// of which the judged bytes are those that were sent.
fn keeps_what_was_judged(bench: &mut Bench, vnet: VnetHeader, frame: &[u8]) -> usize {
    bench.send(0, &[MemoryFrame { vnet, bytes: frame.to_vec() }]);
    let begun = vnet.flags().contains(Flags::NEEDS_CSUM);
    let parsed = wire::parse(frame, frame.len()).unwrap();
    let places = judged(frame, !begun || vnet.csum_start.get() == parsed.l4);
    bench.received(1);
    let seen = bench.received(2);
    for segment in &seen {
        for at in places.iter().copied().filter(|at| *at < segment.bytes.len()) {
            assert_eq!(segment.bytes[at], frame[at], "byte {at} of {frame:02x?}, by {vnet:?}");
        }
    }
    seen.len()
}

#[test]
fn no_claim_of_the_kernels_makes_segmentation_write_what_was_judged() {
    let mut bench = bench(65_535);
    let mut cut = [0; JUDGED.len()];
    for (number, case) in JUDGED.into_iter().enumerate() {
        for (plant, (v6, udp)) in (14..130).flat_map(|plant| {
            [(false, false), (false, true), (true, false), (true, true)].map(|it| (plant, it))
        }) {
            let frame = planted(case, plant, v6, if udp { 17 } else { 6 });
            let mut vnet = VnetHeader::default();
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(plant as u16 + if v6 { 40 } else { 20 });
            vnet.csum_offset.set(if udp { 6 } else { 16 });
            let tcp = if v6 { GsoType::Tcp6 } else { GsoType::Tcp4 };
            vnet.set_gso(if udp { GsoType::UdpL4 } else { tcp }, false);
            vnet.gso_size.set(500);
            cut[number] += usize::from(keeps_what_was_judged(&mut bench, vnet, &frame) > 1);
        }
    }
    // What may be a tunnel is one: the test's claims are those that are believed.
    for ((name, ..), cut) in JUDGED.iter().zip(cut) {
        assert_eq!(cut > 200, *name == "UDP", "{name}: {cut}");
    }
}

fn any_around() -> impl Strategy<Value = Around> {
    prop_oneof![
        4 => Just(Ip4),
        4 => Just(Ip6),
        2 => (prop::sample::select(vec![4789u16, 8472, 6081, 6635, 5555]), any::<bool>())
            .prop_map(|(port, checksum)| Udp(port, checksum)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(checksum, key)| Gre(checksum, key)),
        1 => Just(Ethernet),
        1 => Just(Mpls),
        1 => Just(Pppoe),
        1 => Just(vxlan()),
        1 => (0..64usize).prop_map(|words| geneve(4 * words)),
        1 => vec(any::<u8>(), 0..40).prop_map(Bytes),
    ]
}

proptest! {
    #[test]
    fn whatever_the_kernel_says_the_bytes_that_were_judged_are_those_that_leave(
        case in prop::sample::select(JUDGED.to_vec()),
        plant in 14..130usize,
        (v6, udp, begun) in any::<(bool, bool, bool)>(),
        start in prop_oneof![Just(20usize), Just(40), 0..300usize],
        offset in prop_oneof![4 => Just(16u16), 4 => Just(6), 1 => 0..40u16],
        gso in prop::sample::select(vec![GsoType::Tcp4, GsoType::Tcp6, GsoType::UdpL4]),
        size in 1..2000u16,
    ) {
        let frame = planted(case, plant, v6, if udp { 17 } else { 6 });
        let mut vnet = VnetHeader::default();
        vnet.set_flags(if begun { Flags::NEEDS_CSUM } else { Flags::DATA_VALID });
        vnet.csum_start.set((plant + start) as u16);
        vnet.csum_offset.set(offset);
        vnet.set_gso(gso, false);
        vnet.gso_size.set(size);
        keeps_what_was_judged(&mut bench(65_535), vnet, &frame);
    }

    /// A header may say anything: a container's user writes it (PACKET_VNET_HDR), and a TAP device's
    /// guest.
    #[test]
    fn whatever_the_kernel_says_no_more_leaves_than_came_and_nothing_panics(
        mut around in vec(any_around(), 0..9),
        udp: bool,
        listed: bool,
        len in prop_oneof![4 => 1..9000usize, 1 => 60_000..200_000usize],
        size in prop_oneof![1..60usize, 500..9000usize, Just(65_535usize)],
        edits in vec((0..10usize, any::<u8>()), 0..4),
        damage in vec((12..600usize, any::<u8>()), 0..4),
        cut in prop_oneof![4 => Just(None), 1 => (14..500usize).prop_map(Some)],
    ) {
        // The builder needs an IP header around UDP, and one at the last.
        around.push(if udp { Ip4 } else { Ip6 });
        around.insert(0, Ip4);
        let train = Train { around, udp, options: 12, payload: payload(len), size };
        let MemoryFrame { vnet, mut bytes } = if listed { train.listed() } else { train.merged() };
        let mut vnet = vnet.encode();
        edits.iter().for_each(|(at, value)| vnet[*at] = *value);
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let mut bench = bench(65_535);
        bench.send(0, &[MemoryFrame { vnet: VnetHeader::decode(vnet), bytes: bytes.clone() }]);
        let entered: u64 = [DropReason::BadOffload, DropReason::UnknownTrain, DropReason::Runt]
            .map(|reason| drops(&bench, 0, reason)).iter().sum();
        for port in [1, 2] {
            let seen = bench.received(port);
            prop_assert!(entered == 0 || seen.is_empty());
            prop_assert!(seen.iter().all(|frame| frame.bytes.len() <= bytes.len()));
            prop_assert!(seen.iter().all(|frame| frame.bytes.len() <= 65_535 + 22));
            // Each frame has headers of its own: 600 bytes at most, and payload that came.
            let out: usize = seen.iter().map(|frame| frame.bytes.len()).sum();
            prop_assert!(out <= bytes.len() + 600 * seen.len());
            let whole = |frame: &&MemoryFrame| frame.vnet.gso() != GsoType::None;
            prop_assert!(port == 1 || !seen.iter().any(|frame| whole(&frame)));
            for train in seen.iter().filter(whole) {
                let headers = usize::from(train.vnet.hdr_len.get());
                let place = train.vnet.csum_start.get() + train.vnet.csum_offset.get() + 2;
                prop_assert!(usize::from(place) <= headers && headers <= train.bytes.len());
            }
        }
    }
}
