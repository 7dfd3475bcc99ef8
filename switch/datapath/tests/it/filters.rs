//! Guards and ACLs at a switch's ports: frames made by etherparse, and a second, plain reading of
//! the rules.

use crate::common::{ALL, Bench, plain};
use datapath::{
    AclAction, AclEnd, AclProtocol, AclRule, DropReason, Guards, PortSettings, PortState, Prefix,
};
use etherparse::{IpNumber, Ipv6FragmentHeader, Ipv6RawExtHeader, PacketBuilder};
use ports::capture::Direction;
use ports::memory::MemoryFrame;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::IpAddr;
use wire::Mac;
use wire::vnet::VnetHeader;

const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 2];
const PEER: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
/// The link-local address made of [`OWN`].
const DERIVED: &str = "fe80::5054:ff:fe00:2";

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
}

/// Returns the reason why the switch drops a frame from a port with these settings; `None` if not.
fn verdict(settings: PortSettings, frame: &[u8]) -> Option<DropReason> {
    let mut bench = Bench::new(&[(settings, ALL), (all_vlans(), ALL)]);
    bench.send(0, &[MemoryFrame { vnet: VnetHeader::default(), bytes: frame.to_vec() }]);
    let drops = bench.switch.counters(bench.ids[0]).unwrap().drops;
    let reason = DropReason::ALL.iter().zip(drops).find(|(_, count)| *count > 0);
    let received = bench.received(1);
    assert_eq!(received.len(), usize::from(reason.is_none()), "{reason:?}");
    reason.map(|(reason, _)| *reason)
}

fn all_vlans() -> PortSettings {
    let vlan = datapath::Vlan::Trunk { native: 0, allowed: (0..4095).collect() };
    PortSettings { vlan, ..plain() }
}

fn guarded(guards: Guards) -> PortSettings {
    PortSettings { guards, ..all_vlans() }
}

fn udp(source: &str, destination: &str, ports: (u16, u16)) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(OWN, PEER);
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let ip = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ethernet.ipv4(a.octets(), b.octets(), 64),
        (IpAddr::V6(a), IpAddr::V6(b)) => ethernet.ipv6(a.octets(), b.octets(), 255),
        _ => panic!("two families"),
    };
    let mut frame = vec![];
    ip.udp(ports.0, ports.1).write(&mut frame, b"payload").unwrap();
    frame
}

/// Returns an IPv6 packet from and to these addresses, with a payload that starts with a header of
/// this number.
fn ipv6(source: &str, first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&PEER[..], &OWN, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([first, 255]);
    for address in [source, "ff02::1"] {
        frame.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    frame.extend(payload);
    frame
}

fn neighbour(source: &str, kind: u8, target: &str) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend(target.parse::<std::net::Ipv6Addr>().unwrap().octets());
    ipv6(source, 58, &message)
}

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let head = [&PEER[..], &OWN, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &OWN];
    [&head.concat()[..], &sender, &[0; 6], &target].concat()
}

fn icmp4(kind: u8) -> Vec<u8> {
    let mut frame = vec![];
    let ip = PacketBuilder::ethernet2(OWN, PEER).ipv4([10, 0, 0, 5], [10, 0, 0, 1], 1);
    ip.icmpv4_raw(kind, 0, [0; 4]).write(&mut frame, &[0; 8]).unwrap();
    frame
}

/// Puts tags behind the addresses.
fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

const TAGS: [&[[u8; 4]]; 4] =
    [&[], &[[0x81, 0, 0, 0]], &[[0x81, 0, 0, 7]], &[[0x81, 0, 0, 7], [0x81, 0, 0, 8]]];

/// Checks a verdict for a frame without tags, with one and with two.
fn assert_guarded(guards: &Guards, frame: &[u8], expected: Option<DropReason>) {
    for tags in TAGS {
        let frame = tagged(frame, tags);
        assert_eq!(verdict(guarded(guards.clone()), &frame), expected, "{tags:02x?} {frame:02x?}");
    }
}

