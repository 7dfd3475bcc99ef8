//! Frames of conversations between stations, as they are and with something wrong.

use bolero::TypeGenerator;
use ports::memory::MemoryFrame;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Longest frame that a run of the kernel's programs takes.
const LONGEST: usize = 3400;

/// A flow in both directions.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(super) struct Conversation {
    ends: [u8; 2],
    kind: u8,
}

/// A station: its place behind a port, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) port: u8,
    place: u8,
}

impl Station {
    pub(super) fn of(number: u8, ports: u8) -> Station {
        Station { port: number % ports, place: number / 128 }
    }

    pub(super) fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, self.port, self.place]
    }

    pub(super) fn v4(self) -> [u8; 4] {
        [10, 0, self.port, self.place]
    }

    fn v6(self) -> [u8; 16] {
        [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, self.port, self.place]
    }
}

impl Conversation {
    /// Returns a TCP connection over IPv4 between two stations, by number.
    pub(super) fn tcp(ends: (u8, u8)) -> Conversation {
        Conversation { ends: ends.into(), kind: 0x42 }
    }

    /// Returns both stations, the sender first.
    pub(super) fn ends(self, is_answer: bool, ports: u8) -> [Station; 2] {
        let [first, second] = self.ends;
        let one = Station::of(first, ports);
        let mut other = Station::of(second, ports);
        if other.port == one.port {
            other.port = (other.port + 1) % ports;
        }
        if is_answer { [other, one] } else { [one, other] }
    }

    /// Returns the next frame of a sender.
    pub(super) fn frame(self, is_answer: bool, ends: [Station; 2]) -> Sketch {
        let ports = match self.kind >> 5 {
            0 => [68, 67],
            1 => [546, 547],
            _ => [4000, 5001],
        };
        let ports = if is_answer { [ports[1], ports[0]] } else { ports };
        Sketch {
            ends,
            ports,
            is_v6: self.kind & 1 != 0,
            is_tcp: self.kind & 6 != 0,
            flags: 0x10,
            payload: 100,
            segment_size: 0,
            edits: Edits::default(),
        }
    }
}

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketch {
    ends: [Station; 2],
    ports: [u16; 2],
    is_v6: bool,
    is_tcp: bool,
    flags: u8,
    payload: usize,
    segment_size: u16,
    edits: Edits,
}

/// What is unusual about it.
#[derive(Clone, Copy, Debug, Default)]
struct Edits {
    tag: Option<u16>,
    /// Words of options of IPv4, or TCP.
    ip_options: u8,
    tcp_options: u8,
    /// IPv4's flags and offset.
    fragment: u16,
    /// The first byte behind its IPv6 header is an extension's.
    extension: Option<u8>,
    /// Added to IP's and UDP's length.
    ip_length: i16,
    udp_length: i16,
    trailing: usize,
    cut: usize,
    to_group: bool,
    byte: Option<(usize, u8)>,
    ethertype: Option<u16>,
}

/// A frame as an interface receives it.
#[derive(Debug)]
pub(super) struct Written {
    /// The tag beside the bytes.
    pub(super) tag: Option<u16>,
    pub(super) bytes: Vec<u8>,
    pub(super) vnet: VnetHeader,
}

impl Written {
    /// Returns the frame with its tag, as a memory port has it.
    pub(super) fn whole(&self) -> MemoryFrame {
        let mut bytes = self.bytes.clone();
        let mut vnet = self.vnet;
        if let Some(tag) = self.tag {
            let [high, low] = tag.to_be_bytes();
            bytes.splice(12..12, [0x81, 0, high, low]);
            if vnet.flags().contains(Flags::NEEDS_CSUM) {
                vnet.csum_start.set(vnet.csum_start.get() + 4);
            }
        }
        MemoryFrame { vnet, bytes }
    }

    pub(super) fn segments(&self) -> u16 {
        let size = self.vnet.gso_size.get();
        if size == 0 { 0 } else { self.bytes.len().div_ceil(size.into()) as u16 }
    }
}

