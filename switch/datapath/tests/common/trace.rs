//! Frames as lines of text; see the module above.

use ports::memory::MemoryFrame;
use std::fmt;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// A TCP segment, or train, as a test says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub flow: u8,
    pub v6: bool,
    pub vlan: u16,
    pub sequence: u32,
    pub payload: u32,
    /// The flag byte; ACK unless said otherwise.
    pub flags: u8,
    pub ack: u32,
    pub window: u16,
    pub timestamps: Option<(u32, u32)>,
    pub ttl: u8,
    pub tos: u8,
    pub id: u16,
    pub df: bool,
    pub sack: bool,
    /// An IPv4 option, or an IPv6 destination options header.
    pub ip_option: bool,
    pub fragment: bool,
    /// TCP's reserved bits, AccECN's AE the lowest.
    pub reserved: u8,
    pub urgent: u16,
    /// The timestamp option in front of its padding instead of behind it.
    pub stamp_first: bool,
    /// A tag behind the outer one.
    pub inner_vlan: u16,
    /// The outer tag's.
    pub tpid: u16,
    pub bad: Option<&'static str>,
    /// Segment size of a train, 0 for a plain segment.
    pub gso: u16,
}

const FLAGS: [(char, u8); 8] =
    [('.', 16), ('P', 8), ('S', 2), ('F', 1), ('R', 4), ('U', 32), ('E', 64), ('C', 128)];

/// The defaults.
pub const PLAIN: Segment = Segment {
    flow: 1,
    v6: false,
    vlan: 0,
    sequence: 0,
    payload: 0,
    flags: 16,
    ack: 1,
    window: 500,
    timestamps: None,
    ttl: 64,
    tos: 0,
    id: 0,
    df: true,
    sack: false,
    ip_option: false,
    fragment: false,
    reserved: 0,
    urgent: 0,
    stamp_first: false,
    inner_vlan: 0,
    tpid: 0x8100,
    bad: None,
    gso: 0,
};

