//! What a frame carries above Ethernet, for filters: read down to its transport, through fragments,
//! or [`Upper::Hidden`].
//!
//! A filter must not be passed by a frame that it reads in one way and a receiver in another. So
//! whatever this crate cannot read and a receiver might is `Hidden`: malformed IP, a third VLAN
//! tag, LLC/SNAP in front of IP (CVE-2021-27853 and its siblings), a first fragment without the
//! start of its transport (RFC 7112, RFC 7113 section 3), and a later one of IPv6 that names an
//! extension header instead of the transport, or begins where the transport may be.

use crate::ethernet::ethertype;
use crate::ipv6::{ExtensionHeader, extension};
use crate::{Kind, Parsed, Traits, tcp, udp};

/// ICMP's number in IPv4 headers.
pub const ICMP: u8 = 1;
/// ICMPv6's number in IPv6 headers.
pub const ICMPV6: u8 = 58;

/// Bytes of transport that the first fragment must carry: ports, or type and code. Fragments come
/// in units of as many.
const FIRST_FRAGMENT: usize = 8;

/// Bytes of a packet within which its transport begins, or it is hidden: no more headers are copied.
/// A later IPv6 fragment that begins within them may overwrite a transport behind extension headers,
/// at a receiver that keeps the last copy of a byte, and the protocol that it names itself counts for
/// nothing (RFC 8200, section 4.5).
const FARTHEST_TRANSPORT: u16 = 512;

/// The protocol above Ethernet and its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// ARP, at [`Parsed::l3`].
    Arp,
    /// IP; where the transport of this number starts, `None` in a fragment that is not the first.
    Ip(u8, Option<u16>),
    /// Neither IP nor ARP.
    Other,
    /// Not readable; a receiver may take it for any of the others.
    Hidden,
}

impl Upper {
    /// Reads `headers`, which are what `parsed` was made from.
    #[inline]
    pub fn of(headers: &[u8], parsed: &Parsed) -> Upper {
        if parsed.kind.has_ports() {
            return Upper::Ip(parsed.protocol, Some(parsed.l4));
        }
        of_other(headers, parsed)
    }
}

#[cold]
fn of_other(headers: &[u8], parsed: &Parsed) -> Upper {
    match parsed.kind {
        Kind::Tcp | Kind::Udp | Kind::OtherIp => Upper::Ip(parsed.protocol, Some(parsed.payload)),
        Kind::Fragment => fragment(headers, parsed).unwrap_or(Upper::Hidden),
        Kind::Malformed(_) => Upper::Hidden,
        Kind::NotIp => not_ip(headers, parsed),
    }
}

fn not_ip(headers: &[u8], parsed: &Parsed) -> Upper {
    const SNAP: u8 = 0xaa;
    // The tags of switches before 802.1ad.
    const OLD_TAGS: std::ops::RangeInclusive<u16> = 0x9100..=0x9300;
    let snap = headers.get(usize::from(parsed.l3)) == Some(&SNAP);
    match parsed.ethertype {
        ethertype::ARP => Upper::Arp,
        ethertype::VLAN | ethertype::PROVIDER_VLAN => Upper::Hidden,
        kind if OLD_TAGS.contains(&kind) || kind < ethertype::SMALLEST && snap => Upper::Hidden,
        _ => Upper::Other,
    }
}

/// `None`: hidden.
fn fragment(headers: &[u8], parsed: &Parsed) -> Option<Upper> {
    let headers = headers.get(..parsed.end as usize).unwrap_or(headers);
    let payload = usize::from(parsed.payload);
    let is_v4 = parsed.traits.contains(Traits::IPV4);
    let offset_at = if is_v4 { usize::from(parsed.l3) + 6 } else { payload.checked_sub(6)? };
    let offset_mask = if is_v4 { 0x1fff } else { 0xfff8 };
    let offset = u16::from_be_bytes(*headers.get(offset_at..)?.first_chunk()?);
    if offset & offset_mask != 0 {
        let is_far = is_v4 || offset & offset_mask >= FARTHEST_TRANSPORT;
        let is_named = is_far && (is_v4 || !extension::KNOWN.contains(&parsed.protocol));
        return is_named.then_some(Upper::Ip(parsed.protocol, None));
    }
    let start = (parsed.protocol, payload);
    let (protocol, at) = if is_v4 { start } else { behind_extensions(headers, start)? };
    headers.get(at..at + FIRST_FRAGMENT)?;
    Some(Upper::Ip(protocol, Some(u16::try_from(at).ok()?)))
}

/// Walks what follows a fragment header; a second one is hidden.
fn behind_extensions(headers: &[u8], (mut protocol, mut at): (u8, usize)) -> Option<(u8, usize)> {
    for _ in 0..8 {
        let [next_header, length, ..] = *headers.get(at..)?.first_chunk::<8>()?;
        match protocol {
            extension::FRAGMENT => return None,
            known if extension::KNOWN.contains(&known) => {}
            _ => return Some((protocol, at)),
        }
        at += usize::from(ExtensionHeader { next_header, length }.bytes(protocol));
        protocol = next_header;
    }
    None
}

