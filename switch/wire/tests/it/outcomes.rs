//! Each outcome of the parser by a frame that is one change away from a plain one.

use wire::Kind::{Fragment, Malformed, NotIp, OtherIp, Tcp, Udp};
use wire::Malformed::{
    IpHeaderLength, IpLength, IpVersion, TcpHeaderLength, TooManyExtensions, Truncated, UdpLength,
};
use wire::{Kind, Parsed, Traits, parse};

/// TCP over IPv4: IP at 14, TCP at 34, four bytes of payload at 54.
const TCP4: &[u8] = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\
    \x45\0\0\x2c\0\x01\0\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02\
    \0\x50\0\x51\0\0\0\x01\0\0\0\x02\x50\x10\x01\0\0\0\0\0data";

/// UDP over IPv4: IP at 14, UDP at 34, four bytes of payload at 42.
const UDP4: &[u8] = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\
    \x45\0\0\x20\0\x01\0\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02\
    \0\x50\0\x51\0\x0c\0\0data";

/// TCP over IPv6: IP at 14, TCP at 54, four bytes of payload at 74.
const TCP6: &[u8] = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x86\xdd\
    \x60\0\0\0\0\x18\x06\x40\
    \xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\
    \0\x50\0\x51\0\0\0\x01\0\0\0\x02\x50\x10\x01\0\0\0\0\0data";

fn parsed(frame: &[u8]) -> Parsed {
    parse(frame, frame.len()).unwrap()
}

/// Returns the frame with other bytes at a place.
fn with(frame: &[u8], place: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[place..place + bytes.len()].copy_from_slice(bytes);
    frame
}

/// TCP over IPv6 behind extension headers, which are given as number and bytes behind the next
/// header's number.
fn behind(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let mut frame = TCP6[..54].to_vec();
    let names = extensions.iter().map(|&(number, _)| number).chain([6]);
    let (first, next): (Vec<u8>, Vec<u8>) =
        (names.clone().take(1).collect(), names.skip(1).collect());
    frame[20] = first[0];
    for (&(_, bytes), next) in extensions.iter().zip(next) {
        frame.push(next);
        frame.extend(bytes);
    }
    frame.extend(&TCP6[54..]);
    let length = u16::try_from(frame.len() - 54).unwrap().to_be_bytes();
    with(&frame, 18, &length)
}

#[test]
fn ipv4() {
    let cases: [(&str, Vec<u8>, Kind); 14] = [
        ("plain", TCP4.to_vec(), Tcp),
        ("another version", with(TCP4, 14, &[0x65]), Malformed(IpVersion)),
        ("a header of four words", with(TCP4, 14, &[0x44]), Malformed(IpHeaderLength)),
        ("a total length below the header's", with(TCP4, 16, &[0, 19]), Malformed(IpLength)),
        ("a total length beyond the frame", with(TCP4, 16, &[0, 45]), Malformed(IpLength)),
        ("a frame that ends in the header", TCP4[..33].to_vec(), Malformed(Truncated)),
        ("the first fragment", with(TCP4, 20, &[0x20, 0]), Fragment),
        ("a later fragment", with(TCP4, 20, &[0, 1]), Fragment),
        ("ICMP", with(TCP4, 23, &[1]), OtherIp),
        ("IPv6 in IPv4", with(TCP4, 23, &[41]), OtherIp),
        ("TCP cut short by IP", with(TCP4, 16, &[0, 39]), Malformed(TcpHeaderLength)),
        ("a TCP header of four words", with(TCP4, 46, &[0x40]), Malformed(TcpHeaderLength)),
        ("a TCP header longer than IP", with(TCP4, 46, &[0x70]), Malformed(TcpHeaderLength)),
        ("a TCP header up to IP's end", with(TCP4, 46, &[0x60]), Tcp),
    ];
    for (name, frame, expected) in cases {
        assert_eq!(parsed(&frame).kind, expected, "{name}");
    }
}

#[test]
fn udp() {
    let cases: [(&str, Vec<u8>, Kind); 5] = [
        ("plain", UDP4.to_vec(), Udp),
        ("length 0", with(UDP4, 38, &[0, 0]), Malformed(UdpLength)),
        ("shorter than its header", with(UDP4, 38, &[0, 7]), Malformed(UdpLength)),
        ("longer than IP", with(UDP4, 38, &[0, 13]), Malformed(UdpLength)),
        ("cut short by IP", with(UDP4, 16, &[0, 27]), Malformed(UdpLength)),
    ];
    for (name, frame, expected) in cases {
        assert_eq!(parsed(&frame).kind, expected, "{name}");
    }
    let surplus = parsed(&with(UDP4, 38, &[0, 10]));
    assert_eq!((surplus.kind, surplus.traits), (Udp, Traits::IPV4 | Traits::SURPLUS));
    assert_eq!(surplus.end, 46, "the end stays IP's");
}

