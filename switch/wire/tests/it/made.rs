//! Well-formed frames made at random, each with what its maker knows about it.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use smoltcp::wire::{IpAddress, Ipv4Packet, TcpPacket, UdpPacket};
use wire::{Kind, TcpOptions};

/// A frame and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) l3: usize,
    pub(crate) l4: usize,
    pub(crate) payload: usize,
    pub(crate) end: usize,
    /// TCP options, placed as if they started at 0 in the frame.
    pub(crate) tcp_options: TcpOptions,
    /// IPv4 options or IPv6 extension headers are there.
    pub(crate) ip_options: bool,
}

#[derive(Clone, Debug)]
enum Transport {
    Tcp { flags: u8, options: (&'static [u8], TcpOptions) },
    Udp,
}

#[derive(Clone, Debug)]
enum Ip {
    /// Words of options.
    V4 { options: usize, dont_fragment: bool },
    /// Numbers of extension headers and their lengths in units of 8 bytes behind the shortest.
    V6 { extensions: Vec<(u8, u8)> },
}

const TCP_OPTIONS: [(&[u8], TcpOptions); 8] = [
    (&[], TcpOptions::None),
    (&[1, 1, 1, 0], TcpOptions::None),
    (&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], TcpOptions::Timestamp(2)),
    (&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1], TcpOptions::Timestamp(0)),
    (&[1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0], TcpOptions::Timestamp(1)),
    (&[2, 4, 5, 180], TcpOptions::Other),
    (&[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7], TcpOptions::Other),
    (&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2], TcpOptions::Other),
];

/// Generates the frames of every combination of tags, IP version, options, transport, payload and
/// padding.
pub(crate) fn frames() -> impl Strategy<Value = Made> {
    let tags = vec((select(vec![0x8100u16, 0x88a8]), any::<u16>()), 0..=2);
    let payload = vec(any::<u8>(), 0..200);
    let padding = prop_oneof![Just(0), 1usize..50];
    (tags, ip(), transport(), payload, padding).prop_map(
        |(tags, ip, transport, payload, padding)| make(&tags, &ip, &transport, &payload, padding),
    )
}

fn ip() -> impl Strategy<Value = Ip> {
    let extensions = subsequence(vec![0u8, 60, 43, 51], 0..=4).prop_flat_map(|kinds| {
        kinds.into_iter().map(|kind| (Just(kind), 0..4u8)).collect::<Vec<_>>()
    });
    prop_oneof![
        (prop_oneof![Just(0), 1usize..=10], any::<bool>())
            .prop_map(|(options, dont_fragment)| Ip::V4 { options, dont_fragment }),
        extensions.prop_map(|extensions| Ip::V6 { extensions }),
    ]
}

fn transport() -> impl Strategy<Value = Transport> {
    let tcp = (any::<u8>(), select(TCP_OPTIONS.to_vec()));
    prop_oneof![
        tcp.prop_map(|(flags, options)| Transport::Tcp { flags, options }),
        Just(Transport::Udp)
    ]
}

fn make(
    tags: &[(u16, u16)],
    ip: &Ip,
    transport: &Transport,
    payload: &[u8],
    padding: usize,
) -> Made {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes().into_iter().chain(tci.to_be_bytes()));
    }
    let (source, destination) = addresses(ip);
    let (header_len, datagram) = datagram(transport, payload, source, destination);
    let protocol = if matches!(transport, Transport::Udp) { 17 } else { 6 };
    let l3 = bytes.len() + 2;
    let ip_options = match ip {
        Ip::V4 { options, dont_fragment } => {
            let fragment = if *dont_fragment { 0x4000 } else { 0 };
            push_ipv4(&mut bytes, *options, fragment, protocol, datagram.len());
            *options > 0
        }
        Ip::V6 { extensions } => {
            push_ipv6(&mut bytes, extensions, protocol, datagram.len());
            !extensions.is_empty()
        }
    };
    let l4 = bytes.len();
    bytes.extend(&datagram);
    let end = bytes.len();
    bytes.resize(end + padding, 0xee);
    let (kind, tcp_options) = match transport {
        Transport::Tcp { options, .. } => (Kind::Tcp, options.1),
        Transport::Udp => (Kind::Udp, TcpOptions::None),
    };
    Made { bytes, kind, l3, l4, payload: l4 + header_len, end, tcp_options, ip_options }
}

fn addresses(ip: &Ip) -> (IpAddress, IpAddress) {
    match ip {
        Ip::V4 { .. } => (IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2)),
        Ip::V6 { .. } => {
            (IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 1), IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 2))
        }
    }
}

/// Transport header and payload, the checksum filled in by smoltcp; and the header's length.
fn datagram(
    transport: &Transport,
    payload: &[u8],
    source: IpAddress,
    destination: IpAddress,
) -> (usize, Vec<u8>) {
    let mut bytes = vec![0x12, 0x34, 0, 80];
    match transport {
        Transport::Tcp { flags, options: (options, _) } => {
            let words = u8::try_from(5 + options.len() / 4).unwrap();
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, words << 4, *flags, 1, 0, 0, 0, 0, 0]);
            bytes.extend(*options);
            let header_len = bytes.len();
            bytes.extend(payload);
            TcpPacket::new_unchecked(&mut bytes[..]).fill_checksum(&source, &destination);
            (header_len, bytes)
        }
        Transport::Udp => {
            let length = u16::try_from(8 + payload.len()).unwrap();
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(payload);
            UdpPacket::new_unchecked(&mut bytes[..]).fill_checksum(&source, &destination);
            (8, bytes)
        }
    }
}

fn push_ipv4(bytes: &mut Vec<u8>, options: usize, fragment: u16, protocol: u8, payload: usize) {
    bytes.extend([8, 0]);
    let l3 = bytes.len();
    let total = u16::try_from(20 + 4 * options + payload).unwrap();
    bytes.extend([0x45 + u8::try_from(options).unwrap(), 0]);
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 7]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.resize(bytes.len() + 4 * options, 1);
    Ipv4Packet::new_unchecked(&mut bytes[l3..]).fill_checksum();
}

fn push_ipv6(bytes: &mut Vec<u8>, extensions: &[(u8, u8)], protocol: u8, payload: usize) {
    // The numbers that name what follows: first in the fixed header, then in each extension.
    let names: Vec<u8> = extensions.iter().map(|&(kind, _)| kind).chain([protocol]).collect();
    let mut walked = Vec::new();
    for (place, &(kind, units)) in extensions.iter().enumerate() {
        let authentication = kind == 51;
        let start = walked.len();
        walked.extend([names[place + 1], if authentication { 2 * units + 2 } else { units }]);
        walked.resize(start + 8 * usize::from(units) + if authentication { 16 } else { 8 }, 0);
    }
    let length = u16::try_from(walked.len() + payload).unwrap();
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend([names[0], 64]);
    for last in [1, 2] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    bytes.extend(walked);
}
