//! ARP for IPv4 over Ethernet (RFC 826), as far as a switch learns from it.

use crate::ethernet::ethertype;
use crate::{Header, Mac, Parsed};
use std::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// The packet, with the address lengths of Ethernet and IPv4.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ArpPacket {
    /// 1: Ethernet.
    pub hardware: U16,
    /// [`ethertype::IPV4`].
    pub protocol: U16,
    /// Bytes of a hardware address, 6.
    pub hardware_length: u8,
    /// Bytes of a protocol address, 4.
    pub protocol_length: u8,
    /// [`ArpPacket::REQUEST`] or [`ArpPacket::REPLY`].
    pub operation: U16,
    /// Who speaks.
    pub sender_mac: Mac,
    /// Their address; unspecified in a probe (RFC 5227).
    pub sender_ip: [u8; 4],
    /// Who is spoken to; meaningless in a request.
    pub target_mac: Mac,
    /// The address asked for.
    pub target_ip: [u8; 4],
}

impl Header for ArpPacket {}

impl ArpPacket {
    /// Who has this address?
    pub const REQUEST: u16 = 1;
    /// I have it.
    pub const REPLY: u16 = 2;

    /// The ARP packet of a frame; `None` where it is none, or of other addresses than Ethernet's and IPv4's.
    pub fn of<'h>(headers: &'h [u8], parsed: &Parsed) -> Option<&'h ArpPacket> {
        if parsed.ethertype != ethertype::ARP {
            return None;
        }
        let packet = ArpPacket::at(headers, parsed.l3)?;
        let lengths = (packet.hardware_length, packet.protocol_length);
        let known = packet.hardware == 1 && packet.protocol == ethertype::IPV4 && lengths == (6, 4);
        known.then_some(packet)
    }

    /// Who says that they have which address; `None` in a probe, which says nothing yet.
    pub fn sender(&self) -> Option<(Mac, Ipv4Addr)> {
        let address = Ipv4Addr::from(self.sender_ip);
        (!address.is_unspecified()).then_some((self.sender_mac, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const REQUEST: &[u8; 42] = b"\xff\xff\xff\xff\xff\xff\x52\x54\0\0\0\x02\x08\x06\
        \0\x01\x08\0\x06\x04\0\x01\x52\x54\0\0\0\x02\x0a\0\0\x02\0\0\0\0\0\0\x0a\0\0\x01";

    fn sender(frame: &[u8]) -> Option<(Mac, Ipv4Addr)> {
        ArpPacket::of(frame, &parse(frame, frame.len())?)?.sender()
    }

    #[test]
    fn a_request_tells_who_asks() {
        let expected = (Mac([0x52, 0x54, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(sender(REQUEST), Some(expected));
    }

    #[test]
    fn a_probe_a_short_packet_and_other_address_lengths_tell_nothing() {
        let mut probe = *REQUEST;
        probe[28..32].fill(0);
        let mut lengths = *REQUEST;
        lengths[18] = 8;
        let mut other = *REQUEST;
        other[13] = 0x07;
        for frame in [&probe[..], &lengths, &other, &REQUEST[..41]] {
            assert_eq!(sender(frame), None, "{frame:02x?}");
        }
    }
}
