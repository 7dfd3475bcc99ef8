//! Finds the transport inside a tunnel, and every header around it that depends on how much it
//! carries.
//!
//! The kernel merges segments inside of tunnels, and lets a tunnel's device segment them. A switch
//! that segments such a train writes anew what [`Layers`] names: lengths, IPv4 identifications and
//! the checksums of UDP, GRE and IPv4. Everything else of the headers is the same in each segment.
//!
//! Tunnels are read from the outside in: IP in IP in all four ways, GRE, MPLS, PPPoE, VXLAN and
//! Geneve by their ports. Others (FOU, GUE, other ports) are not read at all: where the source says
//! at which byte the transport starts, the IP header is looked for in front of it.

use crate::ethernet::{EthernetHeader, VlanHeader, ethertype};
use crate::ipv4::Ipv4Header;
use crate::ipv6::{ExtensionHeader, Ipv6Header, extension};
use crate::tcp::{self, TcpHeader};
use crate::udp::{self, UdpHeader};
use crate::{Header, Parsed, upper};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// Headers that may depend on the length of what they carry.
const MOST: usize = 8;
/// Steps from header to header, so that no frame is read for long.
const STEPS: usize = 24;
/// SCTP's number in IP headers.
pub const SCTP: u8 = 132;

const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
const GRE: u8 = 47;
const MPLS_INSIDE: u8 = 137;
const ETHERNET_INSIDE: u16 = 0x6558;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE: u16 = 0x8864;
/// The assigned port, and the one that Linux takes without being told.
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;
const MPLS_IN_UDP: u16 = 6635;
/// Ports of DHCP, of both families.
const DHCP: [u16; 4] = [67, 68, 546, 547];
/// The jumbo payload option (RFC 2675).
const JUMBO: u8 = 0xc2;

/// The kind and place of a header that depends on what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Length, identification, checksum.
    Ipv4(u16),
    /// Length.
    Ipv6(u16),
    /// Length, and the checksum if it is not 0.
    Udp(u16),
    /// A checksum.
    Gre(u16),
    /// Length.
    Pppoe(u16),
}

/// The transport that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its protocol number.
    pub protocol: u8,
    /// Where it starts, if the source says so.
    pub start: Option<u16>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    layers: [Layer; MOST],
    count: usize,
    /// Where the transport starts.
    pub l4: u16,
    /// Where its payload starts.
    pub payload: u16,
}

/// Returns whether datagrams to this port are read as a tunnel's.
pub fn is_port(port: u16) -> bool {
    VXLAN.contains(&port) || port == GENEVE || port == MPLS_IN_UDP
}

/// Returns whether a datagram is DHCP's, of either family.
pub fn is_dhcp(udp: &UdpHeader) -> bool {
    [udp.source_port, udp.destination_port].iter().any(|port| DHCP.contains(&port.get()))
}

impl Layers {
    /// Finds a transport in a frame. `headers` are its first bytes; its network header, of which
    /// `ethertype` tells the kind, is at `l3`.
    pub fn find(headers: &[u8], (ethertype, l3): (u16, u16), wanted: Wanted) -> Option<Layers> {
        let found = Layers { layers: [Layer::Ipv4(0); MOST], count: 0, l4: 0, payload: 0 };
        let mut walk = Walk { headers, wanted, found };
        let mut next = Next::Network(ethertype, l3);
        for _ in 0..STEPS {
            next = match next {
                Next::Network(ethertype, at) => walk.network(ethertype, at)?,
                Next::Transport(protocol, at) => walk.transport(protocol, at)?,
                Next::Opaque(at) => walk.look_back(at)?,
                Next::Found => return Some(walk.found),
            };
        }
        None
    }

    /// Returns the headers in their order.
    pub fn all(&self) -> &[Layer] {
        self.layers.get(..self.count).unwrap_or_default()
    }

    /// Returns the innermost IP header.
    pub fn ip(&self) -> Option<Layer> {
        self.all().iter().rev().find(|layer| layer.is_ip()).copied()
    }

