//! What a hostile guest may claim about its frames: whatever the claim, nothing but a transport
//! checksum changes, every checksum comes out right, and no train is more work than is written
//! down.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, plain};
use datapath::{DropReason, PortSettings, Vlan};
use ports::Offloads;
use ports::memory::MemoryFrame;
use proptest::prelude::*;
use smoltcp::wire::{IpAddress, TcpPacket, UdpPacket};
use std::net::IpAddr;
use wire::checksum::Sum;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Kind, Parsed, Traits, parse};

const VLAN: u16 = 10;
const NONE: Offloads = Offloads::empty();

/// Port 0 sends, untagged. It reaches each kind of way out: as it is, tagged, and both with nothing
/// left to the receiver.
fn victims(mtu: u16) -> Bench {
    let allowed = [VLAN].into_iter().collect();
    let access = PortSettings { vlan: Vlan::Access(VLAN), mtu, ..plain() };
    let trunk = PortSettings { vlan: Vlan::Trunk { native: 1, allowed }, mtu, ..plain() };
    let ports = [&access, &access, &trunk, &access, &trunk].map(Clone::clone);
    Bench::new(&ports.into_iter().zip([ALL, ALL, ALL, NONE, NONE]).collect::<Vec<_>>())
}

fn bad_offloads(bench: &Bench) -> u64 {
    bench.switch.counters(bench.ids[0]).unwrap().drops[DropReason::BadOffload as usize]
}

/// Returns the only frame that came out of a port, its tag taken off.
fn untagged(bench: &Bench, port: usize) -> MemoryFrame {
    let [mut frame] = <[MemoryFrame; 1]>::try_from(bench.received(port)).unwrap();
    if frame.bytes[12..14] == [0x81, 0] {
        frame.bytes.drain(12..16);
        if frame.vnet.flags().contains(Flags::NEEDS_CSUM) {
            frame.vnet.csum_start -= 4;
        }
    }
    frame
}

fn claim(bytes: &[u8], start: u16, offset: u16) -> MemoryFrame {
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.csum_start.set(start);
    vnet.csum_offset.set(offset);
    MemoryFrame { vnet, bytes: bytes.to_vec() }
}

/// Returns an Ethernet frame of an IPv4 packet from 10.0.0.1 to 10.0.0.2.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    wire::ipv4::fill_checksum(&mut frame[14..34]);
    frame.extend(payload);
    frame
}

fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([protocol, 64]);
    for last in [1, 2] {
        frame.extend([&[0xfd; 15][..], &[last]].concat());
    }
    frame.extend(payload);
    frame
}

/// Returns a UDP datagram from port 5000 to a port, without a checksum.
fn udp(to: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp = [5000u16.to_be_bytes(), to.to_be_bytes()].concat();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    udp
}

/// Puts the sum of the pseudo header into the place of a checksum, as a guest does that leaves the
/// rest to others.
fn begin_checksum(frame: &mut [u8]) {
    let parsed = parse(frame, frame.len()).unwrap();
    let sum = wire::checksum::pseudo(frame, &parsed, parsed.end - u32::from(parsed.l4)).unwrap();
    let at = usize::from(parsed.l4) + if parsed.kind == Kind::Tcp { 16 } else { 6 };
    frame[at..at + 2].copy_from_slice(&sum.0.to_be_bytes());
}

/// Returns a TCP segment in a frame of its own, its checksum begun.
fn tcp(payload: usize, v6: bool) -> Vec<u8> {
    let segment = Segment { payload: payload as u32, v6, ..Segment::parse("1+0 .") };
    let mut frame = segment.frame().bytes;
    begin_checksum(&mut frame);
    frame
}

