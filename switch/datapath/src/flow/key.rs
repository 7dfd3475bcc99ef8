//! A flow as a worker compares it: eight words, made of the headers of one frame.

use super::Flow;
use crate::counters::DropReason;
use crate::frame::hash::mix;
use crate::settings::PortId;
use crate::settings::vlan::Vlan;
use std::net::IpAddr;
use wire::{Mac, Parsed};

/// The number that stands for no port.
const NO_PORT: u16 = u16::MAX;
/// The number that stands for no reason.
const NOT_DROPPED: u8 = u8::MAX;
/// The EtherType of ARP, and the places of its IP addresses.
const ARP: u16 = 0x0806;
const ARP_ADDRESSES: (usize, usize) = (14, 24);

/// What stands where IP addresses and ports may stand.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Has {
    /// Neither addresses nor ports.
    Nothing,
    Ipv4,
    Ipv6,
    /// IPv4 addresses without a protocol.
    Arp,
}

/// Where a frame came from and was to leave.
#[derive(Clone, Copy)]
pub(crate) struct Way<'v> {
    pub(crate) from: Option<PortId>,
    pub(crate) to: Option<PortId>,
    /// The VLAN mode of the port that the frame is tagged for.
    pub(crate) vlan: &'v Vlan,
}

/// A flow, and why its frames were dropped: in word 0 and half of 1 the MAC addresses, then EtherType
/// and VLAN; in 2 to 5 the IP addresses; in 6 the transport's ports, then those of the switch; in 7
/// protocol, reason and [`Has`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Key([u64; 8]);

impl Key {
    /// Reads the flow of a frame, and parses the frame; `None` if it has no addresses.
    pub(super) fn read(
        header: &[u8],
        len: u32,
        way: Way<'_>,
        dropped: Option<DropReason>,
    ) -> Option<(Key, Parsed)> {
        let mut parsed = Parsed::default();
        if !parsed.read(header, len as usize) {
            return None;
        }
        let macs: &[u8; 12] = header.first_chunk()?;
        let (first, rest) = (u64::from_ne_bytes(*macs.first_chunk()?), macs.last_chunk::<4>()?);
        let [group_bit, ..] = *macs;
        let to = way.to.filter(|_| group_bit & 1 == 0 || dropped.is_some());
        let vlan = way.vlan.admit(&parsed).unwrap_or_else(|| parsed.vlan_id());
        let (has, [a, b, c, d]) = addresses(header, &parsed);
        let ports = match parsed.kind.has_ports() {
            true => header.get(usize::from(parsed.l4)..)?.first_chunk().copied()?,
            false => [0; 4],
        };
        let protocol = if has == Has::Ipv4 || has == Has::Ipv6 { parsed.protocol } else { 0 };
        let reason = dropped.map_or(NOT_DROPPED, |reason| reason as u8);
        let second = word(*rest, parsed.ethertype, vlan);
        let numbers = word(ports, number(way.from), number(to));
        let last = u64::from(protocol) | u64::from(reason) << 8 | u64::from(has as u8) << 16;
        let last = last | u64::from(parsed.kind.has_ports()) << 24;
        Some((Key([first, second, a, b, c, d, numbers, last]), parsed))
    }

    /// Returns a hash that nobody who does not know the seed can foresee.
    pub(super) fn hash(&self, seed: u64) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        let one = mix(a ^ seed, b ^ !seed) ^ mix(c ^ seed, d ^ !seed);
        let other = mix(e ^ seed, f ^ !seed) ^ mix(g ^ seed, h ^ !seed);
        mix(one ^ seed, other.rotate_left(32) ^ !seed)
    }

    /// Returns the flow in the words of the API, and why its frames were dropped.
    pub(super) fn flow(&self) -> (Flow, Option<DropReason>) {
        let [first, second, a, b, c, d, numbers, last] = self.0;
        let (last_mac_bytes, ethertype, vlan) = parts(second);
        let [d0, d1, d2, d3, d4, d5, s0, s1] = first.to_ne_bytes();
        let [s2, s3, s4, s5] = last_mac_bytes;
        let ([p0, p1, p2, p3], from, to) = parts(numbers);
        let [protocol, reason, has, has_ports, ..] = last.to_le_bytes();
        let v4 = |word: u64| {
            let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
            (IpAddr::from([a, b, c, d]), IpAddr::from([e, f, g, h]))
        };
        let v6 = |one: u64, other: u64| {
            let mut bytes = [0; 16];
            let words = [one, other].map(u64::to_ne_bytes);
            bytes.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
            IpAddr::from(bytes)
        };
        let is = |what: Has| has == what as u8;
        let addresses = match () {
            () if is(Has::Ipv6) => Some((v6(a, b), v6(c, d))),
            () => (!is(Has::Nothing)).then(|| v4(a)),
        };
        let flow = Flow {
            from: port(from),
            to: port(to),
            vlan,
            source_mac: Mac([s0, s1, s2, s3, s4, s5]),
            destination_mac: Mac([d0, d1, d2, d3, d4, d5]),
            ethertype,
            addresses,
            protocol: (is(Has::Ipv4) || is(Has::Ipv6)).then_some(protocol),
            ports: (has_ports != 0)
                .then(|| (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([p2, p3]))),
        };
        (flow, DropReason::ALL.get(usize::from(reason)).copied())
    }
}