#[test]
fn ipv6() {
    let option: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
    let fragment: &[u8] = &[0, 0, 1, 0, 0, 0, 1];
    let atomic: &[u8] = &[0; 7];
    let authentication: &[u8] = &[2; 15];
    let cases: [(&str, Vec<u8>, Kind); 16] = [
        ("plain", TCP6.to_vec(), Tcp),
        ("another version", with(TCP6, 14, &[0x40]), Malformed(IpVersion)),
        ("a length beyond the frame", with(TCP6, 18, &[0, 25]), Malformed(IpLength)),
        ("a frame that ends in the header", TCP6[..53].to_vec(), Malformed(Truncated)),
        ("nothing follows", with(TCP6, 20, &[59]), OtherIp),
        ("ESP", with(TCP6, 20, &[50]), OtherIp),
        ("an unknown protocol", with(TCP6, 20, &[200]), OtherIp),
        ("TCP cut short by IP", with(TCP6, 18, &[0, 19]), Malformed(TcpHeaderLength)),
        (
            "each kind",
            behind(&[(0, option), (43, option), (60, option), (51, authentication)]),
            Tcp,
        ),
        ("a fragment", behind(&[(60, option), (44, fragment)]), Fragment),
        ("an atomic fragment", behind(&[(44, atomic)]), Fragment),
        ("eight extensions", behind(&[(60, option); 8]), Tcp),
        ("nine extensions", behind(&[(60, option); 9]), Malformed(TooManyExtensions)),
        ("an extension beyond IP", behind(&[(60, &[9; 7])]), Malformed(IpLength)),
        (
            "no room for an extension",
            with(&behind(&[(60, option)]), 18, &[0, 7]),
            Malformed(IpLength),
        ),
        ("a jumbogram", with(&behind(&[(0, option)]), 18, &[0, 0]), Malformed(IpLength)),
    ];
    for (name, frame, expected) in cases {
        assert_eq!(parsed(&frame).kind, expected, "{name}");
    }
    assert_eq!(parsed(&with(TCP6, 20, &[59])).l4, 0);
    assert_eq!(parsed(&behind(&[(44, fragment)])).protocol, 6);
}

#[test]
fn tags() {
    let tagged = |tags: &[u8]| [&TCP4[..12], tags, &TCP4[12..]].concat();
    let one = parsed(&tagged(&[0x81, 0, 0x60, 10]));
    assert_eq!((one.kind, one.l3, one.vlan_tci, one.vlan_id()), (Tcp, 18, 0x600a, 10));
    assert_eq!(one.traits, Traits::IPV4 | Traits::VLAN);
    let two = parsed(&tagged(&[0x88, 0xa8, 0, 20, 0x81, 0, 0, 10]));
    assert_eq!((two.kind, two.l3, two.vlan_id()), (Tcp, 22, 20));
    assert_eq!(two.traits, Traits::IPV4 | Traits::VLAN | Traits::QINQ | Traits::SERVICE);
    let three = parsed(&tagged(&[0x81, 0, 0, 3, 0x81, 0, 0, 2, 0x81, 0, 0, 1]));
    assert_eq!((three.kind, three.l3, three.ethertype), (NotIp, 22, 0x8100));
    let cut = parsed(&tagged(&[0x81, 0, 0, 10])[..17]);
    assert_eq!((cut.kind, cut.traits), (Malformed(Truncated), Traits::empty()));
}

#[test]
fn what_is_not_ip() {
    let ieee_802_3 = parsed(&with(TCP4, 12, &[0, 46]));
    assert_eq!((ieee_802_3.kind, ieee_802_3.end), (NotIp, 58));
    let arp = parsed(&with(TCP4, 12, &[8, 6]));
    assert_eq!((arp.kind, arp.traits), (NotIp, Traits::empty()));
    assert_eq!(parse(&TCP4[..13], 13), None);
    assert_eq!(parse(TCP4, 13), None, "the frame's length counts, not what was handed over");
}