fn hidden(guards: &Guards, reason: DropReason) {
    let inner = udp("10.0.0.5", "10.0.0.1", (1000, 2000));
    let three = tagged(&inner, &[[0x81, 0, 0, 7], [0x81, 0, 0, 0], [0x81, 0, 0, 0]]);
    assert_eq!(verdict(guarded(guards.clone()), &three), Some(reason), "a third tag");
    let snap = [&inner[..12], &[0, 60, 0xaa, 0xaa, 3, 0, 0, 0], &inner[12..]].concat();
    assert_eq!(verdict(guarded(guards.clone()), &snap), Some(reason), "LLC/SNAP");
    let mut length = udp("fd00::5", "fd00::1", (1000, 2000));
    length[14 + 40 + 4..][..2].fill(0);
    assert_eq!(verdict(guarded(guards.clone()), &length), Some(reason), "UDP of no length");
}

#[test]
fn dhcp_guard_drops_servers_messages_and_passes_clients() {
    let guards = Guards { dhcp: true, ..Guards::default() };
    let reason = Some(DropReason::DhcpGuard);
    assert_guarded(&guards, &udp("10.0.0.5", "255.255.255.255", (67, 68)), reason);
    assert_guarded(&guards, &udp("10.0.0.5", "255.255.255.255", (67, 67)), reason);
    assert_guarded(&guards, &udp("10.0.0.5", "255.255.255.255", (1067, 68)), reason);
    assert_guarded(&guards, &udp("fe80::1", "fe80::2", (547, 546)), reason);
    assert_guarded(&guards, &udp("fe80::1", "fe80::2", (1547, 546)), reason);
    assert_guarded(&guards, &udp("0.0.0.0", "255.255.255.255", (68, 67)), None);
    assert_guarded(&guards, &udp("fe80::1", "ff02::1:2", (546, 547)), None);
    // Each family has its own ports.
    assert_guarded(&guards, &udp("fe80::1", "fe80::2", (67, 68)), None);
    assert_guarded(&guards, &udp("10.0.0.5", "10.0.0.1", (547, 546)), None);
    hidden(&guards, DropReason::DhcpGuard);
}

#[test]
fn router_guard_drops_advertisements_and_redirects() {
    let guards = Guards { router: true, ..Guards::default() };
    for kind in 0..=255u8 {
        let reason = matches!(kind, 134 | 137).then_some(DropReason::RouterGuard);
        assert_guarded(&guards, &neighbour("fe80::1", kind, "fe80::1"), reason);
        let reason = matches!(kind, 5 | 9).then_some(DropReason::RouterGuard);
        assert_guarded(&guards, &icmp4(kind), reason);
    }
    hidden(&guards, DropReason::RouterGuard);
}

/// An extension header, or a fragment header (offset in units of 8 bytes, more to come).
#[derive(Clone, Debug)]
enum Extension {
    Options(u8, usize),
    Fragment(u16, bool),
}

fn chain(extensions: &[Extension], transport: &[u8]) -> (u8, Vec<u8>) {
    let mut packet = (58, transport.to_vec());
    for extension in extensions.iter().rev() {
        let next = IpNumber(packet.0);
        let (number, header) = match extension {
            Extension::Options(number, units) => {
                let header = Ipv6RawExtHeader::new_raw(next, &vec![1; 6 + 8 * units]).unwrap();
                (*number, header.to_bytes().to_vec())
            }
            Extension::Fragment(offset, more) => {
                let offset = (*offset).try_into().unwrap();
                (44, Ipv6FragmentHeader::new(next, offset, *more, 7).to_bytes().to_vec())
            }
        };
        packet = (number, [header, packet.1].concat());
    }
    packet
}