/// Returns the IP addresses of a frame, one behind the other and zeros behind them.
fn addresses(header: &[u8], parsed: &Parsed) -> (Has, [u64; 4]) {
    let nothing = (Has::Nothing, [0; 4]);
    let Some(addresses) = parsed.addresses(header) else {
        return if parsed.ethertype == ARP { arp(header, parsed) } else { nothing };
    };
    match addresses.as_chunks().0 {
        [both] => (Has::Ipv4, [u64::from_ne_bytes(*both), 0, 0, 0]),
        [a, b, c, d] => (Has::Ipv6, [a, b, c, d].map(|word| u64::from_ne_bytes(*word))),
        _ => nothing,
    }
}

/// Returns the IP addresses that ARP is about.
#[cold]
fn arp(header: &[u8], parsed: &Parsed) -> (Has, [u64; 4]) {
    let at = |place: usize| header.get(usize::from(parsed.l3) + place..)?.first_chunk::<4>();
    let (source, destination) = ARP_ADDRESSES;
    match (at(source), at(destination)) {
        (Some([a, b, c, d]), Some([e, f, g, h])) => {
            (Has::Arp, [u64::from_ne_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 0, 0, 0])
        }
        _ => (Has::Nothing, [0; 4]),
    }
}

/// Makes a word of four bytes and two numbers.
fn word(bytes: [u8; 4], one: u16, other: u16) -> u64 {
    u64::from(u32::from_ne_bytes(bytes)) | u64::from(one) << 32 | u64::from(other) << 48
}

/// Takes a word apart again.
#[allow(clippy::cast_possible_truncation, reason = "the parts")]
fn parts(word: u64) -> ([u8; 4], u16, u16) {
    ((word as u32).to_ne_bytes(), (word >> 32) as u16, (word >> 48) as u16)
}

fn number(port: Option<PortId>) -> u16 {
    port.map_or(NO_PORT, |port| port.0)
}

fn port(number: u16) -> Option<PortId> {
    (number != NO_PORT).then_some(PortId(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    const ANY: Way<'_> =
        Way { from: Some(PortId(3)), to: Some(PortId(4)), vlan: &Vlan::Access(10) };

    fn read(frame: &[u8], dropped: Option<DropReason>) -> (Flow, Option<DropReason>) {
        Key::read(frame, u32::try_from(frame.len()).unwrap(), ANY, dropped).unwrap().0.flow()
    }

    /// Returns a UDP packet of IPv4 without payload.
    fn udp() -> Vec<u8> {
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&MACS[..], &[8, 0], &ip, &[0, 7, 1, 0, 0, 8, 0, 0]].concat()
    }

    #[test]
    fn a_flow_is_what_its_headers_say() {
        let (flow, dropped) = read(&udp(), Some(DropReason::AclDenied));
        assert_eq!(dropped, Some(DropReason::AclDenied));
        let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(
            flow,
            Flow {
                from: Some(PortId(3)),
                to: Some(PortId(4)),
                vlan: 10,
                source_mac: Mac([2, 0, 0, 0, 0, 2]),
                destination_mac: Mac([2, 0, 0, 0, 0, 1]),
                ethertype: 0x0800,
                addresses: Some((source.into(), destination.into())),
                protocol: Some(17),
                ports: Some((7, 256)),
            }
        );
        assert_eq!(read(&udp(), None).1, None);
    }

    #[test]
    fn version_6_and_what_is_no_ip_are_told_apart() {
        let ip = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[0xfd; 16], &[0xfe; 16]].concat();
        let (flow, _) = read(&[&MACS[..], &[0x86, 0xdd], &ip].concat(), None);
        assert_eq!(flow.addresses, Some(([0xfd; 16].into(), [0xfe; 16].into())));
        assert_eq!((flow.protocol, flow.ports), (Some(59), None));
        let mut arp = [&MACS[..], &[8, 6], &[0; 28]].concat();
        (arp[28], arp[41]) = (10, 9);
        let (flow, _) = read(&arp, None);
        assert_eq!(flow.addresses, Some(([10, 0, 0, 0].into(), [0, 0, 0, 9].into())));
        assert_eq!((flow.protocol, flow.ports), (None, None));
        let (flow, _) = read(&[&MACS[..], &[0x88, 0xb5], &[0; 40]].concat(), None);
        assert_eq!((flow.ethertype, flow.addresses), (0x88b5, None));
    }

    /// A broadcast to a thousand ports is one flow, and one that was refused names the port.
    #[test]
    fn a_group_is_no_port() {
        let mut frame = udp();
        frame[0] = 0xff;
        assert_eq!(read(&frame, None).0.to, None);
        assert_eq!(read(&frame, Some(DropReason::EgressFull)).0.to, Some(PortId(4)));
    }

    #[test]
    fn the_vlan_is_that_of_the_switch_or_of_a_tag_that_is_not_allowed() {
        let tagged = [&MACS[..], &[0x81, 0, 0, 7, 0x88, 0xb5], &[0; 40]].concat();
        assert_eq!(read(&tagged, Some(DropReason::VlanNotAllowed)).0.vlan, 7);
        assert!(Key::read(&[0; 13], 13, ANY, None).is_none());
    }
}
