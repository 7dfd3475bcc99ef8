//! Builds the frames of an expression, with correct lengths and checksums.

use super::expression::{Expression, Packet, TCP, UDP};
use datapath::Vlan;
use ports::memory::MemoryFrame;
use std::net::{IpAddr, SocketAddr};
use wire::Mac;
use wire::checksum::Sum;
use wire::ethernet::ethertype;
use wire::upper::{ICMP, ICMPV6};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Ports of TCP and UDP, if the expression has none.
const FROM_PORT: u16 = 49_152;
const TO_PORT: u16 = 80;
/// Flags of TCP.
const SYN: u8 = 1 << 1;
const ACK: u8 = 1 << 4;

/// The addresses of a frame, if the expression has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) source: Mac,
    pub(crate) destination: Mac,
}

/// An IP packet that is being written.
struct Ip<'e> {
    expression: &'e Expression,
    protocol: u8,
    from: SocketAddr,
    to: SocketAddr,
}

impl Expression {
    /// Returns all frames of the expression.
    pub(crate) fn frames(&self, addresses: Addresses) -> Vec<MemoryFrame> {
        let mut next = self.clone();
        let frame = |_| {
            let frame = next.frame(addresses);
            next.seq = next.seq.wrapping_add(u32::try_from(next.len).unwrap_or_default());
            frame
        };
        (0..self.count).map(frame).collect()
    }

    fn frame(&self, addresses: Addresses) -> MemoryFrame {
        let (mut bytes, mut vnet) = (Vec::new(), VnetHeader::default());
        let source = self.source.unwrap_or(addresses.source);
        if !matches!(self.packet, Packet::Hex(_)) {
            let destination = self.destination.or(self.group()).unwrap_or(addresses.destination);
            bytes.extend([destination.0, source.0].as_flattened());
            self.put_tags(&mut bytes);
        }
        match &self.packet {
            Packet::Hex(hex) => bytes.clone_from(hex),
            Packet::None => {
                bytes.extend(self.kind.unwrap_or_default().to_be_bytes());
                bytes.resize(bytes.len() + self.len, 0);
            }
            Packet::Arp { from, to, reply } => {
                bytes.extend(ethertype::ARP.to_be_bytes());
                bytes.extend([0, 1, 8, 0, 6, 4, 0, if *reply { 2 } else { 1 }]);
                let target = if *reply { addresses.destination } else { Mac([0; 6]) };
                bytes.extend([&source.0[..], from, &target.0, to].concat());
            }
            Packet::Ip { protocol, from, to } => {
                let ip = Ip { expression: self, protocol: *protocol, from: *from, to: *to };
                ip.put(&mut bytes, &mut vnet);
            }
        }
        MemoryFrame { vnet, bytes }
    }

    fn put_tags(&self, bytes: &mut Vec<u8>) {
        for (place, vlan) in self.vlans.iter().enumerate() {
            let priority = if place == 0 { u16::from(self.pcp) << 13 } else { 0 };
            bytes.extend(ethertype::VLAN.to_be_bytes());
            bytes.extend((priority | vlan).to_be_bytes());
        }
    }

    /// Returns the IP address of the station that gets the frame, if that decides about its
    /// destination.
    pub(crate) fn receiver(&self) -> Option<IpAddr> {
        let is_open = self.destination.is_none() && self.to.is_none() && self.group().is_none();
        match &self.packet {
            Packet::Ip { to, .. } if is_open => Some(to.ip()),
            Packet::Arp { to, .. } if is_open => Some(IpAddr::from(*to)),
            _ => None,
        }
    }

    /// Returns the VLAN that the frame has in the switch, if a port in this mode lets it enter.
    pub(crate) fn entered(&self, vlan: &Vlan) -> Option<u16> {
        match (vlan, self.vlans.first().filter(|tag| **tag != 0)) {
            (Vlan::Access(own), None) => Some(*own),
            (Vlan::Trunk { native, .. }, None) => Some(*native),
            (Vlan::Access(_), Some(_)) => None,
            (Vlan::Trunk { .. }, Some(tag)) => Some(*tag),
        }
    }

    /// Whether the expression leaves the destination to the switch.
    pub(crate) fn names_no_destination(&self) -> bool {
        let has_one = matches!(self.packet, Packet::Hex(_)) || self.group().is_some();
        !has_one && self.destination.is_none() && self.to.is_none()
    }