/// Whether smoltcp finds the transport checksum right.
fn is_right(frame: &[u8]) -> bool {
    let parsed = parse(frame, frame.len()).unwrap();
    let l3 = usize::from(parsed.l3);
    let address = |at: usize| -> IpAddress {
        if parsed.traits.contains(Traits::IPV4) {
            let bytes: [u8; 4] = frame[l3 + 12 + at * 4..][..4].try_into().unwrap();
            return IpAddr::from(bytes).into();
        }
        let bytes: [u8; 16] = frame[l3 + 8 + at * 16..][..16].try_into().unwrap();
        IpAddr::from(bytes).into()
    };
    let datagram = &frame[parsed.l4.into()..parsed.end as usize];
    match parsed.kind {
        Kind::Tcp => TcpPacket::new_unchecked(datagram).verify_checksum(&address(0), &address(1)),
        Kind::Udp => UdpPacket::new_unchecked(datagram).verify_checksum(&address(0), &address(1)),
        _ => false,
    }
}

/// Returns the frames of tunnels, with the place of the inner TCP header.
fn tunnels(payload: usize) -> Vec<(&'static str, Vec<u8>, usize)> {
    let vxlan = |inner: &[u8]| [&[8, 0, 0, 0, 0, 0, 7, 0], inner].concat();
    let (four, six) = (tcp(payload, false), tcp(payload, true));
    vec![
        ("VXLAN over IPv4", ipv4(17, &udp(4789, &vxlan(&four))), 14 + 20 + 8 + 8 + 34),
        ("VXLAN over IPv6", ipv6(17, &udp(4789, &vxlan(&six))), 14 + 40 + 8 + 8 + 54),
        ("GRE", ipv4(47, &[&[0, 0, 8, 0], &four[14..]].concat()), 14 + 20 + 4 + 20),
        ("IP in IP", ipv4(4, &four[14..]), 14 + 20 + 20),
        ("IPv6 in IPv4", ipv4(41, &six[14..]), 14 + 20 + 40),
    ]
}

#[test]
fn the_inner_checksum_of_a_tunnel_is_finished_in_frames_of_any_length() {
    for payload in [10, 100, 1000] {
        for (name, bytes, start) in tunnels(payload) {
            let mut bench = victims(1500);
            bench.send(0, &[claim(&bytes, start as u16, 16)]);
            assert_eq!(bad_offloads(&bench), 0, "{name} with {payload} bytes");
            for port in [1, 2] {
                let frame = untagged(&bench, port);
                assert_eq!(frame.bytes, bytes, "{name}");
                assert_eq!(usize::from(frame.vnet.csum_start.get()), start, "{name}");
            }
            for port in [3, 4] {
                let frame = untagged(&bench, port);
                let (v6, inner) = (name.contains("IPv6"), &frame.bytes[start..]);
                let ip = if v6 { 40 } else { 20 };
                let ethernet = [&[0; 12][..], if v6 { &[0x86, 0xdd] } else { &[8, 0] }].concat();
                let inner = [&ethernet, &frame.bytes[start - ip..start], inner].concat();
                assert!(is_right(&inner), "{name} with {payload} bytes");
                assert_eq!(frame.bytes[..start + 16], bytes[..start + 16], "{name}");
                assert_eq!(frame.bytes[start + 18..], bytes[start + 18..], "{name}");
            }
        }
    }
}

#[test]
fn a_checksum_place_in_ethernet_or_ip_header_is_refused() {
    let frame = tcp(1000, false);
    let mut bench = victims(1500);
    let places = [
        (14, 0),
        (14, 2),
        (14, 10),
        (14, 18),
        (26, 4),
        (30, 0),
        (34, 0),
        (34, 14),
        (34, 18),
        (35, 15),
        (54, 16),
    ];
    for (start, offset) in places {
        bench.send(0, &[claim(&frame, start, offset)]);
    }
    assert_eq!(bad_offloads(&bench), places.len() as u64);
    assert!((1..5).all(|port| bench.received(port).is_empty()));
}

#[test]
fn a_partial_checksum_of_a_fragment_or_a_malformed_packet_is_refused() {
    let mut fragment = tcp(1000, false);
    fragment[20] |= 0x20;
    let mut malformed = tcp(1000, false);
    malformed[46] = 0x10;
    let mut bench = victims(1500);
    bench.send(0, &[claim(&fragment, 34, 16), claim(&malformed, 34, 16)]);
    assert_eq!(bad_offloads(&bench), 2);
}