fn extensions(most: usize) -> impl Strategy<Value = Vec<Extension>> {
    let options = (select(vec![0u8, 43, 60]), 0..4usize)
        .prop_map(|(number, units)| Extension::Options(number, units));
    let fragment = any::<bool>().prop_map(|more| Extension::Fragment(0, more));
    vec(prop_oneof![3 => options, 1 => fragment], 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_chain_of_extension_headers_carries_an_advertisement_past_the_guard(
        extensions in extensions(12), cut in 0..24usize, tags in select(TAGS.to_vec()),
    ) {
        let guards = Guards { router: true, ..Guards::default() };
        let advertisement = [&[134, 0, 0, 0, 64, 0, 0, 0][..], &[0; 16]].concat();
        let (first, packet) = chain(&extensions, &advertisement);
        let frame = tagged(&ipv6("fe80::1", first, &packet), tags);
        prop_assert_eq!(verdict(guarded(guards.clone()), &frame), Some(DropReason::RouterGuard));
        // A first fragment that ends before the transport shows nothing.
        let mut split = vec![Extension::Fragment(0, true)];
        split.extend(extensions);
        let (first, packet) = chain(&split, &advertisement);
        let frame = tagged(&ipv6("fe80::1", first, &packet[..packet.len() - 8 - cut.min(16)]), tags);
        prop_assert_eq!(verdict(guarded(guards), &frame), Some(DropReason::RouterGuard));
    }

    #[test]
    fn an_echo_request_passes_behind_a_few_extension_headers(extensions in extensions(3)) {
        let fragments = extensions.iter().filter(|one| matches!(one, Extension::Fragment(..))).count();
        prop_assume!(fragments < 2);
        let (first, packet) = chain(&extensions, &[128, 0, 0, 0, 0, 0, 0, 0]);
        let guards = Guards { router: true, dhcp: true, ..Guards::default() };
        prop_assert_eq!(verdict(guarded(guards), &ipv6("fe80::1", first, &packet)), None);
    }
}

#[test]
fn later_fragments_pass_a_guard_that_asks_for_transport() {
    let guards = Guards { router: true, dhcp: true, ..Guards::default() };
    let (first, packet) = chain(&[Extension::Fragment(64, false)], &[134; 16]);
    assert_eq!(verdict(guarded(guards), &ipv6("fe80::1", first, &packet)), None);
}

fn own_addresses() -> Guards {
    let addresses = Some(vec![prefix("10.0.0.5/32"), prefix("fd00::/64")]);
    Guards { addresses, ..Guards::default() }
}

#[test]
fn ip_guard_holds_ip_to_the_ports_addresses() {
    let (guards, reason) = (own_addresses(), Some(DropReason::IpGuard));
    assert_guarded(&guards, &udp("10.0.0.5", "10.0.0.1", (1000, 2000)), None);
    assert_guarded(&guards, &udp("10.0.0.6", "10.0.0.1", (1000, 2000)), reason);
    assert_guarded(&guards, &udp("fd00::77", "fd00::1", (1000, 2000)), None);
    assert_guarded(&guards, &udp("fd00:0:0:1::77", "fd00::1", (1000, 2000)), reason);
    assert_guarded(&guards, &udp("::ffff:10.0.0.5", "fd00::1", (1000, 2000)), reason);
    // Only the link-local address that belongs to the source MAC.
    assert_guarded(&guards, &udp(DERIVED, "fe80::1", (1000, 2000)), None);
    assert_guarded(&guards, &udp("fe80::5054:ff:fe00:3", "fe80::1", (1000, 2000)), reason);
    // No address yet: DHCP, duplicate address detection, router solicitation and multicast reports,
    // nothing else.
    assert_guarded(&guards, &udp("0.0.0.0", "255.255.255.255", (68, 67)), None);
    assert_guarded(&guards, &udp("0.0.0.0", "255.255.255.255", (68, 69)), reason);
    for (kind, expected) in [(133, None), (143, None), (128, reason), (134, reason), (136, reason)]
    {
        assert_guarded(&guards, &neighbour("::", kind, "fd00::77"), expected);
    }
    assert_guarded(&guards, &udp("::", "ff02::1:2", (546, 547)), reason);
    hidden(&guards, DropReason::IpGuard);
}

#[test]
fn ip_guard_holds_arp_and_neighbour_discovery_to_the_ports_addresses() {
    let (guards, reason) = (own_addresses(), Some(DropReason::IpGuard));
    let (own, foreign) = ([10, 0, 0, 5], [10, 0, 0, 1]);
    assert_guarded(&guards, &arp(own, foreign), None);
    assert_guarded(&guards, &arp(foreign, own), reason);
    assert_guarded(&guards, &arp([0; 4], own), None);
    assert_guarded(&guards, &arp([0; 4], foreign), reason);
    let mut other_lengths = arp(own, foreign);
    other_lengths[18] = 8;
    assert_guarded(&guards, &other_lengths, reason);
    assert_guarded(&guards, &arp(own, foreign)[..41], reason);
    let (advertisement, solicitation) = (136, 135);
    for (source, kind, target, expected) in [
        ("fd00::5", advertisement, "fd00::5", None),
        (DERIVED, advertisement, "fd00::5", None),
        ("fd00::5", advertisement, "fd00:0:0:1::1", reason),
        (DERIVED, advertisement, "fe80::1", reason),
        ("fd00::5", solicitation, "fd00:0:0:1::1", None),
        ("fe80::1", solicitation, "fd00::5", reason),
        ("::", solicitation, "fd00::5", None),
        ("::", solicitation, DERIVED, None),
        ("::", solicitation, "fd00:0:0:1::1", reason),
        ("::", solicitation, "fe80::1", reason),
    ] {
        assert_guarded(&guards, &neighbour(source, kind, target), expected);
    }
}

/// The type lay behind the bytes that were copied first, and what could not be read passed.
#[test]
fn no_extension_header_is_long_enough_to_hide_an_advertisement() {
    let guards = own_addresses();
    let behind = |units, target| {
        let message = neighbour("fd00::5", 136, target).split_off(54);
        let (first, packet) = chain(&[Extension::Options(60, units)], &message);
        ipv6("fd00::5", first, &packet)
    };
    for units in 0..40 {
        let forged = behind(units, "fd00:0:0:1::1");
        assert_guarded(&guards, &forged, Some(DropReason::IpGuard));
    }
    for units in 0..40 {
        let own = behind(units, "fd00::5");
        // Up to 256 bytes of headers are read.
        let expected = (own.len() > 256).then_some(DropReason::IpGuard);
        assert_eq!(verdict(guarded(guards.clone()), &own), expected, "{units}");
    }
}

/// Finished behind the guard, such a checksum would be another sender's address, or another ICMP
/// type.
#[test]
fn what_guards_judge_is_no_place_for_a_checksum() {
    let llc = [&PEER[..], &OWN, &[0, 46], &[0; 46]].concat();
    let neighbour = neighbour("fd00::5", 136, "fd00::5");
    let frames =
        [(arp([10, 0, 0, 5], [10, 0, 0, 9]), 14), (llc, 14), (icmp4(8), 34), (neighbour, 54)];
    for (bytes, start) in frames {
        let mut vnet = VnetHeader::default();
        vnet.set_flags(wire::vnet::Flags::NEEDS_CSUM);
        vnet.csum_start.set(start);
        let mut bench = Bench::new(&[(plain(), ALL), (plain(), ports::Offloads::empty())]);
        bench.send(0, &[MemoryFrame { vnet, bytes }]);
        let drops = bench.switch.counters(bench.ids[0]).unwrap().drops;
        assert_eq!((drops[DropReason::BadOffload as usize], bench.received(1).len()), (1, 0));
    }
}

#[test]
fn a_guarded_drop_teaches_no_address_and_disturbs_no_neighbour_in_the_burst() {
    let mut bench = Bench::new(&[(guarded(own_addresses()), ALL), (plain(), ALL)]);
    let frame = |from: &str| MemoryFrame {
        vnet: VnetHeader::default(),
        bytes: udp(from, "10.0.0.1", (1000, 2000)),
    };
    bench.send(0, &[frame("10.0.0.6")]);
    assert!(bench.switch.macs().is_empty());
    let burst = ["10.0.0.5", "10.0.0.6", "10.0.0.5", "10.0.0.5"].map(frame);
    bench.send(0, &burst);
    let passed = [&burst[0], &burst[2], &burst[3]].map(|frame| frame.bytes.clone());
    let received: Vec<_> = bench.received(1).into_iter().map(|frame| frame.bytes).collect();
    assert_eq!(received, passed);
}

// --- ACLs ---

/// A frame as its maker knows it; small ranges, so that rules and frames meet.
#[derive(Clone, Debug)]
struct Made {
    from_mac: u8,
    to_mac: u8,
    kind: MadeKind,
    tags: usize,
}

#[derive(Clone, Debug)]
enum MadeKind {
    Arp,
    Other,
    Ip { v4: bool, from: u8, to: u8, protocol: u8, ports: (u16, u16), fragment: Option<u16> },
}

fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, last]
}