    /// Returns the destination of a packet to a multicast group (RFC 1112, RFC 2464) or to all
    /// stations.
    fn group(&self) -> Option<Mac> {
        let to = match &self.packet {
            Packet::Ip { to, .. } => to.ip(),
            Packet::Arp { reply: false, .. } => return Some(Mac::BROADCAST),
            _ => return None,
        };
        match to {
            IpAddr::V4(to) if to.is_broadcast() => Some(Mac::BROADCAST),
            IpAddr::V4(to) if to.is_multicast() => {
                let [_, b, c, d] = to.octets();
                Some(Mac([1, 0, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(to) if to.is_multicast() => {
                let [.., a, b, c, d] = to.octets();
                Some(Mac([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }
}

impl Ip<'_> {
    fn put(&self, bytes: &mut Vec<u8>, vnet: &mut VnetHeader) {
        let (transport, place) = self.transport();
        let len = transport.len() + self.expression.len;
        let addresses = self.put_header(bytes, len);
        let start = bytes.len();
        bytes.extend(&transport);
        bytes.resize(start + len, 0);
        let Some(place) = place else { return };
        let is_partial = self.expression.partial || self.expression.gso.is_some();
        let is_partial = is_partial && matches!(self.protocol, TCP | UDP);
        let pseudo = self.pseudo(&addresses, len);
        let sum = match bytes.get(start..) {
            Some(packet) if !is_partial && self.protocol == UDP => {
                (pseudo + Sum::of(packet)).finish_udp()
            }
            Some(packet) if !is_partial => (pseudo + Sum::of(packet)).finish(),
            _ => pseudo.0,
        };
        put_at(bytes, start + place, sum);
        if is_partial {
            self.claim(vnet, short(start), short(place), short(transport.len()));
        }
    }

    /// Returns the transport header, and where its checksum is.
    fn transport(&self) -> (Vec<u8>, Option<usize>) {
        let Expression { len, flags, seq, kind, .. } = *self.expression;
        let port = |end: SocketAddr, other| if end.port() == 0 { other } else { end.port() };
        let [from, to] = [port(self.from, FROM_PORT), port(self.to, TO_PORT)].map(u16::to_be_bytes);
        match self.protocol {
            TCP => {
                let flags = flags.unwrap_or(if len == 0 { SYN } else { ACK });
                let numbers = [seq, u32::from(flags & ACK != 0)].map(u32::to_be_bytes);
                let rest = [0x50, flags, 0x20, 0, 0, 0, 0, 0];
                ([&from[..], &to, numbers.as_flattened(), &rest].concat(), Some(16))
            }
            UDP => ([from, to, short(8 + len).to_be_bytes(), [0; 2]].concat(), Some(6)),
            ICMP | ICMPV6 => {
                let echo = if self.protocol == ICMP { 8 } else { 128 };
                let kind = kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(echo);
                (vec![kind, 0, 0, 0, 0, 1, 0, 1], Some(2))
            }
            _ => (Vec::new(), None),
        }
    }

    /// Adds the EtherType and an IP header for `len` bytes of payload. Returns both IP addresses.
    fn put_header(&self, bytes: &mut Vec<u8>, len: usize) -> Vec<u8> {
        let Expression { ttl, dscp, .. } = *self.expression;
        let class = dscp << 2;
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.from.ip(), self.to.ip()) else {
            let [from, to] = [self.from.ip(), self.to.ip()].map(octets);
            bytes.extend(ethertype::IPV6.to_be_bytes());
            bytes.extend([0x60 | class >> 4, class << 4, 0, 0]);
            bytes.extend(short(len).to_be_bytes());
            bytes.extend([self.protocol, ttl]);
            bytes.extend([from, to].as_flattened());
            return [from, to].concat();
        };
        let addresses = [from.octets(), to.octets()].concat();
        let mut header = vec![0x45, class];
        header.extend(short(20 + len).to_be_bytes());
        header.extend([0, 1, 0x40, 0, ttl, self.protocol, 0, 0]);
        header.extend(&addresses);
        let sum = Sum::of(&header).finish();
        put_at(&mut header, 10, sum);
        bytes.extend(ethertype::IPV4.to_be_bytes());
        bytes.extend(header);
        addresses
    }

    /// Returns the sum of the pseudo-header, which ICMP lacks.
    fn pseudo(&self, addresses: &[u8], len: usize) -> Sum {
        match self.protocol {
            ICMP => Sum::default(),
            protocol => Sum::of(addresses).add_u16(protocol.into()).add_u16(short(len)),
        }
    }

    /// Marks a frame's checksum as partial, and a train's segments as still to be cut.
    fn claim(&self, vnet: &mut VnetHeader, start: u16, place: u16, header: u16) {
        vnet.set_flags(Flags::NEEDS_CSUM);
        vnet.csum_start.set(start);
        vnet.csum_offset.set(place);
        if let Some(size) = self.expression.gso {
            let kind = match (self.protocol, self.from.is_ipv4()) {
                (TCP, true) => GsoType::Tcp4,
                (TCP, false) => GsoType::Tcp6,
                _ => GsoType::UdpL4,
            };
            vnet.set_gso(kind, false);
            vnet.gso_size.set(size);
            vnet.hdr_len.set(start + header);
        }
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns a length as `u16`: lengths of an expression are below 65,536.
fn short(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

fn put_at(bytes: &mut [u8], place: usize, value: u16) {
    if let Some(at) = bytes.get_mut(place..place + 2) {
        at.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketHeaders, SlicedPacket, TransportHeader};
    use proptest::prelude::*;

    const ADDRESSES: Addresses =
        Addresses { source: Mac([2, 0, 0, 0, 0, 1]), destination: Mac([2, 0, 0, 0, 0, 2]) };

    fn frames(text: &str) -> Vec<MemoryFrame> {
        Expression::parse(text).unwrap().frames(ADDRESSES)
    }

    /// Returns the transport's checksum and the one that etherparse computes.
    fn checksum_of(bytes: &[u8]) -> (u16, u16) {
        let read = PacketHeaders::from_ethernet_slice(bytes).unwrap();
        let payload = read.payload.slice();
        let ip = read.net.unwrap();
        let (v4, v6) = (ip.ipv4_ref().map(|it| it.0), ip.ipv6_ref().map(|it| it.0));
        match (read.transport.unwrap(), v4, v6) {
            (TransportHeader::Tcp(tcp), Some(ip), _) => {
                (tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).unwrap())
            }
            (TransportHeader::Tcp(tcp), _, Some(ip)) => {
                (tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).unwrap())
            }
            (TransportHeader::Udp(udp), Some(ip), _) => {
                (udp.checksum, udp.calc_checksum_ipv4(ip, payload).unwrap())
            }
            (TransportHeader::Udp(udp), _, Some(ip)) => {
                (udp.checksum, udp.calc_checksum_ipv6(ip, payload).unwrap())
            }
            (TransportHeader::Icmpv4(icmp), ..) => {
                (icmp.checksum, icmp.icmp_type.calc_checksum(payload))
            }
            (TransportHeader::Icmpv6(icmp), _, Some(ip)) => {
                let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, payload);
                (icmp.checksum, sum.unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn etherparse_reads_what_was_written(
            kind in prop_oneof![Just("tcp"), Just("udp"), Just("icmp")],
            v6: bool, vlan in prop::option::of(0..4096u16), len in 0..1500usize, ttl: u8, dscp in 0..64u8,
        ) {
            let ends = if v6 { "fd00::1 > fd00::2" } else { "10.0.0.1 > 10.0.0.2" };
            let tag = vlan.map_or_else(String::new, |vlan| format!("vlan {vlan} pcp 3"));
            let bytes = frames(&format!("{kind} {ends} {tag} len {len} ttl {ttl} dscp {dscp}")).remove(0).bytes;
            let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
            let outer = sliced.vlan().map(|_| u16::from_be_bytes([bytes[14], bytes[15]]));
            prop_assert_eq!(outer, vlan.map(|vlan| 3 << 13 | vlan));
            let (written, right) = checksum_of(&bytes);
            prop_assert_eq!(written, right);
            if let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net {
                prop_assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                prop_assert_eq!((ip.header().ttl(), ip.header().dcp().value()), (ttl, dscp));
            }
        }
    }

    #[test]
    fn frames_of_a_count_follow_each_other() {
        let all = frames("tcp 10.0.0.1:1 > 10.0.0.2:80 len 1000 seq 7 count 3");
        let sequence =
            |frame: &MemoryFrame| u32::from_be_bytes(frame.bytes[38..42].try_into().unwrap());
        assert_eq!(all.iter().map(sequence).collect::<Vec<_>>(), [7, 1007, 2007]);
    }

    #[test]
    fn addresses_follow_from_what_the_packet_is() {
        let to = |text: &str| frames(text).remove(0).bytes[..6].to_vec();
        assert_eq!(to("udp 10.0.0.1 > 255.255.255.255"), [0xff; 6]);
        assert_eq!(to("udp 10.0.0.1 > 224.1.129.5"), [1, 0, 0x5e, 1, 129, 5]);
        assert_eq!(to("icmp fd00::1 > ff02::1:ff00:9"), [0x33, 0x33, 0xff, 0, 0, 9]);
        assert_eq!(to("arp 10.0.0.1 > 10.0.0.2"), [0xff; 6]);
        assert_eq!(to("tcp 10.0.0.1 > 10.0.0.2"), ADDRESSES.destination.0);
    }

    #[test]
    fn a_train_says_what_its_segments_are() {
        let train = frames("tcp 10.0.0.1 > 10.0.0.2 len 60000 gso 1448").remove(0);
        assert_eq!((train.vnet.gso(), train.vnet.gso_size.get()), (GsoType::Tcp4, 1448));
        assert_eq!((train.vnet.csum_start.get(), train.vnet.hdr_len.get()), (34, 54));
        assert_eq!(train.bytes.len(), 60_054);
    }
}