impl Segment {
    /// Reads the notation.
    pub fn parse(line: &str) -> Segment {
        let mut segment = PLAIN;
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u32>().unwrap_or_else(|_| panic!("{word} in {line}"));
            match key {
                "ack" => segment.ack = number(),
                "win" => segment.window = number() as u16,
                "ttl" => segment.ttl = number() as u8,
                "tos" => segment.tos = number() as u8,
                "id" => segment.id = number() as u16,
                "df" => segment.df = number() != 0,
                "flow" => segment.flow = number() as u8,
                "ae" => segment.reserved = 1,
                "urg" => segment.urgent = number() as u16,
                "inner" => segment.inner_vlan = number() as u16,
                "provider" => segment.tpid = 0x88a8,
                "vlan" => segment.vlan = number() as u16,
                "gso" => segment.gso = number() as u16,
                "v6" => segment.v6 = true,
                "frag" => segment.fragment = true,
                "ipopt" => segment.ip_option = true,
                "opt" => segment.sack = true,
                "bad" => segment.bad = Some(if value == "ip" { "ip" } else { "tcp" }),
                "ts" => {
                    let (value, echo) = value.split_once('/').unwrap();
                    segment.timestamps = Some((value.parse().unwrap(), echo.parse().unwrap()));
                }
                _ if word.contains('+') => {
                    let (sequence, payload) = word.split_once('+').unwrap();
                    segment.sequence = sequence.parse().unwrap();
                    segment.payload = payload.parse().unwrap();
                }
                flags => segment.flags = flags.chars().map(flag).fold(0, |all, one| all | one),
            }
        }
        segment
    }

    /// Returns the bytes of the payload.
    pub fn data(&self) -> Vec<u8> {
        (0..self.payload).map(|at| byte(self.flow, self.sequence.wrapping_add(at))).collect()
    }

    fn options(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some((value, echo)) = self.timestamps {
            let padding: &[u8] = &[1, 1];
            options.extend(if self.stamp_first { &[] } else { padding });
            options.extend([8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
            options.extend(if self.stamp_first { padding } else { &[] });
        }
        if self.sack {
            options.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        options
    }

    /// Returns the frame, its checksums right unless `bad`. A train's TCP checksum is the
    /// pseudo-header's.
    pub fn frame(&self) -> MemoryFrame {
        let transport = self.transport();
        let mut bytes = vec![2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa];
        if self.vlan != 0 {
            bytes.extend(self.tpid.to_be_bytes());
            bytes.extend(self.vlan.to_be_bytes());
        }
        if self.inner_vlan != 0 {
            bytes.extend([0x81, 0]);
            bytes.extend(self.inner_vlan.to_be_bytes());
        }
        let network = if self.v6 { self.ipv6(transport.len()) } else { self.ipv4(transport.len()) };
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0] });
        bytes.extend(&network);
        let l4 = bytes.len();
        bytes.extend(&transport);
        let mut vnet = VnetHeader::default();
        if self.gso > 0 {
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(l4 as u16);
            vnet.csum_offset.set(16);
            vnet.gso_size.set(self.gso);
            vnet.set_gso(
                if self.v6 { GsoType::Tcp6 } else { GsoType::Tcp4 },
                self.flags & 0xc0 != 0,
            );
        }
        MemoryFrame { vnet, bytes }
    }

    fn transport(&self) -> Vec<u8> {
        let options = self.options();
        let mut tcp = Vec::new();
        tcp.extend([0x10, self.flow, 0x20, self.flow]);
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([((5 + options.len() / 4) as u8) << 4 | self.reserved, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(self.urgent.to_be_bytes());
        tcp.extend(options);
        tcp.extend(self.data());
        let pseudo = self.pseudo(tcp.len());
        let sum = if self.gso > 0 { fold(&pseudo) } else { !fold(&[pseudo, tcp.clone()].concat()) };
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        if self.bad == Some("tcp") {
            tcp[16] ^= 0x40;
        }
        tcp
    }

    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        if self.v6 {
            let address = |last| [&[0xfd; 15][..], &[last]].concat();
            return (address(1), address(2));
        }
        (vec![10, 0, 0, 1], vec![10, 0, 0, 2])
    }

    fn pseudo(&self, len: usize) -> Vec<u8> {
        let (source, destination) = self.addresses();
        [source, destination, vec![0, 6], (len as u32).to_be_bytes().to_vec()].concat()
    }

    fn ipv4(&self, transport: usize) -> Vec<u8> {
        let (source, destination) = self.addresses();
        let options: &[u8] = if self.ip_option { &[1, 1, 1, 0] } else { &[] };
        let length = (20 + options.len() + transport) as u16;
        let offset: u16 = if self.df { 0x4000 } else { 0 } | if self.fragment { 0x2000 } else { 0 };
        let mut ip = vec![0x45 + (options.len() / 4) as u8, self.tos];
        ip.extend(length.to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(offset.to_be_bytes());
        ip.extend([self.ttl, 6, 0, 0]);
        ip.extend([source, destination].concat());
        ip.extend(options);
        let sum = !fold(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        if self.bad == Some("ip") {
            ip[10] ^= 0x55;
        }
        ip
    }

    fn ipv6(&self, transport: usize) -> Vec<u8> {
        let (source, destination) = self.addresses();
        let extension: &[u8] = if self.ip_option { &[6, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
        let mut ip = vec![0x60 | self.tos >> 4, self.tos << 4, 0, 0];
        ip.extend(((transport + extension.len()) as u16).to_be_bytes());
        ip.extend([if self.ip_option { 60 } else { 6 }, self.ttl]);
        ip.extend([source, destination].concat());
        ip.extend(extension);
        ip
    }

    /// Reads a frame that came out of the switch, checking everything a receiver would: lengths,
    /// checksums, payload bytes, and that the virtio header says what the frame is.
    pub fn read(frame: &MemoryFrame) -> Segment {
        let parsed = wire::parse(&frame.bytes, frame.bytes.len()).expect("long enough");
        assert_eq!(parsed.kind, wire::Kind::Tcp, "{frame:?}");
        let bytes = &frame.bytes;
        let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
        let v6 = bytes[l3] >> 4 == 6;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(parsed.end as usize, bytes.len(), "no padding was sent");
        if !v6 {
            assert_eq!(!fold(&bytes[l3..l4]), 0, "IPv4 header checksum");
        }
        let mut segment = Segment {
            flow: bytes[l4 + 1],
            v6,
            vlan: parsed.vlan_id(),
            sequence: long(l4 + 4),
            payload: parsed.payload_len(),
            flags: bytes[l4 + 13],
            ack: long(l4 + 8),
            window: word(l4 + 14),
            reserved: bytes[l4 + 12] & 0xf,
            urgent: word(l4 + 18),
            timestamps: None,
            ttl: if v6 { bytes[l3 + 7] } else { bytes[l3 + 8] },
            tos: if v6 { bytes[l3] << 4 | bytes[l3 + 1] >> 4 } else { bytes[l3 + 1] },
            id: if v6 { 0 } else { word(l3 + 4) },
            df: v6 || word(l3 + 6) & 0x4000 != 0,
            sack: parsed.tcp_options == wire::TcpOptions::Other,
            ip_option: parsed.traits.contains(wire::Traits::IP_OPTIONS),
            ..PLAIN
        };
        if bytes[l4 + 12] >> 4 >= 8 && bytes[l4 + 20..].starts_with(&[1, 1, 8, 10]) {
            segment.timestamps = Some((long(l4 + 24), long(l4 + 28)));
        } else if bytes[l4 + 12] >> 4 >= 8 && bytes[l4 + 20..].starts_with(&[8, 10]) {
            segment.timestamps = Some((long(l4 + 22), long(l4 + 26)));
        }
        segment.check_transport(frame, l4);
        assert_eq!(bytes[usize::from(parsed.payload)..], segment.data(), "payload of {segment}");
        segment
    }

    fn check_transport(&mut self, frame: &MemoryFrame, l4: usize) {
        let transport = &frame.bytes[l4..];
        let pseudo = self.pseudo(transport.len());
        let vnet = &frame.vnet;
        if vnet.flags().contains(Flags::NEEDS_CSUM) {
            assert_eq!((vnet.csum_start.get() as usize, vnet.csum_offset.get()), (l4, 16));
            assert_eq!(
                u16::from_be_bytes([transport[16], transport[17]]),
                fold(&pseudo),
                "unfinished checksum of {self}"
            );
        } else if !fold(&[pseudo, transport.to_vec()].concat()) != 0 {
            self.bad = Some("tcp");
        }
        if vnet.gso() == GsoType::None {
            return;
        }
        assert_eq!(vnet.gso(), if self.v6 { GsoType::Tcp6 } else { GsoType::Tcp4 });
        assert_eq!(vnet.gso_ecn(), self.flags & 0xc0 != 0, "ECN bit of {self}");
        self.gso = vnet.gso_size.get();
        assert!(self.payload > self.gso.into(), "a train has more than one segment: {self}");
        assert_eq!(u32::from(vnet.hdr_len.get()) + self.payload, frame.bytes.len() as u32);
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{} ", self.sequence, self.payload)?;
        FLAGS
            .iter()
            .filter(|(_, bit)| self.flags & bit != 0)
            .try_for_each(|(letter, _)| write!(out, "{letter}"))?;
        let mut field = |name: &str, value: u32, default: u32| {
            if value == default { Ok(()) } else { write!(out, " {name}={value}") }
        };
        field("flow", self.flow.into(), PLAIN.flow.into())?;
        field("vlan", self.vlan.into(), 0)?;
        field("ack", self.ack, PLAIN.ack)?;
        field("win", self.window.into(), PLAIN.window.into())?;
        field("ttl", self.ttl.into(), PLAIN.ttl.into())?;
        field("tos", self.tos.into(), 0)?;
        field("id", self.id.into(), 0)?;
        field("df", self.df.into(), 1)?;
        field("gso", self.gso.into(), 0)?;
        field("reserved", self.reserved.into(), 0)?;
        field("urg", self.urgent.into(), 0)?;
        if let Some((value, echo)) = self.timestamps {
            write!(out, " ts={value}/{echo}")?;
        }
        let words = [
            (self.sack, " opt=sack"),
            (self.ip_option, " ipopt"),
            (self.fragment, " frag"),
            (self.v6, " v6"),
        ];
        words.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| write!(out, "{word}"))?;
        self.bad.map_or(Ok(()), |bad| write!(out, " bad={bad}"))
    }
}

fn flag(letter: char) -> u8 {
    FLAGS.iter().find(|(known, _)| *known == letter).unwrap_or_else(|| panic!("flag {letter}")).1
}

fn byte(flow: u8, sequence: u32) -> u8 {
    (sequence.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ flow
}

/// Returns the sum of the Internet checksum, computed independently of ours.
pub fn fold(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
