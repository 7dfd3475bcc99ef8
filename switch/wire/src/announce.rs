//! Announcements: frames that tell learning switches and neighbours where a station is, after it
//! moved to another host or to another member of a team.
//!
//! Each is written into the caller's buffer, padded to the minimum frame length. There is one
//! announcement per known address of the station; [`rarp`], if none is known, teaches only
//! switches.

use crate::checksum::Sum;
use crate::ethernet::ethertype;
use crate::{Mac, upper};

/// Storage for an announcement. The longest fills it, with its tag.
pub type Buffer = [u8; 90];

/// The shortest frame, without a tag and without its check sequence.
const SHORTEST: usize = 60;

/// Whom an announcement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its address.
    pub mac: Mac,
    /// Priority and id of its VLAN, for the tag; `None` for an untagged frame.
    pub tci: Option<u16>,
}

/// Writes an ARP announcement (RFC 5227, section 2.3): a request for the station's own address.
pub fn gratuitous_arp(buffer: &mut Buffer, station: Station, address: [u8; 4]) -> &[u8] {
    let body = arp_body(1, station.mac, address, [0; 6]);
    frame(buffer, Mac::BROADCAST, station, ethertype::ARP, &[&body])
}

/// Writes a reverse ARP request (RFC 903) of a station with unknown IP addresses.
pub fn rarp(buffer: &mut Buffer, station: Station) -> &[u8] {
    let body = arp_body(3, station.mac, [0; 4], station.mac.0);
    frame(buffer, Mac::BROADCAST, station, ethertype::RARP, &[&body])
}

/// Writes an unsolicited neighbour advertisement to all nodes (RFC 4861, section 7.2.6), which
/// overrides what they have cached.
pub fn unsolicited_advertisement(
    buffer: &mut Buffer,
    station: Station,
    address: [u8; 16],
) -> &[u8] {
    const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const OVERRIDE: u8 = 0x20;
    const LENGTH: u8 = 32;
    let mut message = [0; LENGTH as usize];
    message[0] = 136;
    message[4] = OVERRIDE;
    message[8..24].copy_from_slice(&address);
    // The option of the target's link-layer address, in units of 8 bytes.
    message[24..26].copy_from_slice(&[2, 1]);
    message[26..32].copy_from_slice(&station.mac.0);
    let pseudo = Sum::of(&address) + Sum::of(&ALL_NODES);
    let sum = pseudo.add_u16(LENGTH.into()).add_u16(upper::ICMPV6.into()) + Sum::of(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let ip = [0x60, 0, 0, 0, 0, LENGTH, upper::ICMPV6, 255];
    let parts: [&[u8]; 4] = [&ip, &address, &ALL_NODES, &message];
    frame(buffer, Mac([0x33, 0x33, 0, 0, 0, 1]), station, ethertype::IPV6, &parts)
}

/// Returns an ARP body for IPv4 over Ethernet (RFC 826). `address` is the sender's and the
/// target's.
fn arp_body(operation: u8, sender: Mac, address: [u8; 4], target: [u8; 6]) -> [u8; 28] {
    let mut body = [0; 28];
    body[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
    body[8..14].copy_from_slice(&sender.0);
    body[14..18].copy_from_slice(&address);
    body[18..24].copy_from_slice(&target);
    body[24..].copy_from_slice(&address);
    body
}

fn frame<'b>(
    buffer: &'b mut Buffer,
    destination: Mac,
    station: Station,
    ethertype: u16,
    parts: &[&[u8]],
) -> &'b [u8] {
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(place) = buffer.get_mut(len..len + bytes.len()) {
            place.copy_from_slice(bytes);
            len += bytes.len();
        }
    };
    put(&destination.0);
    put(&station.mac.0);
    let mut shortest = SHORTEST;
    if let Some(tci) = station.tci {
        put(&ethertype::VLAN.to_be_bytes());
        put(&tci.to_be_bytes());
        shortest += 4;
    }
    put(&ethertype.to_be_bytes());
    parts.iter().for_each(|part| put(part));
    let end = len.max(shortest);
    buffer[len..end].fill(0);
    &buffer[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use proptest::prelude::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Packet, Icmpv6Repr, Ipv6Packet,
        NdiscNeighborFlags, NdiscRepr,
    };

    fn stations() -> impl Strategy<Value = Station> {
        let station = |(mac, tci)| Station { mac: Mac(mac), tci };
        any::<([u8; 6], Option<u16>)>().prop_map(station)
    }

    /// Checks the Ethernet header and the tag, and returns the bytes behind them.
    fn packet_of(frame: &[u8], station: Station, to: Mac, ethertype: u16) -> &[u8] {
        let parsed = parse(frame, frame.len()).unwrap();
        assert_eq!(frame[..12], [to.0, station.mac.0].concat());
        assert_eq!((parsed.ethertype, parsed.vlan_tci), (ethertype, station.tci.unwrap_or(0)));
        assert_eq!(parsed.l3, if station.tci.is_some() { 18 } else { 14 });
        assert!(frame.len() >= SHORTEST + usize::from(parsed.l3) - 14);
        &frame[usize::from(parsed.l3)..]
    }

    proptest! {
        #[test]
        fn smoltcp_reads_an_arp_announcement(station in stations(), address: [u8; 4]) {
            let mut buffer = [0xee; 90];
            let frame = gratuitous_arp(&mut buffer, station, address);
            let packet = packet_of(frame, station, Mac::BROADCAST, 0x0806);
            let packet = ArpPacket::new_checked(packet).unwrap();
            prop_assert_eq!(ArpRepr::parse(&packet), Ok(ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Request,
                source_hardware_addr: EthernetAddress(station.mac.0),
                source_protocol_addr: address.into(),
                target_hardware_addr: EthernetAddress([0; 6]),
                target_protocol_addr: address.into(),
            }));
        }

        #[test]
        fn smoltcp_reads_a_neighbour_advertisement(station in stations(), address: [u8; 16]) {
            let mut buffer = [0xee; 90];
            let frame = unsolicited_advertisement(&mut buffer, station, address);
            let all_nodes = "33:33:00:00:00:01".parse().unwrap();
            let packet = Ipv6Packet::new_checked(packet_of(frame, station, all_nodes, 0x86dd)).unwrap();
            prop_assert_eq!(packet.hop_limit(), 255);
            let (from, to) = (packet.src_addr(), packet.dst_addr());
            prop_assert_eq!(from.octets(), address);
            prop_assert_eq!(to, "ff02::1".parse::<std::net::Ipv6Addr>().unwrap());
            let message = Icmpv6Packet::new_checked(packet.payload()).unwrap();
            let read = Icmpv6Repr::parse(&from, &to, &message, &ChecksumCapabilities::default());
            prop_assert_eq!(read, Ok(Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
                flags: NdiscNeighborFlags::OVERRIDE,
                target_addr: address.into(),
                lladdr: Some(EthernetAddress(station.mac.0).into()),
            })));
        }

        #[test]
        fn a_reverse_request_names_the_station_and_no_address(station in stations()) {
            let mut buffer = [0xee; 90];
            let packet = packet_of(rarp(&mut buffer, station), station, Mac::BROADCAST, 0x8035);
            let packet = ArpPacket::new_checked(packet).unwrap();
            prop_assert_eq!(packet.operation(), ArpOperation::Unknown(3));
            prop_assert_eq!(packet.source_hardware_addr(), station.mac.0);
            prop_assert_eq!(packet.target_hardware_addr(), station.mac.0);
            prop_assert_eq!([packet.source_protocol_addr(), packet.target_protocol_addr()], [[0; 4]; 2]);
        }
    }
}
