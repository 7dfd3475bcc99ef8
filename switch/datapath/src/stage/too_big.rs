//! Too big: answers a packet larger than its egress port's MTU, as a router does, to the port that
//! it came from.
//!
//! The answer is ICMP "fragmentation needed" (RFC 792, RFC 1191) if don't-fragment is set, or
//! ICMPv6 "packet too big" (RFC 4443, 3.2). A switch has no address, so the message's source is the
//! packet's destination, in Ethernet and in IP; no stack compares it with a list of routers. It
//! goes to the sender's addresses, only through the sender's port, so a guest cannot direct it at
//! another. It is built where frames are dropped.

use crate::frame::Frame;
use crate::settings::vlan::Tagging;
use wire::checksum::Sum;
use wire::ethernet::ethertype;
use wire::ipv4::{Ipv4Header, fill_checksum};
use wire::ipv6::Ipv6Header;
use wire::{Header, Kind, Parsed, Traits};
use zerocopy::big_endian::U16;

/// Bytes of the packet that are quoted: all headers of TCP over IPv6 with options, and more than
/// the 8 bytes behind the IP header that are required.
const QUOTED: usize = 128;
/// The largest message: Ethernet with a tag, IPv6, ICMP, quote.
const ROOM: usize = 18 + 40 + 8 + QUOTED;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TTL: u8 = 64;

/// A message about a packet too big, as a frame.
pub(crate) struct Answer {
    room: [u8; ROOM],
    len: usize,
}

impl Answer {
    /// Makes the message about a frame with these private bytes, to a port that takes packets up to
    /// `own` bytes with this tag. `None` if a router would send none.
    pub(crate) fn about(
        frame: &Frame,
        headers: &[u8],
        mtu: u16,
        (own, tagging): (u16, Tagging),
    ) -> Option<Answer> {
        let parsed = &frame.parsed;
        let (to, from) = (headers.get(..6)?, headers.get(6..12)?);
        // A frame with two tags is not answered: a message in the outer tag's VLAN would not reach
        // the sender in the inner one's.
        let may = !parsed.traits.contains(Traits::QINQ) && may_be_answered(parsed, headers);
        if to.first()? & 1 != 0 || !may {
            return None;
        }
        let mut answer = Answer { room: [0; ROOM], len: 0 };
        answer.push(from);
        answer.push(to);
        if let Tagging::Tagged(id) = tagging {
            answer.push(&ethertype::VLAN.to_be_bytes());
            answer.push(&id.to_be_bytes());
        }
        let packet = headers.get(parsed.l3.into()..)?;
        let own = usize::from(own);
        match parsed.traits & (Traits::IPV4 | Traits::IPV6) {
            Traits::IPV4 => answer.push_v4(packet, mtu, own),
            Traits::IPV6 => answer.push_v6(packet, mtu, own),
            _ => None,
        }?;
        Some(answer)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }

    fn push_v4(&mut self, packet: &[u8], mtu: u16, own: usize) -> Option<()> {
        let ip = Ipv4Header::at(packet, 0)?;
        let is_station = |ip: [u8; 4]| !matches!(ip[0], 0 | 127 | 224..);
        let may = is_station(ip.source) && is_station(ip.destination) && ip.dont_fragment();
        if !may {
            return None;
        }
        let quote = quoted(packet, own, 20)?;
        self.push(&ethertype::IPV4.to_be_bytes());
        let start = self.len;
        self.push(&[0x45, 0]);
        self.push(&length(20 + 8 + quote.len()));
        self.push(&[0, 0, 0, 0, TTL, ICMP, 0, 0]);
        self.push(&ip.destination);
        self.push(&ip.source);
        fill_checksum(self.room.get_mut(start..self.len)?);
        self.push_icmp([3, 4], Sum::default(), mtu, quote)
    }

    fn push_v6(&mut self, packet: &[u8], mtu: u16, own: usize) -> Option<()> {
        let ip = Ipv6Header::at(packet, 0)?;
        let is_station = |ip: [u8; 16]| ip[0] != 0xff && ip[..15] != [0; 15];
        if !is_station(ip.source) || !is_station(ip.destination) {
            return None;
        }
        let quote = quoted(packet, own, 40)?;
        let len = length(8 + quote.len());
        self.push(&ethertype::IPV6.to_be_bytes());
        self.push(&[0x60, 0, 0, 0, len[0], len[1], ICMPV6, TTL]);
        self.push(&ip.destination);
        self.push(&ip.source);
        let pseudo =
            Sum::of(&ip.source) + Sum::of(&ip.destination) + Sum::of(&[len[0], len[1], 0, ICMPV6]);
        self.push_icmp([2, 0], pseudo, mtu, quote)
    }

    fn push_icmp(&mut self, kind: [u8; 2], pseudo: Sum, mtu: u16, quote: &[u8]) -> Option<()> {
        let start = self.len;
        self.push(&[kind[0], kind[1], 0, 0, 0, 0]);
        self.push(&mtu.to_be_bytes());
        self.push(quote);
        let sum = pseudo + Sum::of(self.room.get(start..self.len)?);
        self.room.get_mut(start + 2..start + 4)?.copy_from_slice(&sum.finish().to_be_bytes());
        Some(())
    }

    /// Adds bytes, which there is room for.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

/// Returns the start of the packet, as much as fits into the message.
fn quoted(packet: &[u8], own: usize, header: usize) -> Option<&[u8]> {
    let most = QUOTED.min(own.checked_sub(header + 8)?);
    packet.get(..most).or(Some(packet))
}

#[allow(clippy::cast_possible_truncation, reason = "a message is 256 bytes long at most")]
fn length(bytes: usize) -> [u8; 2] {
    (bytes as u16).to_be_bytes()
}

/// Returns whether a router would answer: no error about an error, nor about what it does not
/// understand (RFC 1812, 4.3.2.7 and RFC 4443, 2.4). Among a packet's fragments the first is
/// answered.
fn may_be_answered(parsed: &Parsed, headers: &[u8]) -> bool {
    let kind = headers.get(usize::from(parsed.l4)).copied();
    // The fragment offset, in units of 8 bytes: the upper 13 bits in IPv6, the lower 13 in IPv4.
    let (place, offset) = match parsed.traits.contains(Traits::IPV6) {
        true => (parsed.payload.saturating_sub(6), 0xfff8),
        false => (parsed.l3 + 6, Ipv4Header::OFFSET_MASK),
    };
    let is_first = || U16::at(headers, place).is_some_and(|field| field.get() & offset == 0);
    match (parsed.kind, parsed.protocol) {
        (Kind::NotIp | Kind::Malformed(_), _) => false,
        (Kind::Fragment, protocol) => !matches!(protocol, ICMP | ICMPV6) && is_first(),
        // Echo and echo reply.
        (_, ICMP) => matches!(kind, Some(0 | 8)),
        // An informational message, not an error.
        (_, ICMPV6) => kind.is_some_and(|kind| kind & 0x80 != 0),
        _ => true,
    }
}
