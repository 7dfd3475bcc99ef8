//! Rules that mark what enters a port, held against etherparse's reading of the frames.

use crate::common::{ALL, Bench, plain};
use datapath::{AclAction, AclEnd, AclMark, AclProtocol, AclRule, PortSettings, Vlan};
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, VlanHeader};
use ports::capture::Direction;
use ports::memory::MemoryFrame;
use proptest::prelude::*;
use wire::vnet::VnetHeader;

const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];
const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn rule(action: AclAction, port: Option<u16>) -> AclRule {
    AclRule {
        action,
        direction: Direction::Ingress,
        protocol: AclProtocol::Any,
        from: AclEnd::default(),
        to: AclEnd { ports: port.map(|port| port..=port), ..AclEnd::default() },
    }
}

fn mark(dscp: Option<u8>, pcp: Option<u8>) -> AclAction {
    AclAction::Mark(AclMark { dscp, pcp })
}

/// Returns a frame to a port, untagged or tagged, with a class of service.
fn frame(v6: bool, tag: Option<(u16, u8)>, class: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(FROM, TO);
    let mut bytes = Vec::new();
    let ip = if v6 {
        ethernet.ipv6([1; 16], [2; 16], 64)
    } else {
        ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    };
    ip.udp(1000, port).write(&mut bytes, payload).unwrap();
    // The class by hand, and the checksum anew.
    if v6 {
        bytes[14] |= class >> 4;
        bytes[15] |= class << 4;
    } else {
        bytes[15] = class;
        bytes[24..26].fill(0);
        let checksum = wire::checksum::Sum::of(&bytes[14..34]).finish();
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    if let Some((id, pcp)) = tag {
        let tci = id | u16::from(pcp) << 13;
        bytes.splice(12..12, [0x81, 0].into_iter().chain(tci.to_be_bytes()));
    }
    bytes
}

fn trunk() -> Vlan {
    Vlan::Trunk { native: 1, allowed: (0..4095).collect() }
}

proptest! {
    /// Whatever enters, tagged or not, leaves with the marks of the first rule that matches and
    /// with nothing else changed.
    #[test]
    fn what_enters_leaves_marked_and_otherwise_as_it_was(
        v6: bool,
        tag in proptest::option::of((2u16..4095, 0u8..8)),
        class: u8,
        is_asked: bool,
        dscp in proptest::option::of(0u8..64),
        pcp in proptest::option::of(0u8..8),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let acl = vec![
            rule(mark(dscp, pcp), Some(5060)),
            rule(mark(Some(1), Some(1)), Some(5060)),
            rule(AclAction::Allow, Some(5060)),
        ];
        // An untagged frame is of VLAN 7.
        let vlan = if tag.is_some() { trunk() } else { Vlan::Access(7) };
        let from = PortSettings { acl, vlan, ..plain() };
        let to = PortSettings { vlan: trunk(), ..plain() };
        let mut bench = Bench::new(&[(from, ALL), (to, ALL)]);
        let port = if is_asked { 5060 } else { 5061 };
        let bytes = frame(v6, tag, class, port, &payload);
        bench.send(0, &[MemoryFrame { vnet: VnetHeader::default(), bytes: bytes.clone() }]);
        let [received] = <[MemoryFrame; 1]>::try_from(bench.received(1)).unwrap();
        let (id, old) = tag.unwrap_or((7, 0));
        let priority = pcp.filter(|_| is_asked).unwrap_or(old);
        let marked = dscp.filter(|_| is_asked).map_or(class, |dscp| dscp << 2 | class & 3);
        prop_assert_eq!(&received.bytes, &frame(v6, Some((id, priority)), marked, port, &payload));
        // A second opinion.
        let read = PacketHeaders::from_ethernet_slice(&received.bytes).unwrap();
        let Some(VlanHeader::Single(outer)) = read.vlan() else { panic!("one tag") };
        prop_assert_eq!((outer.vlan_id.value(), outer.pcp.value()), (id, priority));
        match read.net.unwrap() {
            NetHeaders::Ipv4(header, _) => {
                prop_assert_eq!(header.dscp.value(), marked >> 2);
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            NetHeaders::Ipv6(header, _) => prop_assert_eq!(header.traffic_class, marked),
            NetHeaders::Arp(_) => prop_assert!(false, "ARP"),
        }
        prop_assert_eq!(bench.switch.acl_hits(bench.ids[0])[0], u64::from(is_asked));
    }

    /// No bytes of a guest's panic it.
    #[test]
    fn what_cannot_be_read_passes(bytes in proptest::collection::vec(any::<u8>(), 14..80)) {
        let acl = vec![rule(mark(Some(46), Some(5)), None)];
        let from = PortSettings { acl, vlan: trunk(), ..plain() };
        let mut bench = Bench::new(&[(from, ALL), (PortSettings { vlan: trunk(), ..plain() }, ALL)]);
        bench.send(0, &[MemoryFrame { vnet: VnetHeader::default(), bytes }]);
    }
}

/// What is denied is neither marked nor counted as marked, wherever the rules stand.
#[test]
fn a_frame_that_is_denied_is_not_marked() {
    let acl = vec![rule(mark(Some(46), None), None), rule(AclAction::Deny, Some(22))];
    let mut bench = Bench::new(&[(PortSettings { acl, ..plain() }, ALL), (plain(), ALL)]);
    let sent = [22, 80].map(|port| MemoryFrame {
        vnet: VnetHeader::default(),
        bytes: frame(false, None, 0, port, &[]),
    });
    bench.send(0, &sent);
    assert_eq!(bench.received(1).len(), 1);
    assert_eq!(bench.switch.acl_hits(bench.ids[0]), [1, 1]);
}