    /// Returns the end of the innermost IP packet, as its header says; `None` where that says
    /// nothing, as in packets beyond 64 KiB.
    pub fn end(&self, headers: &[u8]) -> Option<u32> {
        self.ip()?.end(headers)
    }
}

impl Layer {
    /// Whether this is an IP header.
    pub fn is_ip(self) -> bool {
        matches!(self, Layer::Ipv4(_) | Layer::Ipv6(_))
    }

    /// Returns the end of an IP header's packet, as [`Layers::end`] does.
    pub fn end(self, headers: &[u8]) -> Option<u32> {
        let (at, len) = match self {
            Layer::Ipv4(at) => (at, Ipv4Header::at(headers, at)?.total_length.get()),
            Layer::Ipv6(at) => {
                (at + Ipv6Header::LEN, Ipv6Header::at(headers, at)?.payload_length.get())
            }
            _ => return None,
        };
        (len > 0).then_some(u32::from(at) + u32::from(len))
    }

    /// Returns the addresses of an IP header, one behind the other.
    pub fn addresses(self, headers: &[u8]) -> Option<&[u8]> {
        let (start, len) = match self {
            Layer::Ipv4(at) => (usize::from(at) + 12, 8),
            Layer::Ipv6(at) => (usize::from(at) + 8, 32),
            _ => return None,
        };
        headers.get(start..start + len)
    }
}

impl Parsed {
    /// Returns EtherType and place of the network header, as [`Layers::find`] takes them.
    pub const fn network(&self) -> (u16, u16) {
        (self.ethertype, self.l3)
    }
}

/// The next header to read.
#[derive(Clone, Copy)]
enum Next {
    Network(u16, u16),
    Transport(u8, u16),
    /// Bytes that are not read.
    Opaque(u16),
    Found,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Two {
    first: U16,
    second: U16,
}

struct Walk<'h> {
    headers: &'h [u8],
    wanted: Wanted,
    found: Layers,
}