/// Returns the source and destination port. TCP and UDP both have them in their first four bytes.
#[inline]
pub fn ports(headers: &[u8], protocol: u8, l4: u16) -> Option<(u16, u16)> {
    let l4 = usize::from(l4);
    let bytes: &[u8; 4] = headers.get(l4..l4 + 4)?.first_chunk()?;
    let [a, b, c, d] = *bytes;
    let ported = matches!(protocol, tcp::PROTOCOL | udp::PROTOCOL);
    ported.then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use etherparse::{IpNumber, Ipv6FragmentHeader, Ipv6RawExtHeader, PacketBuilder};

    fn upper(frame: &[u8]) -> Upper {
        Upper::of(frame, &parse(frame, frame.len()).unwrap())
    }

    /// Returns an IPv6 packet behind so many tags: these extension headers, then the transport's
    /// bytes.
    fn v6(tags: usize, first: u8, chain: &[&[u8]]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 0]));
        let length = chain.concat().len().to_be_bytes();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[6], length[7], first, 255]);
        frame.extend([[0xfe; 16], [0xff; 16]].concat());
        frame.extend(chain.concat());
        frame
    }

    fn options(next: u8, bytes: &[u8]) -> Vec<u8> {
        let header = Ipv6RawExtHeader::new_raw(IpNumber(next), bytes).unwrap();
        header.to_bytes().to_vec()
    }

    fn fragment(next: u8, units: u16, more: bool) -> Vec<u8> {
        let units = units.try_into().unwrap();
        Ipv6FragmentHeader::new(IpNumber(next), units, more, 7).to_bytes().to_vec()
    }

    #[test]
    fn a_chain_of_extension_headers_is_walked_to_the_transport() {
        let advertisement = [134, 0, 0, 0, 0, 0, 0, 0];
        let chain = [&options(60, &[0; 6])[..], &options(58, &[0; 14]), &advertisement];
        assert_eq!(upper(&v6(0, 0, &chain)), Upper::Ip(58, Some(14 + 40 + 24)));
        assert_eq!(upper(&v6(2, 0, &chain)), Upper::Ip(58, Some(22 + 40 + 24)));
        assert_eq!(upper(&v6(3, 0, &chain)), Upper::Hidden);
        let atomic = [&fragment(60, 0, false)[..], &options(58, &[0; 6]), &advertisement];
        assert_eq!(upper(&v6(0, 44, &atomic)), Upper::Ip(58, Some(14 + 40 + 16)));
    }

    #[test]
    fn a_first_fragment_without_its_transport_is_hidden() {
        let padding = options(58, &[0; 6]);
        assert_eq!(upper(&v6(0, 44, &[&fragment(60, 0, true), &padding])), Upper::Hidden);
        assert_eq!(upper(&v6(0, 44, &[&fragment(58, 0, true), &[134; 7]])), Upper::Hidden);
        let second = fragment(44, 0, true);
        assert_eq!(upper(&v6(0, 44, &[&second, &second, &[134; 8]])), Upper::Hidden);
        assert_eq!(upper(&v6(0, 44, &[&fragment(58, 64, false), &[0; 8]])), Upper::Ip(58, None));
    }

    /// A rule against a protocol let such fragments pass, whose transport only the first one names.
    #[test]
    fn a_later_fragment_that_names_an_extension_header_is_hidden() {
        for named in extension::KNOWN {
            assert_eq!(upper(&v6(0, 44, &[&fragment(named, 64, false), &[0; 8]])), Upper::Hidden);
        }
        let mut v4 = Vec::new();
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let ip = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        ip.write(&mut v4, IpNumber(60), &[0; 8]).unwrap();
        v4[21] = 1;
        assert_eq!(upper(&v4), Upper::Ip(60, None));
    }

    /// The first fragment has a destination option and UDP to port 80, this one UDP to port 53 in the
    /// place of that, and names TCP: a rule against UDP to port 53 let both pass.
    #[test]
    fn a_later_fragment_in_the_place_of_the_transport_is_hidden() {
        for units in [1, 2, 63] {
            assert_eq!(upper(&v6(0, 44, &[&fragment(6, units, false), &[0; 8]])), Upper::Hidden);
        }
    }

    #[test]
    fn padding_behind_the_packet_is_not_read_as_transport() {
        let mut frame = v6(0, 44, &[&fragment(58, 0, true)]);
        frame.extend([128; 8]);
        assert_eq!(upper(&frame), Upper::Hidden);
    }

    #[test]
    fn ipv4_fragments_carry_their_transport_in_the_first() {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let mut frame = Vec::new();
        builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(67, 68).write(&mut frame, b"").unwrap();
        assert_eq!(upper(&frame), Upper::Ip(17, Some(34)));
        assert_eq!(ports(&frame, 17, 34), Some((67, 68)));
        frame[20] = 0x20;
        assert_eq!(upper(&frame), Upper::Ip(17, Some(34)));
        frame[21] = 1;
        assert_eq!(upper(&frame), Upper::Ip(17, None));
    }

    #[test]
    fn what_else_is_not_ip() {
        let mut frame = vec![2; 60];
        frame[12..17].copy_from_slice(&[8, 6, 0, 1, 8]);
        assert_eq!(upper(&frame), Upper::Arp);
        frame[12..17].copy_from_slice(&[0, 46, 0xaa, 0xaa, 3]);
        assert_eq!(upper(&frame), Upper::Hidden, "SNAP");
        frame[14] = 0x42;
        assert_eq!(upper(&frame), Upper::Other, "spanning tree");
    }
}