fn address(v4: bool, last: u8) -> IpAddr {
    match v4 {
        true => IpAddr::from([10, 0, 0, last]),
        false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()]),
    }
}

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let mut frame = [mac(self.to_mac), mac(self.from_mac)].concat();
        (0..self.tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        match self.kind {
            MadeKind::Arp => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
            MadeKind::Other => frame.extend([0x88, 0xcc]),
            MadeKind::Ip { v4, from, to, protocol, ports, fragment } => {
                let mut transport = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
                transport.extend([0, 16, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
                if protocol == 17 {
                    transport.truncate(16);
                }
                let addresses = [address(v4, from), address(v4, to)];
                let bytes = addresses.iter().flat_map(|address| match address {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                });
                let offset = fragment.map_or(0, |units| units | 0x2000).to_be_bytes();
                if v4 {
                    let length = 20 + u8::try_from(transport.len()).unwrap();
                    frame.extend([8, 0, 0x45, 0, 0, length, 0, 1]);
                    frame.extend([offset[0], offset[1], 64, protocol, 0, 0]);
                    frame.extend(bytes);
                } else {
                    let header = fragment.map(|units| {
                        [protocol, 0, (units >> 5) as u8, (units << 3) as u8 | 1, 0, 0, 0, 7]
                    });
                    let length = u8::try_from(transport.len()).unwrap()
                        + if header.is_some() { 8 } else { 0 };
                    let first = if header.is_some() { 44 } else { protocol };
                    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, first, 64]);
                    frame.extend(bytes);
                    frame.extend(header.into_iter().flatten());
                }
                frame.extend(transport);
            }
        }
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// Whether a requirement holds; `None`: the frame does not say.
type Holds = Option<bool>;

/// Whether a frame passes, by reading the rules one after the other.
fn passes(rules: &[AclRule], direction: Direction, frame: &Made) -> bool {
    let decides = |rule: &&AclRule| {
        let unsaid = rule.action == AclAction::Deny;
        rule.direction == direction
            && requirements(rule, frame).iter().all(|holds| holds.unwrap_or(unsaid))
    };
    rules.iter().find(decides).is_none_or(|rule| rule.action == AclAction::Allow)
}

fn requirements(rule: &AclRule, frame: &Made) -> Vec<Holds> {
    let mut holds = vec![];
    let ends = [(&rule.from, frame.from_mac), (&rule.to, frame.to_mac)];
    for (end, own) in ends {
        holds.extend(end.mac.map(|asked| Some(asked == Mac(mac(own)))));
    }
    let hidden = frame.tags > 2;
    let say = |holds: bool| if hidden { None } else { Some(holds) };
    holds.push(match (rule.protocol, &frame.kind) {
        (AclProtocol::Any, _) => Some(true),
        (AclProtocol::Arp, kind) => say(matches!(kind, MadeKind::Arp)),
        (AclProtocol::Ipv4, kind) => say(matches!(kind, MadeKind::Ip { v4: true, .. })),
        (AclProtocol::Ipv6, kind) => say(matches!(kind, MadeKind::Ip { v4: false, .. })),
        (AclProtocol::Ip(asked), kind) => {
            say(matches!(kind, MadeKind::Ip { protocol, .. } if *protocol == asked))
        }
    });
    for (end, is_source) in [(&rule.from, true), (&rule.to, false)] {
        if let Some(prefix) = end.prefix {
            holds.push(match frame.kind {
                MadeKind::Ip { v4, from, to, .. } => {
                    say(prefix.contains(address(v4, if is_source { from } else { to })))
                }
                _ => say(false),
            });
        }
        if let Some(asked) = &end.ports {
            holds.push(match frame.kind {
                _ if hidden => None,
                MadeKind::Ip { protocol: 6 | 17, fragment: Some(1..), .. } => None,
                MadeKind::Ip { protocol: 6 | 17, ports, .. } => {
                    Some(asked.contains(if is_source { &ports.0 } else { &ports.1 }))
                }
                _ => Some(false),
            });
        }
    }
    holds
}

fn a_frame() -> impl Strategy<Value = Made> {
    let small = || (1..5u16, 1..5u16);
    let fragment = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(90u16))];
    let ip = (any::<bool>(), 1..9u8, 1..9u8, select(vec![6u8, 17, 47]), small(), fragment)
        .prop_map(|(v4, from, to, protocol, ports, fragment)| MadeKind::Ip {
            v4,
            from,
            to,
            protocol,
            ports,
            fragment,
        });
    let kind = prop_oneof![8 => ip, 1 => Just(MadeKind::Arp), 1 => Just(MadeKind::Other)];
    let tags = prop_oneof![6 => Just(0usize), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    (1..4u8, 5..8u8, kind, tags).prop_map(|(from_mac, to_mac, kind, tags)| Made {
        from_mac,
        to_mac,
        kind,
        tags,
    })
}