/// Generates the frames of every kind that the parser tells apart, their checksums begun.
fn kinds() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![0..60usize, 100..1200usize];
    (payload, 0..9u8).prop_map(|(payload, kind)| {
        let data = vec![0x5a; payload];
        let mut frame = match kind {
            0 => tcp(payload, false),
            1 => tcp(payload, true),
            2 => ipv4(17, &udp(53, &data)),
            3 => ipv6(17, &udp(53, &data)),
            4 => ipv4(132, &data),
            5 => tunnels(payload).swap_remove(0).1,
            6 => tunnels(payload).swap_remove(2).1,
            7 => [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &data].concat(),
            _ => Segment::parse("1+40 . ipopt").frame().bytes,
        };
        if parse(&frame, frame.len()).is_some_and(|parsed| own_field(&parsed).is_some()) {
            begin_checksum(&mut frame);
        }
        frame
    })
}

/// Returns the position at which a checksum may be written.
fn own_field(parsed: &Parsed) -> Option<usize> {
    match parsed.kind {
        Kind::Tcp => Some(usize::from(parsed.l4) + 16),
        Kind::Udp => Some(usize::from(parsed.l4) + 6),
        _ => None,
    }
}

proptest! {
    #[test]
    fn a_claim_writes_a_transport_checksum_or_nothing(
        bytes in kinds(),
        place in prop_oneof![
            3 => Just(None),
            1 => (0..1300u16, prop_oneof![0..20u16, any::<u16>()]).prop_map(Some),
            1 => (0..130u16, 0..20u16).prop_map(Some),
        ],
    ) {
        let parsed = parse(&bytes, bytes.len()).unwrap();
        let own = own_field(&parsed);
        let (start, offset) = place.unwrap_or_else(|| {
            own.map_or((14, 0), |at| (parsed.l4, at as u16 - parsed.l4))
        });
        let at = usize::from(start) + usize::from(offset);
        let mut bench = victims(1500);
        bench.send(0, &[claim(&bytes, start, offset)]);
        if bad_offloads(&bench) > 0 {
            prop_assert!(Some(at) != own || start != parsed.l4, "a good claim was refused");
            return Ok(());
        }
        let behind = start >= parsed.payload && at + 2 <= bytes.len();
        prop_assert!(behind || start == parsed.l4 && Some(at) == own);
        for port in 1..5 {
            let frame = untagged(&bench, port);
            let finished = port > 2;
            prop_assert_eq!(frame.vnet.flags().contains(Flags::NEEDS_CSUM), !finished);
            let mut expected = bytes.clone();
            if finished {
                expected[at..at + 2].copy_from_slice(&frame.bytes[at..at + 2]);
                prop_assert!(Some(at) != own || is_right(&frame.bytes));
            } else {
                prop_assert_eq!((frame.vnet.csum_start.get(), frame.vnet.csum_offset.get()), (start, offset));
            }
            prop_assert_eq!(&frame.bytes, &expected);
        }
    }

    /// Any header, as a guest may write it, in front of any kind of frame and of trains with bytes
    /// behind them.
    #[test]
    fn whatever_is_claimed_no_frame_grows_and_no_header_but_a_trains_changes(
        frame in prop_oneof![
            kinds().prop_map(|bytes| claim(&bytes, 34, 16)),
            (1..9000u32, any::<u16>()).prop_map(|(payload, gso)| {
                Segment { payload, gso, ..Segment::parse("1+0 .P") }.frame()
            }),
        ],
        edits in proptest::collection::vec((0..10usize, any::<u8>()), 0..3),
        behind in prop_oneof![2 => Just(0), 1 => 1..20_000usize],
    ) {
        let mut vnet = frame.vnet.encode();
        edits.iter().for_each(|(at, value)| vnet[*at] = *value);
        let mut bytes = frame.bytes;
        let end = bytes.len();
        bytes.resize(end + behind, 0);
        let mut bench = victims(65_535);
        bench.send(0, &[MemoryFrame { vnet: VnetHeader::decode(vnet), bytes: bytes.clone() }]);
        for port in 1..3 {
            for out in bench.received(port) {
                let tag = if port == 2 { 4 } else { 0 };
                prop_assert_eq!(out.bytes.len(), bytes.len() + tag);
                let train = out.vnet.gso() != GsoType::None;
                prop_assert!(!train || behind == 0, "a train of {} bytes more than its packet", behind);
                let size = u32::from(out.vnet.gso_size.get());
                let few = if out.vnet.gso() == GsoType::UdpL4 { 128 } else { 42 };
                prop_assert!(!train || size >= 48 || (end as u32 - 54).div_ceil(size) <= few);
            }
        }
        for port in 3..5 {
            prop_assert!(bench.received(port).len() <= 9000 / 48 + 1);
        }
    }
}

