//! The Toeplitz hash of receive-side scaling, which assigns a flow to a queue.
//!
//! Microsoft defines the hash ("RSS hashing types", "Verifying the RSS hash calculation"), and
//! virtio adopts it (virtio 1.2, section 5.1.6.4.3): it is the XOR of the 32 key bits at the
//! position of each set bit of the input. [`Toeplitz`] has a table with the result for each value
//! of each input byte: 36 KiB, of which a TCP/IPv4 flow touches a third.

use crate::ipv6::{ExtensionHeader, Ipv6Header, extension};
use crate::{Header, Kind, Parsed, Traits};
use bitflags::bitflags;

bitflags! {
    /// The fields of a frame that are hashed, with the bits of virtio (1.2, section 5.1.6.4.3.1).
    /// Addresses and ports are hashed if the type of the frame's transport is set, addresses alone
    /// if only the type of its IP version is, otherwise nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HashTypes: u16 {
        /// IPv4: addresses.
        const IPV4 = 1 << 0;
        /// TCP over IPv4: addresses and ports.
        const TCPV4 = 1 << 1;
        /// UDP over IPv4: addresses and ports.
        const UDPV4 = 1 << 2;
        /// IPv6: addresses.
        const IPV6 = 1 << 3;
        /// TCP over IPv6: addresses and ports.
        const TCPV6 = 1 << 4;
        /// UDP over IPv6: addresses and ports.
        const UDPV6 = 1 << 5;
        /// IPv6 with extension headers: the home address instead of the source, and a type 2
        /// routing header's address instead of the destination (RFC 6275), if the frame has them.
        const IPV6_EX = 1 << 6;
        /// The addresses of `IPV6_EX` and the ports, for TCP.
        const TCPV6_EX = 1 << 7;
        /// The addresses of `IPV6_EX` and the ports, for UDP.
        const UDPV6_EX = 1 << 8;
        /// The six types that take addresses from the IP header.
        const PLAIN = 0x3f;
    }
}

/// Returns [`HashTypes::PLAIN`], which the steering program of an uplink hashes.
impl Default for HashTypes {
    fn default() -> HashTypes {
        HashTypes::PLAIN
    }
}

/// The longest input: two IPv6 addresses and two ports.
const MAX_INPUT: usize = 36;

/// The secret key of the hash. A sender that knows it can direct all its flows to one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 40]);

impl Key {
    /// The key of Microsoft's verification suite, which every driver and device has as its default.
    pub const MICROSOFT: Key = Key([
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, //
        0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2,
        0x0c, //
        0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ]);