fn a_rule() -> impl Strategy<Value = AclRule> {
    let end = |macs: std::ops::Range<u8>| {
        let prefix = (any::<bool>(), 1..9u8, 0..5u8).prop_map(|(v4, last, less)| {
            let length = if v4 { 32 } else { 128 } - less;
            Prefix::new(address(v4, last), length).unwrap()
        });
        let ports = (1..5u16, 0..3u16).prop_map(|(first, more)| first..=first + more);
        let mac = macs.prop_map(|last| Mac(mac(last)));
        (option::weighted(0.2, mac), option::weighted(0.4, prefix), option::weighted(0.3, ports))
            .prop_map(|(mac, prefix, ports)| AclEnd { mac, prefix, ports })
    };
    let protocol = select(vec![
        AclProtocol::Any,
        AclProtocol::Any,
        AclProtocol::Arp,
        AclProtocol::Ipv4,
        AclProtocol::Ipv6,
        AclProtocol::Ip(6),
        AclProtocol::Ip(17),
        AclProtocol::Ip(47),
    ]);
    let action = select(vec![AclAction::Allow, AclAction::Deny]);
    let direction = select(vec![Direction::Ingress, Direction::Egress]);
    (action, direction, protocol, end(1..4), end(5..8))
        .prop_map(|(action, direction, protocol, from, to)| AclRule {
            action,
            direction,
            protocol,
            from,
            to,
        })
        .prop_filter("the configuration refuses rules that nothing satisfies", |rule| {
            let ported = rule.from.ports.is_some() || rule.to.ports.is_some();
            let based = rule.from.prefix.is_some() || rule.to.prefix.is_some();
            match rule.protocol {
                AclProtocol::Arp => !ported && !based,
                AclProtocol::Ip(47) => !ported,
                _ => true,
            }
        })
}