#[test]
fn a_train_with_bytes_behind_its_packet_is_refused() {
    for behind in [1, 4, 70_000, 400_000] {
        let mut bench = victims(65_535);
        let mut train = Segment::parse("1+3000 . gso=1000").frame();
        train.bytes.resize(train.bytes.len() + behind, 0);
        bench.send(0, &[train]);
        assert_eq!(bad_offloads(&bench), 1, "{behind} bytes");
        assert!((1..5).all(|port| bench.received(port).is_empty()));
    }
}

#[test]
fn a_frame_longer_than_any_packet_leaves_by_no_port() {
    let mut bench = victims(65_535);
    for mut frame in [tcp(10, false), tcp(10, true), ipv4(17, &udp(53, &[]))] {
        frame.resize(ports::Burst::LARGEST_FRAME + 1, 0);
        bench.send(
            0,
            &[claim(&frame, 60_000, 60_000), MemoryFrame { bytes: frame, ..Default::default() }],
        );
    }
    assert_eq!(bad_offloads(&bench), 3);
    assert!((1..5).all(|port| bench.received(port).is_empty()));
}

#[test]
fn a_train_of_tiny_segments_is_refused_and_a_short_one_of_messages_is_not() {
    let train =
        |payload: u32, gso: u16| Segment { payload, gso, ..Segment::parse("1+0 .") }.frame();
    let mut bench = victims(1500);
    bench.send(0, &[train(9000, 1), train(60_000, 47), train(43, 1), train(84, 2)]);
    assert_eq!(bad_offloads(&bench), 3);
    assert_eq!(bench.received(3).len(), 42);
}

/// Returns a train of three segments by way of another host: IPv6 by a routing header, IPv4 by a
/// source route. Its pseudo-header has the last destination, 10.0.0.3 or fd..03; that address's sum
/// is returned with it.
fn routed(v6: bool, udp_train: bool) -> (MemoryFrame, Sum) {
    let protocol = if udp_train { 17 } else { 6 };
    let transport = match udp_train {
        true => udp(53, &[7; 3000]),
        false => tcp(3000, false)[34..].to_vec(),
    };
    let len = transport.len() as u32;
    let (mut bytes, addresses) = if v6 {
        let last = [&[0xfd; 15][..], &[3]].concat();
        let routing = [&[protocol, 2, 0, 1, 0, 0, 0, 0][..], &last].concat();
        let bytes = ipv6(43, &[&routing[..], &transport].concat());
        (bytes, Sum::of(&[&[0xfd; 15][..], &[1], &last].concat()))
    } else {
        let mut bytes = ipv4(protocol, &[&[131, 7, 4, 10, 0, 0, 3, 0][..], &transport].concat());
        bytes[14] = 0x47;
        wire::ipv4::fill_checksum(&mut bytes[14..42]);
        (bytes, Sum::of(&[10, 0, 0, 1, 10, 0, 0, 3]))
    };
    let addresses = addresses.add_u16(protocol.into());
    let (start, offset) = (bytes.len() - transport.len(), if udp_train { 6 } else { 16 });
    let sum = addresses.add_u16(len as u16).0.to_be_bytes();
    bytes[start + offset..][..2].copy_from_slice(&sum);
    let mut train = claim(&bytes, start as u16, offset as u16);
    let kind = if v6 { GsoType::Tcp6 } else { GsoType::Tcp4 };
    train.vnet.set_gso(if udp_train { GsoType::UdpL4 } else { kind }, false);
    train.vnet.gso_size.set(1000);
    (train, addresses)
}