impl Walk<'_> {
    fn push(&mut self, layer: Layer) -> Option<()> {
        *self.found.layers.get_mut(self.found.count)? = layer;
        self.found.count += 1;
        Some(())
    }

    fn byte(&self, at: u16) -> Option<u8> {
        self.headers.get(usize::from(at)).copied()
    }

    fn network(&mut self, kind: u16, at: u16) -> Option<Next> {
        match kind {
            ethertype::IPV4 => self.ipv4(at),
            ethertype::IPV6 => self.ipv6(at),
            ethertype::VLAN | ethertype::PROVIDER_VLAN => {
                let tag = VlanHeader::at(self.headers, at)?;
                Some(Next::Network(tag.ethertype.get(), at + VlanHeader::LEN))
            }
            ETHERNET_INSIDE => {
                let inner = EthernetHeader::at(self.headers, at)?;
                Some(Next::Network(inner.ethertype.get(), at + EthernetHeader::LEN))
            }
            PPPOE => {
                self.push(Layer::Pppoe(at))?;
                let protocol = Two::at(self.headers, at + 4)?.second.get();
                let kind = match protocol {
                    0x21 => ethertype::IPV4,
                    0x57 => ethertype::IPV6,
                    _ => return None,
                };
                Some(Next::Network(kind, at + 8))
            }
            _ if MPLS.contains(&kind) => self.mpls(at),
            // Guards judge ARP, and LLC has lengths in the place of a type.
            _ if kind == ethertype::ARP || kind < ethertype::SMALLEST => None,
            _ => Some(Next::Opaque(at)),
        }
    }

    /// Steps over one label.
    fn mpls(&mut self, at: u16) -> Option<Next> {
        let [mpls, _] = MPLS;
        let is_last = self.byte(at + 2)? & 1 == 1;
        let kind = match (is_last, self.byte(at + 4)? >> 4) {
            (false, _) => mpls,
            (true, 4) => ethertype::IPV4,
            (true, 6) => ethertype::IPV6,
            _ => return Some(Next::Opaque(at + 4)),
        };
        Some(Next::Network(kind, at + 4))
    }

    fn ipv4(&mut self, at: u16) -> Option<Next> {
        let ip = Ipv4Header::at(self.headers, at)?;
        let fits = ip.version() == 4 && ip.header_len() >= Ipv4Header::LEN && !ip.is_fragment();
        let next = Next::Transport(ip.protocol, at + ip.header_len());
        self.push(Layer::Ipv4(at))?;
        fits.then_some(next)
    }

    fn ipv6(&mut self, at: u16) -> Option<Next> {
        let ip = Ipv6Header::at(self.headers, at)?;
        if ip.version() != 6 {
            return None;
        }
        self.push(Layer::Ipv6(at))?;
        let (mut protocol, mut next) = (ip.next_header, at + Ipv6Header::LEN);
        while extension::KNOWN.contains(&protocol) {
            let header = ExtensionHeader::at(self.headers, next)?;
            let is_jumbo = protocol == extension::HOP_BY_HOP && self.byte(next + 2)? == JUMBO;
            if protocol == extension::FRAGMENT || is_jumbo {
                return None;
            }
            next = next.checked_add(header.bytes(protocol))?;
            protocol = header.next_header;
        }
        Some(Next::Transport(protocol, next))
    }

    fn transport(&mut self, protocol: u8, at: u16) -> Option<Next> {
        if protocol == self.wanted.protocol && self.wanted.start.is_none_or(|start| start == at) {
            return self.arrive(at);
        }
        match protocol {
            IPV4_INSIDE => Some(Next::Network(ethertype::IPV4, at)),
            IPV6_INSIDE => Some(Next::Network(ethertype::IPV6, at)),
            MPLS_INSIDE => self.mpls(at),
            GRE => self.gre(at),
            udp::PROTOCOL => self.udp(at),
            // What rules and guards judge has nothing inside.
            tcp::PROTOCOL | SCTP | upper::ICMP | upper::ICMPV6 => None,
            _ => Some(Next::Opaque(at)),
        }
    }

    fn udp(&mut self, at: u16) -> Option<Next> {
        let udp = UdpHeader::at(self.headers, at)?;
        let port = udp.destination_port.get();
        self.push(Layer::Udp(at))?;
        let inside = at + UdpHeader::LEN;
        match port {
            _ if VXLAN.contains(&port) => Some(Next::Network(ETHERNET_INSIDE, inside + 8)),
            GENEVE => {
                let options = u16::from(self.byte(inside)? & 0x3f) * 4;
                let kind = Two::at(self.headers, inside)?.second.get();
                Some(Next::Network(kind, inside + 8 + options))
            }
            MPLS_IN_UDP => self.mpls(inside),
            _ if is_dhcp(udp) => None,
            _ => Some(Next::Opaque(inside)),
        }
    }

    /// GRE of RFC 2784 and RFC 2890. A sequence number would have to differ from segment to
    /// segment, and the kernel leaves none to others.
    fn gre(&mut self, at: u16) -> Option<Next> {
        const CHECKSUM: u16 = 0x8000;
        const KEY: u16 = 0x2000;
        let header = Two::at(self.headers, at)?;
        let (flags, kind) = (header.first.get(), header.second.get());
        if flags & !(CHECKSUM | KEY) != 0 {
            return None;
        }
        if flags & CHECKSUM != 0 {
            self.push(Layer::Gre(at))?;
        }
        let words = (flags & CHECKSUM != 0) as u16 + (flags & KEY != 0) as u16;
        Some(Next::Network(kind, at + 4 + 4 * words))
    }

    /// Looks for an IP header that ends where the transport starts, from byte `from` on.
    fn look_back(&mut self, from: u16) -> Option<Next> {
        let start = self.wanted.start?;
        let is_v4 = |at: &u16| {
            Ipv4Header::at(self.headers, *at).is_some_and(|ip| {
                ip.version() == 4
                    && ip.header_len() == start - at
                    && ip.protocol == self.wanted.protocol
                    && !ip.is_fragment()
            })
        };
        let is_v6 = |at: &u16| {
            Ipv6Header::at(self.headers, *at)
                .is_some_and(|ip| ip.version() == 6 && ip.next_header == self.wanted.protocol)
        };
        let in_front = |len: u16| start.checked_sub(len).filter(|at| *at >= from);
        let v6 = in_front(Ipv6Header::LEN).filter(is_v6).map(Layer::Ipv6);
        let v4 = (5..=15).filter_map(|words| in_front(4 * words)).find(is_v4).map(Layer::Ipv4);
        self.push(v4.or(v6)?)?;
        self.arrive(start)
    }

    fn arrive(&mut self, at: u16) -> Option<Next> {
        let len = match self.wanted.protocol {
            tcp::PROTOCOL => {
                let len = TcpHeader::at(self.headers, at)?.header_len();
                (len >= TcpHeader::LEN).then_some(len)?
            }
            udp::PROTOCOL => UdpHeader::LEN,
            SCTP => 12,
            _ => return None,
        };
        (self.found.l4, self.found.payload) = (at, at + len);
        (usize::from(at + len) <= self.headers.len()).then_some(Next::Found)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "frames of a test are short")]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ipv4(protocol: u8, inside: &[u8]) -> Vec<u8> {
        let len = (20 + inside.len() as u16).to_be_bytes();
        let header = [0x45, 0, len[0], len[1], 0, 1, 0, 0, 64, protocol, 0, 0];
        [&header[..], &[10, 0, 0, 1, 10, 0, 0, 2], inside].concat()
    }

    fn ipv6(protocol: u8, inside: &[u8]) -> Vec<u8> {
        let len = (inside.len() as u16).to_be_bytes();
        let header = [0x60, 0, 0, 0, len[0], len[1], protocol, 64];
        [&header[..], &[0xfd; 32], inside].concat()
    }

    fn udp(port: u16, inside: &[u8]) -> Vec<u8> {
        let ([a, b], [c, d]) = (port.to_be_bytes(), (8 + inside.len() as u16).to_be_bytes());
        [&[1, 2, a, b, c, d, 0, 0], inside].concat()
    }

    fn ethernet(kind: u16, inside: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &kind.to_be_bytes(), inside].concat()
    }

    const TCP: [u8; 20] = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0];
    const START: Wanted = Wanted { protocol: tcp::PROTOCOL, start: None };

    /// Returns what is found with the transport's place said, and without.
    fn both(frame: &[u8], start: u16) -> [Option<Layers>; 2] {
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        let said = Wanted { start: Some(start), ..START };
        [said, START].map(|wanted| Layers::find(frame, (kind, 14), wanted))
    }

    #[test]
    fn tunnels_are_read_to_the_transport_inside() {
        use Layer::{Gre, Ipv4, Ipv6, Pppoe, Udp};
        let (four, six) = (ipv4(6, &TCP), ipv6(6, &TCP));
        let vxlan = |inner: &[u8]| [&[8, 0, 0, 0, 0, 0, 7, 0], inner].concat();
        let geneve = [&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[1; 8], &ethernet(0x0800, &four)];
        let gre = [&[0xa0, 0, 0x86, 0xdd, 0, 0, 0, 0, 0, 0, 0, 9][..], &six].concat();
        let labels = [&[0, 1, 0, 64, 0, 1, 1, 64][..], &four].concat();
        let session = [&[0x11, 0, 0, 1, 0, 42, 0, 0x21][..], &four].concat();
        let cases: [(&str, Vec<u8>, &[Layer]); 9] = [
            ("plain", ethernet(0x0800, &four), &[Ipv4(14)]),
            ("IP in IP", ethernet(0x0800, &ipv4(4, &four)), &[Ipv4(14), Ipv4(34)]),
            ("6in4", ethernet(0x0800, &ipv4(41, &six)), &[Ipv4(14), Ipv6(34)]),
            ("4in6", ethernet(0x86dd, &ipv6(4, &four)), &[Ipv6(14), Ipv4(54)]),
            (
                "VXLAN",
                ethernet(0x86dd, &ipv6(17, &udp(4789, &vxlan(&ethernet(0x86dd, &six))))),
                &[Ipv6(14), Udp(54), Ipv6(84)],
            ),
            (
                "Geneve",
                ethernet(0x0800, &ipv4(17, &udp(6081, &geneve.concat()))),
                &[Ipv4(14), Udp(34), Ipv4(72)],
            ),
            ("GRE", ethernet(0x0800, &ipv4(47, &gre)), &[Ipv4(14), Gre(34), Ipv6(46)]),
            ("MPLS", ethernet(0x8847, &labels), &[Ipv4(22)]),
            ("PPPoE", ethernet(0x8864, &session), &[Pppoe(14), Ipv4(22)]),
        ];
        for (name, frame, expected) in cases {
            let l4 = frame.len() as u16 - 20;
            for found in both(&frame, l4) {
                let found = found.unwrap_or_else(|| panic!("{name}"));
                assert_eq!(
                    (found.all(), found.l4, found.payload),
                    (expected, l4, l4 + 20),
                    "{name}"
                );
                assert_eq!(found.end(&frame), Some(frame.len() as u32), "{name}");
            }
        }
    }

    #[test]
    fn what_rules_and_guards_judge_has_no_transport_inside() {
        // What stands in front of the header that would be taken for the inner one.
        let inside = |front: &[u8]| [front, &[0; 4], &ipv4(6, &TCP)].concat();
        let dhcp = |from: u16, to| {
            let mut udp = udp(to, &inside(&[]));
            udp[..2].copy_from_slice(&from.to_be_bytes());
            ethernet(0x0800, &ipv4(17, &udp))
        };
        let judged =
            [1, 6, 58, 132].map(|protocol| ethernet(0x0800, &ipv4(protocol, &inside(&[]))));
        let others = [ethernet(0x0806, &inside(&[])), ethernet(0x0100, &inside(&[0x42, 0x42, 3]))];
        let served = [dhcp(67, 68), dhcp(5000, 67), dhcp(547, 5000), dhcp(5000, 546)];
        for frame in judged.into_iter().chain(others).chain(served) {
            let start = frame.len() as u16 - 20;
            assert_eq!(both(&frame, start), [None, None], "{frame:02x?}");
        }
        let [said, _] = both(&dhcp(5000, 5001), 66);
        assert!(said.is_some(), "any other UDP may be a tunnel");
    }

    #[test]
    fn an_unknown_tunnel_is_read_only_if_its_transport_is_said() {
        let inner = [&[9; 5][..], &ipv4(6, &TCP)].concat();
        let frame = ethernet(0x0800, &ipv4(17, &udp(5555, &inner)));
        let [said, found] = both(&frame, 67);
        assert_eq!(said.unwrap().all(), &[Layer::Ipv4(14), Layer::Udp(34), Layer::Ipv4(47)]);
        assert_eq!(found, None);
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_what_is_found_lies_in_them(
            kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8847, 0x8864, 0x6558, 0x8100]),
            bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(vec![4u8, 6, 17, 41, 47, 0x45, 0x60])], 0..300),
            start: Option<u16>,
            protocol in prop::sample::select(vec![6u8, 17, 132]),
        ) {
            let frame = ethernet(kind, &bytes);
            if let Some(found) = Layers::find(&frame, (kind, 14), Wanted { protocol, start }) {
                prop_assert!(found.l4 < found.payload && usize::from(found.payload) <= frame.len());
                prop_assert!(start.is_none_or(|start| start == found.l4));
                prop_assert!(found.all().iter().any(|layer| layer.is_ip()));
            }
        }
    }
}