proptest! {
    #[test]
    fn compiled_rules_decide_as_rules_read_one_by_one(
        ingress in vec(a_rule(), 0..90),
        egress in vec(a_rule(), 0..8),
        frames in vec(a_frame(), 1..40),
    ) {
        let with = |acl: &Vec<AclRule>| PortSettings { acl: acl.clone(), ..all_vlans() };
        let mut bench = Bench::new(&[(with(&ingress), ALL), (with(&egress), ALL)]);
        let burst: Vec<_> = frames
            .iter()
            .map(|frame| MemoryFrame { vnet: VnetHeader::default(), bytes: frame.bytes() })
            .collect();
        bench.send(0, &burst);
        let expected: Vec<_> = frames
            .iter()
            .filter(|frame| passes(&ingress, Direction::Ingress, frame))
            .filter(|frame| passes(&egress, Direction::Egress, frame))
            .map(Made::bytes)
            .collect();
        let received: Vec<_> = bench.received(1).into_iter().map(|frame| frame.bytes).collect();
        prop_assert_eq!(&received, &expected);
        let drops = [0, 1].map(|port| {
            bench.switch.counters(bench.ids[port]).unwrap().drops[DropReason::AclDenied as usize]
        });
        prop_assert_eq!(drops.iter().sum::<u64>() as usize + expected.len(), frames.len());
    }
}

