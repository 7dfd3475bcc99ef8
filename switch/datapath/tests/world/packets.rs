//! IP packets for ports with rules and guards: some of what the rules deny, some of what they pass,
//! behind extension headers and in fragments that overlap.

use super::frames::{fill_ip_checksum, mac};
use bolero::TypeGenerator;

/// UDP to this port is denied.
pub(crate) const DENIED_UDP: u16 = 53;
/// TCP to this port is denied.
pub(crate) const DENIED_TCP: u16 = 22;
/// The last byte of an address that is not the port's own.
pub(crate) const FOREIGN: u8 = 9;

/// Bytes of a datagram behind its IP header and extension headers.
const LEN: usize = 64;

/// A packet, or fragments of several packets that a receiver takes for one.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Packets {
    v6: bool,
    /// IPv6 extension headers of each: kind and length.
    extensions: Vec<(u8, u8)>,
    fragments: Vec<Fragment>,
    foreign: bool,
    /// What it is without fragments.
    whole: u8,
}

/// A part of a packet.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Fragment {
    /// What it is a part of.
    of: u8,
    /// Start and length, in units of 8 bytes.
    start: u8,
    len: u8,
    is_last: bool,
    /// Which protocol its header names: mostly the right one.
    names: u8,
}

/// What a packet carries: protocol, source and destination port or type.
fn transport(v6: bool, choice: u8) -> (u8, Vec<u8>) {
    let udp = |from: u16, to: u16| {
        let ports = [from, to, LEN as u16, 0].map(u16::to_be_bytes);
        (17, ports.as_flattened().to_vec())
    };
    let tcp = |to: u16| {
        let ports = [4000, to].map(u16::to_be_bytes);
        (6, [ports.as_flattened(), &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 2, 1, 0, 0, 0, 0, 0]].concat())
    };
    let icmp = |kind: u8| (if v6 { 58 } else { 1 }, vec![kind, 0, 0, 0, 0, 0, 0, 0]);
    let (server, client) = if v6 { (547, 546) } else { (67, 68) };
    match choice % 8 {
        0 => udp(4000, DENIED_UDP),
        1 => tcp(DENIED_TCP),
        2 => icmp(if v6 { 134 } else { 9 }),
        3 => icmp(if v6 { 137 } else { 5 }),
        4 => udp(server, client),
        5 => tcp(80),
        6 => icmp(if v6 { 128 } else { 8 }),
        _ => udp(4000, 80),
    }
}

impl Packets {
    /// Returns the frames; `id` is the number that fragments share.
    pub(crate) fn build(&self, to: usize, from: usize, id: u16) -> Vec<Vec<u8>> {
        let ethernet = [mac(to as u8), mac(from as u8)].concat();
        let kind: [u8; 2] = if self.v6 { [0x86, 0xdd] } else { [8, 0] };
        let frame = |packet: Vec<u8>| [&ethernet[..], &kind, &packet].concat();
        if self.fragments.is_empty() {
            let (protocol, bytes) = self.datagram(self.whole);
            return vec![frame(self.packet(protocol, None, &bytes, id))];
        }
        let part = |fragment: &Fragment| {
            let (protocol, bytes) = self.datagram(fragment.of);
            let start = 8 * usize::from(fragment.start % 4);
            let len = 8 * (usize::from(fragment.len) % 8 + 1);
            let end = if fragment.is_last { bytes.len() } else { start + len };
            let part = &bytes[start..end.clamp(start, bytes.len())];
            let named = [17, 6, 58, 60, 253].get(usize::from(fragment.names % 16));
            let protocol = if self.v6 { *named.unwrap_or(&protocol) } else { protocol };
            let (start, more) = (start as u16, u16::from(!fragment.is_last));
            let field = if self.v6 { start | more } else { start >> 3 | more << 13 };
            frame(self.packet(protocol, Some(field), part, id))
        };
        self.fragments.iter().take(6).map(part).collect()
    }

    /// Returns the first protocol, and everything that may be fragmented: extension headers,
    /// transport and data.
    fn datagram(&self, choice: u8) -> (u8, Vec<u8>) {
        let (protocol, mut bytes) = transport(self.v6, choice);
        bytes.resize(LEN, 0x77);
        if !self.v6 {
            return (protocol, bytes);
        }
        let mut next = protocol;
        for (kind, len) in self.extensions.iter().take(9) {
            // Mostly short ones; each of them is options that are skipped.
            let len = if len & 0xc0 == 0xc0 { len % 32 } else { 0 };
            let header = [next, len, 1, 4, 0, 0, 0, 0];
            let mut header = header.to_vec();
            header.resize(8 * (usize::from(len) + 1), 0);
            bytes = [header, bytes].concat();
            next = [0, 43, 60][usize::from(kind % 3)];
        }
        (next, bytes)
    }

    fn packet(&self, protocol: u8, fragment: Option<u16>, bytes: &[u8], id: u16) -> Vec<u8> {
        let last = if self.foreign { FOREIGN } else { 1 };
        if !self.v6 {
            let len = (20 + bytes.len()) as u16;
            let mut ip = [&[0x45, 0][..], &len.to_be_bytes(), &id.to_be_bytes()].concat();
            ip.extend(fragment.unwrap_or(0).to_be_bytes());
            ip.extend([64, protocol, 0, 0, 10, 0, 0, last, 10, 0, 0, 2]);
            fill_ip_checksum(&mut ip);
            return [&ip, bytes].concat();
        }
        let header = fragment.map(|field| {
            let field = field.to_be_bytes();
            [&[protocol, 0][..], &field, &u32::from(id).to_be_bytes()].concat()
        });
        let first = if header.is_some() { 44 } else { protocol };
        let bytes = [header.as_deref().unwrap_or_default(), bytes].concat();
        let len = (bytes.len() as u16).to_be_bytes();
        let ip = [&[0x60, 0, 0, 0][..], &len, &[first, 64]].concat();
        let source = [&[0xfd; 15][..], &[last]].concat();
        [ip, source, vec![0xfd; 16], bytes].concat()
    }
}