impl Sketch {
    /// Makes something unusual.
    pub(super) fn edit(&mut self, edit: u8, [first, second]: [u16; 2]) {
        let edits = &mut self.edits;
        let small = (first % 9) as i16 - 4;
        match edit % 20 {
            0 => edits.tag = Some(first & 0xe003),
            1 => self.flags = first as u8,
            2 => edits.ip_options = 1 + (first % 10) as u8,
            3 => edits.fragment = [0x4000, 0x2000, 0x8000, 0x0001, first][usize::from(second % 5)],
            4 => edits.ip_length = small,
            5 => edits.trailing = usize::from(first % 64),
            6 => {
                let mtu = super::change::MTUS[usize::from(first) % super::change::MTUS.len()];
                let headers = if self.is_v6 { 40 } else { 20 } + if self.is_tcp { 20 } else { 8 };
                self.payload = usize::from(mtu - headers + second % 5 - 2);
            }
            7..=9 => {
                self.payload = usize::from(first % 3000);
                self.segment_size = match second % 4 {
                    0 => second / 4 % 64,
                    1 => second / 4 % 2000,
                    _ => super::change::MTUS[usize::from(second / 4) % 3] - 45 + first % 12,
                };
                if edit % 20 == 9 {
                    edits.trailing = usize::from(first % 8);
                }
            }
            10 => edits.extension = Some([0, 43, 44, 50, 60, first as u8][usize::from(second % 6)]),
            11 => edits.tcp_options = (first % 11) as u8,
            12 => edits.udp_length = small,
            13 => edits.cut = usize::from(first % 60),
            14 => edits.to_group = true,
            15 => {
                edits.ethertype =
                    Some([0x0806, 0x8100, 0x88a8, 100, first][usize::from(second % 5)])
            }
            16 => self.payload = usize::from(first % 8),
            17 => self.flags = 1 << (first % 8) | 0x10,
            _ => edits.byte = Some((usize::from(first % 80), second as u8)),
        }
    }

    /// Has it open or accept a connection.
    pub(super) fn open(&mut self, is_answer: bool) {
        self.flags = if is_answer { 0x12 } else { 0x02 };
        self.payload = 0;
    }

    pub(super) fn write(&self) -> Written {
        let Edits { trailing, cut, byte, tag, .. } = self.edits;
        let transport = self.transport();
        let mut bytes = self.ethernet();
        bytes.extend(self.network(transport.len()));
        let start = bytes.len();
        bytes.extend(transport);
        bytes.resize(bytes.len() + trailing, 0xee);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        bytes.resize(bytes.len().clamp(15, LONGEST), 0);
        if let Some((at, value)) = byte
            && let Some(place) = bytes.get_mut(at)
        {
            *place = value;
        }
        let mut vnet = VnetHeader::default();
        if self.segment_size > 0 {
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(start as u16);
            vnet.csum_offset.set(if self.is_tcp { 16 } else { 6 });
            let kind = match (self.is_tcp, self.is_v6) {
                (false, _) => GsoType::UdpL4,
                (true, false) => GsoType::Tcp4,
                (true, true) => GsoType::Tcp6,
            };
            vnet.set_gso(kind, false);
            vnet.gso_size.set(self.segment_size);
        }
        Written { tag, bytes, vnet }
    }

    fn ethernet(&self) -> Vec<u8> {
        let [from, to] = self.ends.map(Station::mac);
        let mut bytes = [to, from].concat();
        bytes[0] |= u8::from(self.edits.to_group);
        let ethertype = if self.is_v6 { 0x86dd } else { 0x0800 };
        bytes.extend(self.edits.ethertype.unwrap_or(ethertype).to_be_bytes());
        bytes
    }

    fn network(&self, transport: usize) -> Vec<u8> {
        let [from, to] = self.ends;
        let length = |bytes: usize| (bytes as u16).wrapping_add_signed(self.edits.ip_length);
        let protocol = if self.is_tcp { 6 } else { 17 };
        if self.is_v6 {
            let extension =
                self.edits.extension.map_or(vec![], |_| vec![protocol, 0, 1, 4, 0, 0, 0, 0]);
            let mut bytes = vec![0x60, 0, 0, 0];
            bytes.extend(length(transport + extension.len()).to_be_bytes());
            bytes.extend([self.edits.extension.unwrap_or(protocol), 64]);
            bytes.extend([from.v6(), to.v6()].concat());
            bytes.extend(extension);
            return bytes;
        }
        let options = usize::from(self.edits.ip_options) * 4;
        let mut bytes = vec![0x45 + self.edits.ip_options, 0];
        bytes.extend(length(20 + options + transport).to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(self.edits.fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        bytes.extend([from.v4(), to.v4()].concat());
        bytes.resize(bytes.len() + options, 1);
        bytes
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        if self.is_tcp {
            let options = usize::from(self.edits.tcp_options) * 4;
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 1]);
            bytes.extend([0x50 + (self.edits.tcp_options << 4), self.flags, 1, 0, 0, 0, 0, 0]);
            bytes.resize(bytes.len() + options, 1);
        } else {
            let length = (8 + self.payload) as u16;
            bytes.extend(length.wrapping_add_signed(self.edits.udp_length).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.resize(bytes.len() + self.payload, 7);
        bytes
    }
}
