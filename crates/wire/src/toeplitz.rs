//! The Toeplitz hash of receive-side scaling: which queue a flow belongs to.
//!
//! As Microsoft defines it ("RSS hashing types", "Verifying the RSS hash calculation") and virtio adopts it
//! (virtio 1.2, section 5.1.6.4.3): for every set bit of the input the 32 key bits that stand there are XORed together.
//! [`Toeplitz`] has that worked out in advance for each value of each input byte: 36 KiB, of which a TCP/IPv4 flow
//! touches a third.

use crate::{Kind, Parsed};

/// The longest input: two IPv6 addresses and two ports.
const MAX_INPUT: usize = 36;

/// The secret of the hash. Who knows it can aim all flows at one queue.
#[derive(Clone, Copy, PartialEq, Eq)]
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

    /// The 32 key bits that meet bit `bit` (the highest is 0) of input byte `byte`.
    fn window(&self, byte: usize, bit: usize) -> u32 {
        let mut bytes = [0; 8];
        bytes[..5].copy_from_slice(&self.0[byte..byte + 5]);
        let [a, b, c, d, ..] = (u64::from_be_bytes(bytes) << bit).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// A key made ready for hashing.
pub struct Toeplitz {
    /// For each input byte, for each of its values, the XOR of the key windows of its set bits.
    tables: Box<[[u32; 256]; MAX_INPUT]>,
}

impl Toeplitz {
    /// Works out the tables of a key: some 10,000 steps, for the control path.
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

    /// The hash of `input`, of which the first 36 bytes count.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        self.hash_from(0, input)
    }

    /// What `bytes` add to the hash where `start` bytes of input stand in front of them.
    #[inline]
    fn hash_from(&self, start: usize, bytes: &[u8]) -> u32 {
        let tables = self.tables.iter().skip(start);
        tables.zip(bytes).fold(0, |hash, (table, &byte)| hash ^ table[usize::from(byte)])
    }

    /// The hash of a frame: addresses and ports of TCP and UDP, addresses alone of fragments (also the first, so that all
    /// of a packet goes one way) and of other IP; zero without IP or where IP is malformed.
    #[inline]
    pub fn hash_flow(&self, headers: &[u8], parsed: &Parsed) -> u32 {
        self.try_hash_flow(headers, parsed).unwrap_or_default()
    }

    #[inline]
    fn try_hash_flow(&self, headers: &[u8], parsed: &Parsed) -> Option<u32> {
        if matches!(parsed.kind, Kind::Malformed(_)) {
            return None;
        }
        let addresses = parsed.addresses(headers)?;
        let mut value = self.hash(addresses);
        if matches!(parsed.kind, Kind::Tcp | Kind::Udp) {
            // Both transports start with source and destination port.
            let l4 = usize::from(parsed.l4);
            value ^= self.hash_from(addresses.len(), headers.get(l4..l4 + 4)?);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use proptest::prelude::*;
    use std::net::{IpAddr, SocketAddr};

    /// The definition, bit by bit.
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

    /// A frame without payload.
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
    fn without_ip_there_is_no_hash() {
        let frame = [0u8; 60];
        let parsed = parse(&frame, frame.len()).unwrap();
        let hash = Toeplitz::new(&Key::MICROSOFT).hash_flow(&frame, &parsed);
        assert_eq!(hash, 0);
    }
}