#[test]
fn a_runt_is_dropped_and_counted_once() {
    let rule = AclRule {
        action: AclAction::Deny,
        direction: Direction::Ingress,
        protocol: AclProtocol::Any,
        from: AclEnd::default(),
        to: AclEnd::default(),
    };
    let guards = Guards { dhcp: true, router: true, addresses: Some(vec![]) };
    let settings = PortSettings { acl: vec![rule], guards, ..plain() };
    let mut bench = Bench::new(&[(settings, ALL)]);
    bench.send(0, &[MemoryFrame { vnet: VnetHeader::default(), bytes: vec![2; 13] }]);
    let counters = bench.switch.counters(bench.ids[0]).unwrap();
    assert_eq!((counters.dropped(), counters.drops[DropReason::Runt as usize]), (1, 1));
}

#[test]
fn rules_count_what_they_match_and_go_on_counting_when_others_change() {
    let deny_port = |port: u16| AclRule {
        action: AclAction::Deny,
        direction: Direction::Ingress,
        protocol: AclProtocol::Ip(17),
        from: AclEnd::default(),
        to: AclEnd { ports: Some(port..=port), ..AclEnd::default() },
    };
    let with = |acl: &[AclRule]| PortSettings { acl: acl.to_vec(), ..plain() };
    let mut bench = Bench::new(&[(with(&[deny_port(22), deny_port(23)]), ALL), (plain(), ALL)]);
    let frame = |port| MemoryFrame {
        vnet: VnetHeader::default(),
        bytes: udp("10.0.0.5", "10.0.0.1", (1000, port)),
    };
    bench.send(0, &[frame(23), frame(22), frame(23), frame(80)]);
    assert_eq!(bench.switch.acl_hits(bench.ids[0]), [1, 2]);
    bench.switch.change_port(bench.ids[0], with(&[deny_port(80), deny_port(23)])).unwrap();
    bench.send(0, &[frame(80), frame(22)]);
    assert_eq!(bench.switch.acl_hits(bench.ids[0]), [1, 2]);
    assert_eq!(bench.received(1).len(), 2);
}

/// Refuses all that leaves through a port.
fn refuse_all() -> PortSettings {
    let rule = AclRule {
        action: AclAction::Deny,
        direction: Direction::Egress,
        protocol: AclProtocol::Any,
        from: AclEnd::default(),
        to: AclEnd::default(),
    };
    PortSettings { acl: vec![rule], ..plain() }
}

fn broadcast(port: u16) -> MemoryFrame {
    let mut bytes = udp("10.0.0.5", "10.0.0.255", (port, 7));
    bytes[..6].fill(0xff);
    MemoryFrame { vnet: VnetHeader::default(), bytes }
}

#[test]
fn rules_are_not_asked_about_frames_for_a_port_that_is_left_alone() {
    let mut bench = Bench::new(&[(plain(), ALL), (refuse_all(), ALL)]);
    let broken = PortState::Broken("its device is gone".to_owned());
    bench.set_state(1, broken);
    bench.send(0, &[broadcast(1)]);
    let drops = bench.switch.counters(bench.ids[1]).unwrap().drops;
    assert_eq!(drops[DropReason::EgressDown as usize], 1);
    assert_eq!(drops[DropReason::AclDenied as usize], 0);
    assert_eq!(bench.switch.acl_hits(bench.ids[1]), [0]);
}

#[test]
fn a_turn_that_floods_to_many_ports_pays_for_their_rules() {
    let refusing = std::iter::repeat_n((refuse_all(), ALL), 200);
    let ports: Vec<_> = [(plain(), ALL)].into_iter().chain(refusing).collect();
    let mut bench = Bench::new(&ports);
    let frames: Vec<_> = (0..256).map(broadcast).collect();
    bench.send(0, &frames);
    let flooded = bench.switch.acl_hits(bench.ids[1])[0];
    // Half of the 2^21 units of a turn, 50 of them for each port's rules.
    assert!((1..=(1 << 20) / (200 * 50) + 1).contains(&flooded), "{flooded}");
}