    /// Returns the 32 key bits at bit `bit` (the highest is 0) of input byte `byte`.
    fn window(&self, byte: usize, bit: usize) -> u32 {
        let mut bytes = [0; 8];
        bytes[..5].copy_from_slice(&self.0[byte..byte + 5]);
        let [a, b, c, d, ..] = (u64::from_be_bytes(bytes) << bit).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// The tables of a key, for hashing.
pub struct Toeplitz {
    /// For each input byte and each of its values, the XOR of the key windows of the set bits.
    tables: Box<[[u32; 256]; MAX_INPUT]>,
}

impl Toeplitz {
    /// Computes the tables of a key, in some 10,000 steps; only for the control path.
    pub fn new(key: &Key) -> Toeplitz {
        let mut tables = Box::new([[0; 256]; MAX_INPUT]);
        for (byte, table) in tables.iter_mut().enumerate() {
            for bit in 0..8 {
                let window = key.window(byte, bit);
                let with_bit = (0..256).filter(|value| value << bit & 0x80 != 0);
                with_bit.for_each(|value| table[value] ^= window);
            }
        }
        Toeplitz { tables }
    }

    /// Returns the hash of the first 36 bytes of `input`.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        self.hash_from(0, input)
    }

    /// Returns what `bytes` add to the hash after `start` bytes of input.
    #[inline]
    fn hash_from(&self, start: usize, bytes: &[u8]) -> u32 {
        let tables = self.tables.iter().skip(start);
        tables.zip(bytes).fold(0, |hash, (table, &byte)| hash ^ table[usize::from(byte)])
    }

    /// Returns the hash of a frame by [`HashTypes::PLAIN`]; zero if the frame has none.
    #[inline]
    pub fn hash_flow(&self, headers: &[u8], parsed: &Parsed) -> u32 {
        self.hash_types(headers, parsed, HashTypes::PLAIN).unwrap_or_default()
    }

    /// Returns the hash of a frame (virtio 1.2, section 5.1.6.4.3). Fragments, also the first, are
    /// hashed without ports, so that all of a packet goes to one queue. `None` if no type of the
    /// frame is set, or the frame is not well-formed IP.
    #[inline]
    pub fn hash_types(&self, headers: &[u8], parsed: &Parsed, types: HashTypes) -> Option<u32> {
        self.hash_and_type(headers, parsed, types).map(|(hash, _)| hash)
    }

    /// Returns the hash of a frame like [`Toeplitz::hash_types`], and the one type by which it was
    /// hashed.
    #[inline]
    pub fn hash_and_type(
        &self,
        headers: &[u8],
        parsed: &Parsed,
        types: HashTypes,
    ) -> Option<(u32, HashTypes)> {
        let transport = match parsed.kind {
            Kind::Malformed(_) => return None,
            Kind::Tcp => HashTypes::TCPV4,
            Kind::Udp => HashTypes::UDPV4,
            _ => HashTypes::empty(),
        };
        let addresses = parsed.addresses(headers)?;
        // The types of each family are in three bits of their own.
        let asked = (HashTypes::IPV4 | transport).bits();
        let set = |family: u32| types.bits() >> family & asked;
        let is_v6 = parsed.traits.contains(Traits::IPV6);
        let is_extended = is_v6 && parsed.traits.contains(Traits::IP_OPTIONS) && set(6) != 0;
        let family = if is_extended { 6 } else { 3 * u32::from(is_v6) };
        let set = set(family);
        if set == 0 {
            return None;
        }
        let value = match is_extended {
            true => self.hash_extended(headers, parsed, addresses),
            false => self.hash(addresses),
        };
        let of_family = |kind: HashTypes| HashTypes::from_bits_truncate(kind.bits() << family);
        if set & transport.bits() == 0 {
            return Some((value, of_family(HashTypes::IPV4)));
        }
        // Both transports start with source and destination port.
        let l4 = usize::from(parsed.l4);
        let ports = self.hash_from(addresses.len(), headers.get(l4..l4 + 4)?);
        Some((value ^ ports, of_family(transport)))
    }

    /// Returns what the two addresses of mobile IPv6 add to the hash.
    #[cold]
    fn hash_extended(&self, headers: &[u8], parsed: &Parsed, addresses: &[u8]) -> u32 {
        let (mut source, mut destination) = addresses.split_at(addresses.len() / 2);
        let (mut at, end) = (parsed.l3 + Ipv6Header::LEN, parsed.payload);
        let mut kind = Ipv6Header::at(headers, parsed.l3).map_or(0, |ip| ip.next_header);
        while extension::KNOWN.contains(&kind)
            && at < end
            && let Some(header) = ExtensionHeader::at(headers, at)
        {
            let next = at + header.bytes(kind);
            let bytes = headers.get(at.into()..next.into()).unwrap_or_default();
            match kind {
                extension::DESTINATION => source = home_address(bytes).unwrap_or(source),
                extension::ROUTING => destination = routed_address(bytes).unwrap_or(destination),
                extension::FRAGMENT => break,
                _ => {}
            }
            (kind, at) = (header.next_header, next);
        }
        self.hash(source) ^ self.hash_from(source.len(), destination)
    }
}

/// Returns the address in the home address option (RFC 6275, section 6.3) of a destination options
/// header.
fn home_address(header: &[u8]) -> Option<&[u8]> {
    const PADDING: u8 = 0;
    const HOME_ADDRESS: u8 = 201;
    let mut options = header.get(2..)?;
    while let [kind, rest @ ..] = options {
        options = rest;
        if *kind == PADDING {
            continue;
        }
        let (length, rest) = rest.split_first()?;
        let value = rest.get(..usize::from(*length))?;
        if *kind == HOME_ADDRESS && value.len() == 16 {
            return Some(value);
        }
        options = rest.get(value.len()..)?;
    }
    None
}

/// Returns the address in a routing header of type 2 (RFC 6275, section 6.4).
fn routed_address(header: &[u8]) -> Option<&[u8]> {
    const TYPE_2: u8 = 2;
    (header.len() == 24 && header.get(2) == Some(&TYPE_2)).then(|| header.get(8..))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use proptest::prelude::*;
    use std::net::{IpAddr, SocketAddr};

    /// Computes the hash bit by bit, as it is defined.
    fn by_definition(key: &Key, input: &[u8]) -> u32 {
        let key_bit = |place: usize| u32::from(key.0[place / 8] >> (7 - place % 8) & 1);
        let mut hash = 0;
        for place in 0..input.len() * 8 {
            if input[place / 8] >> (7 - place % 8) & 1 == 1 {
                hash ^= (place..place + 32).fold(0, |window, bit| window << 1 | key_bit(bit));
            }
        }
        hash
    }

    proptest! {
        #[test]
        fn tables_give_what_the_definition_says(
            key: [u8; 20], rest: [u8; 20], input in proptest::collection::vec(any::<u8>(), 0..=36),
        ) {
            let mut bytes = [0; 40];
            bytes[..20].copy_from_slice(&key);
            bytes[20..].copy_from_slice(&rest);
            let key = Key(bytes);
            prop_assert_eq!(Toeplitz::new(&key).hash(&input), by_definition(&key, &input));
        }
    }

    /// Source, destination, hash with ports, hash of the addresses, as Microsoft publishes them.
    const PUBLISHED: [(&str, &str, u32, u32); 8] = [
        ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178, 0x323e_8fc2),
        ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea, 0xd718_262a),
        ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a, 0xd2d0_a5de),
        ("38.27.205.30:48228", "209.142.163.6:2217", 0xafc7_327f, 0x8298_9176),
        ("153.39.163.191:44251", "202.188.127.2:1303", 0x10e8_28a2, 0x5d18_09c5),
        ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x4020_7d3d, 0x2cc1_8cd5),
        ("[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0xdde5_1bbf, 0x0f0c_461c),
        (
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            "[fe80::200:f8ff:fe21:67cf]:38024",
            0x02d1_feef,
            0x4b61_e985,
        ),
    ];

    /// Returns a frame without payload.
    fn frame(source: SocketAddr, destination: SocketAddr, protocol: u8, fragment: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let more = if fragment { 0x20 } else { 0 };
                frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, more, 0, 64, protocol, 0, 0]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (next, length) = if fragment { (44, 28) } else { (protocol, 20) };
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, next, 64]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
                if fragment {
                    frame.extend([protocol, 0, 0, 1, 0, 0, 0, 0]);
                }
            }
            _ => panic!("two families"),
        }
        frame.extend(source.port().to_be_bytes());
        frame.extend(destination.port().to_be_bytes());
        frame.extend([0, 20, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn published_vectors() {
        let toeplitz = Toeplitz::new(&Key::MICROSOFT);
        for (source, destination, with_ports, addresses) in PUBLISHED {
            let [source, destination]: [SocketAddr; 2] =
                [source, destination].map(|text| text.parse().unwrap());
            let hash = |protocol, fragment| {
                let frame = frame(source, destination, protocol, fragment);
                toeplitz.hash_flow(&frame, &parse(&frame, frame.len()).unwrap())
            };
            assert_eq!((hash(6, false), hash(17, false)), (with_ports, with_ports));
            assert_eq!((hash(6, true), hash(47, false)), (addresses, addresses));
        }
    }

    #[test]
    fn without_its_type_a_frame_is_hashed_by_addresses_or_not_at_all() {
        let toeplitz = Toeplitz::new(&Key::MICROSOFT);
        for (source, destination, with_ports, addresses) in PUBLISHED {
            let [source, destination]: [SocketAddr; 2] =
                [source, destination].map(|text| text.parse().unwrap());
            let hash = |protocol, fragment, types| {
                let frame = frame(source, destination, protocol, fragment);
                let parsed = parse(&frame, frame.len()).unwrap();
                toeplitz.hash_types(&frame, &parsed, types)
            };
            let (ip, tcp) = match source.is_ipv4() {
                true => (HashTypes::IPV4, HashTypes::TCPV4),
                false => (HashTypes::IPV6, HashTypes::TCPV6),
            };
            let extended = HashTypes::IPV6_EX | HashTypes::TCPV6_EX | HashTypes::UDPV6_EX;
            let named = |protocol, fragment| {
                let frame = frame(source, destination, protocol, fragment);
                let parsed = parse(&frame, frame.len()).unwrap();
                toeplitz.hash_and_type(&frame, &parsed, HashTypes::all())
            };
            let plain = (ip, tcp, addresses, with_ports);
            assert_eq!(named(6, false), Some((plain.3, plain.1)));
            assert_eq!(named(47, false), Some((plain.2, plain.0)));
            assert_eq!(hash(6, false, tcp), Some(with_ports));
            assert_eq!(hash(6, false, ip), Some(addresses));
            assert_eq!(hash(17, false, ip | tcp), Some(addresses));
            assert_eq!(hash(17, false, tcp), None);
            assert_eq!(hash(6, true, tcp), None);
            assert_eq!(hash(6, true, ip | tcp), Some(addresses));
            assert_eq!(hash(6, false, extended), None, "no extension header");
            assert_eq!(hash(6, false, HashTypes::empty()), None);
        }
    }

    #[test]
    fn without_ip_there_is_no_hash() {
        let frame = [0u8; 60];
        let parsed = parse(&frame, frame.len()).unwrap();
        let hash = Toeplitz::new(&Key::MICROSOFT).hash_flow(&frame, &parsed);
        assert_eq!(hash, 0);
    }
}
