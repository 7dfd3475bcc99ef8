//! Neighbour discovery (RFC 4861), as far as a switch learns from it: what ARP is to IPv4.

use crate::ipv6::Ipv6Header;
use crate::{Header, Kind, Mac, Parsed, Traits};
use std::net::Ipv6Addr;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

/// ICMPv6's number in IP headers.
pub const ICMPV6: u8 = 58;

/// A neighbour solicitation or advertisement without its options.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NeighborMessage {
    /// [`NeighborMessage::SOLICITATION`] or [`NeighborMessage::ADVERTISEMENT`].
    pub kind: u8,
    /// 0.
    pub code: u8,
    /// Over pseudo-header and message.
    pub checksum: U16,
    /// Router, solicited and override in the upper bits of an advertisement.
    pub flags: U32,
    /// The address asked for or spoken of.
    pub target: [u8; 16],
}

impl Header for NeighborMessage {}

impl NeighborMessage {
    /// Who has this address?
    pub const SOLICITATION: u8 = 135;
    /// I have it.
    pub const ADVERTISEMENT: u8 = 136;
}

/// Who says in this frame that they have which address: the source of a solicitation, the target of an advertisement.
/// `None`: another frame, one that came over a router, or one that names no link-layer address (among them the
/// probes of duplicate address detection). The checksum is not looked at.
pub fn sender(headers: &[u8], parsed: &Parsed) -> Option<(Mac, Ipv6Addr)> {
    const SOURCE_ADDRESS: u8 = 1;
    const TARGET_ADDRESS: u8 = 2;
    let is_icmp = parsed.kind == Kind::OtherIp && parsed.protocol == ICMPV6;
    if !is_icmp || !parsed.traits.contains(Traits::IPV6) {
        return None;
    }
    let ip = Ipv6Header::at(headers, parsed.l3)?;
    let end = usize::try_from(parsed.end).ok()?.min(headers.len());
    let message = headers.get(usize::from(parsed.l4)..end)?;
    let (neighbor, options) = NeighborMessage::ref_from_prefix(message).ok()?;
    let (address, option) = match neighbor.kind {
        NeighborMessage::SOLICITATION => (Ipv6Addr::from(ip.source), SOURCE_ADDRESS),
        NeighborMessage::ADVERTISEMENT => (Ipv6Addr::from(neighbor.target), TARGET_ADDRESS),
        _ => return None,
    };
    if ip.hop_limit != 255 || neighbor.code != 0 || address.is_unspecified() {
        return None;
    }
    Some((link_layer_address(options, option)?, address))
}

/// The Ethernet address in the first option of kind `wanted`.
fn link_layer_address(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let [kind, units @ (1..), ..] = options {
        let (option, rest) = options.split_at_checked(usize::from(*units) * 8)?;
        if *kind == wanted {
            return option.get(2..8)?.try_into().ok().map(Mac);
        }
        options = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn advertisement(hop_limit: u8, options: &[u8]) -> Vec<u8> {
        let mut frame = b"\x33\x33\0\0\0\x01\x52\x54\0\0\0\x02\x86\xdd\x60\0\0\0\0".to_vec();
        frame.push(24 + u8::try_from(options.len()).unwrap());
        frame.extend([ICMPV6, hop_limit]);
        frame.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2).octets());
        frame.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
        frame.extend([NeighborMessage::ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0]);
        frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        frame.extend(options);
        frame
    }

    fn sender_of(frame: &[u8]) -> Option<(Mac, Ipv6Addr)> {
        sender(frame, &parse(frame, frame.len())?)
    }

    const TARGET: [u8; 8] = [2, 1, 0x52, 0x54, 0, 0, 0, 2];

    #[test]
    fn an_advertisement_tells_who_has_its_target() {
        let expected = (Mac([0x52, 0x54, 0, 0, 0, 2]), "fd00::2".parse().unwrap());
        assert_eq!(sender_of(&advertisement(255, &TARGET)), Some(expected));
        let behind_a_nonce = [[14, 1, 0, 0, 0, 0, 0, 0], TARGET].concat();
        assert_eq!(sender_of(&advertisement(255, &behind_a_nonce)), Some(expected));
    }

    #[test]
    fn a_solicitation_tells_who_asks() {
        let mut frame = advertisement(255, &[1, 1, 0x52, 0x54, 0, 0, 0, 2]);
        frame[54] = NeighborMessage::SOLICITATION;
        let expected = (Mac([0x52, 0x54, 0, 0, 0, 2]), "fe80::2".parse().unwrap());
        assert_eq!(sender_of(&frame), Some(expected));
    }

    #[test]
    fn routed_cut_and_empty_messages_tell_nothing() {
        assert_eq!(sender_of(&advertisement(64, &TARGET)), None);
        assert_eq!(sender_of(&advertisement(255, &TARGET[..7])), None);
        assert_eq!(sender_of(&advertisement(255, &[2, 0, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(sender_of(&advertisement(255, &[])), None);
    }
}