#[test]
fn segments_of_a_train_with_a_source_route_have_right_checksums() {
    for (v6, udp_train) in [(false, false), (false, true), (true, false), (true, true)] {
        let (train, addresses) = routed(v6, udp_train);
        let start = usize::from(train.vnet.csum_start.get());
        let mut bench = victims(1500);
        bench.send(0, &[train]);
        let segments = bench.received(3);
        assert_eq!(segments.len(), 3, "IPv6: {v6}, UDP: {udp_train}");
        for segment in segments {
            let transport = &segment.bytes[start..];
            let sum = addresses.add_u16(transport.len() as u16) + Sum::of(transport);
            assert!(sum.is_valid(), "IPv6: {v6}, UDP: {udp_train}");
        }
    }
}

/// UDP messages sent in one call.
fn messages(count: usize, len: u16) -> MemoryFrame {
    let packet = ipv4(17, &udp(53, &vec![7; count * usize::from(len)]));
    let mut train = claim(&packet, 34, 6);
    train.vnet.set_gso(GsoType::UdpL4, false);
    train.vnet.gso_size.set(len);
    train
}

#[test]
fn short_udp_messages_pass_as_many_as_linux_sends_in_one_call() {
    let mut bench = victims(1500);
    bench.send(0, &[messages(43, 10), messages(128, 10), messages(129, 10)]);
    assert_eq!(bad_offloads(&bench), 1);
    assert_eq!(bench.received(1).len(), 2);
    assert_eq!(bench.received(3).len(), 43 + 128);
}

#[test]
fn a_burst_of_the_most_udp_messages_ends_at_the_work_limit() {
    let mut bench = Bench::new(&[(plain(), ALL), (plain(), NONE)]);
    bench.send(0, &vec![messages(128, 1); 256]);
    let to = bench.switch.counters(bench.ids[1]).unwrap();
    assert!((20_000..30_100).contains(&to.segments), "{} of 32,768", to.segments);
    assert_eq!(to.drops[DropReason::WorkLimit as usize], 256 - to.segmented_trains);
}

#[test]
fn a_train_with_congestion_flags_is_an_ecn_train_whether_its_driver_says_so_or_not() {
    let no_ecn = ALL - Offloads::ECN;
    for (line, first) in [("1+3000 .C gso=1000", 0x80), ("1+3000 .E gso=1000", 0x40)] {
        let mut bench = Bench::new(&[(plain(), ALL), (plain(), ALL), (plain(), no_ecn)]);
        let mut train = Segment::parse(line).frame();
        train.vnet.set_gso(GsoType::Tcp4, false);
        bench.send(0, &[train]);
        let [whole] = <[MemoryFrame; 1]>::try_from(bench.received(1)).unwrap();
        assert!(whole.vnet.gso_ecn(), "{line}");
        let flags =
            bench.received(2).iter().map(|frame| frame.bytes[47] & 0xc0).collect::<Vec<_>>();
        let rest = first & 0x40;
        assert_eq!(flags, [first, rest, rest], "{line}: CWR is in the first only");
    }
    let mut bench = victims(1500);
    let mut train = Segment::parse("1+3000 . gso=1000").frame();
    train.vnet.set_gso(GsoType::Tcp4, true);
    bench.send(0, &[train]);
    assert!(!bench.received(1)[0].vnet.gso_ecn(), "the header has no such flag");
}
