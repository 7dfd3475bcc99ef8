//! Hosts behind the ports, as far as rules and guards are about them: they read a packet through
//! all its extension headers, however many, and put fragments together. Where fragments overlap, one
//! host keeps the first copy of a byte and the other the last one.
//!
//! They cannot see: fragments within a fragment, LLC/SNAP, tunnels, and hosts that mix copies (the
//! protocol of one fragment with the bytes of another that starts at the same place).

use super::packets::{DENIED_TCP, DENIED_UDP, FOREIGN};
use std::collections::HashMap;

/// An IP packet without its headers.
#[derive(Clone, Debug)]
struct Packet {
    v6: bool,
    source: Vec<u8>,
    /// Behind the IP header, or that a fragment's header names.
    protocol: u8,
    bytes: Vec<u8>,
}

/// A fragment, as it arrived.
#[derive(Clone, Debug)]
struct Fragment {
    start: usize,
    is_last: bool,
    packet: Packet,
}

/// What a fragment's header says: the number, the start, whether it is the last.
type Place = (Vec<u8>, usize, bool);

/// Which copy of a byte counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counts {
    First,
    Last,
}

/// The hosts of a port.
#[derive(Default)]
pub(crate) struct Receiver {
    fragments: HashMap<Vec<u8>, Vec<Fragment>>,
}

impl Receiver {
    /// Takes a frame; `guarded`: of a port with guards. Returns what is wrong with it, or with what it
    /// completes.
    pub(crate) fn take(&mut self, frame: &[u8], guarded: bool) -> Option<String> {
        let (packet, fragment) = read(frame)?;
        if guarded && packet.source.last() == Some(&FOREIGN) {
            return Some(format!("from an address that is not its own: {packet:02x?}"));
        }
        let Some((key, start, is_last)) = fragment else {
            return judge(&packet, guarded).map(|what| format!("{what}: {packet:02x?}"));
        };
        let fragments = self.fragments.entry(key).or_default();
        fragments.push(Fragment { start, is_last, packet });
        [Counts::First, Counts::Last].into_iter().find_map(|counts| {
            let whole = assemble(fragments, counts)?;
            let what = judge(&whole, guarded)?;
            Some(format!("{what}, to a host where the {counts:?} copy counts: {fragments:02x?}"))
        })
    }
}

/// Returns a frame's packet, and its place if it is a fragment.
fn read(frame: &[u8]) -> Option<(Packet, Option<Place>)> {
    let mut rest = frame.get(12..)?;
    while rest.starts_with(&[0x81, 0]) {
        rest = rest.get(4..)?;
    }
    let (kind, ip) = rest.split_at_checked(2)?;
    match kind {
        [8, 0] => read_v4(ip),
        [0x86, 0xdd] => read_v6(ip),
        _ => None,
    }
}

fn read_v4(ip: &[u8]) -> Option<(Packet, Option<Place>)> {
    let header = ip.first_chunk::<20>()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let bytes = ip.get(usize::from(header[0] & 15) * 4..len)?.to_vec();
    let source = header[12..16].to_vec();
    let packet = Packet { v6: false, source, protocol: header[9], bytes };
    let field = u16::from_be_bytes([header[6], header[7]]);
    let (start, more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
    let key = || [&header[4..6], &header[9..10], &header[12..20]].concat();
    let fragment = (start > 0 || more).then(|| (key(), start, !more));
    Some((packet, fragment))
}

fn read_v6(ip: &[u8]) -> Option<(Packet, Option<Place>)> {
    let header = ip.first_chunk::<40>()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let bytes = ip.get(40..40 + len)?;
    let packet = |protocol, bytes: &[u8]| {
        let (source, bytes) = (header[8..24].to_vec(), bytes.to_vec());
        Packet { v6: true, source, protocol, bytes }
    };
    let (protocol, bytes) = behind_extensions(header[6], bytes)?;
    if protocol != 44 {
        return Some((packet(protocol, bytes), None));
    }
    let fragment = bytes.first_chunk::<8>()?;
    let field = u16::from_be_bytes([fragment[2], fragment[3]]);
    let key = [&fragment[4..], &header[8..40]].concat();
    let place = (key, usize::from(field & !7), field & 1 == 0);
    let is_atomic = place.1 == 0 && place.2;
    Some((packet(fragment[0], &bytes[8..]), (!is_atomic).then_some(place)))
}

/// Returns the transport's protocol, or that of a fragment header, and what begins there.
fn behind_extensions(mut protocol: u8, mut bytes: &[u8]) -> Option<(u8, &[u8])> {
    while matches!(protocol, 0 | 43 | 51 | 60) {
        let [next, len, ..] = *bytes else { return None };
        let len = usize::from(len);
        bytes = bytes.get(if protocol == 51 { 4 * (len + 2) } else { 8 * (len + 1) }..)?;
        protocol = next;
    }
    Some((protocol, bytes))
}

/// Returns the packet that fragments make; `None` while some of it is missing.
fn assemble(fragments: &[Fragment], counts: Counts) -> Option<Packet> {
    // Written in an order in which each copy is overwritten by one that counts.
    let mut ordered: Vec<&Fragment> = fragments.iter().collect();
    if counts == Counts::First {
        ordered.reverse();
    }
    let end = |fragment: &Fragment| fragment.start + fragment.packet.bytes.len();
    let mut bytes = vec![None; fragments.iter().map(end).max()?];
    let (mut first, mut len) = (None, None);
    for fragment in ordered {
        let place = &mut bytes[fragment.start..end(fragment)];
        place.iter_mut().zip(&fragment.packet.bytes).for_each(|(to, from)| *to = Some(*from));
        first = if fragment.start == 0 { Some(&fragment.packet) } else { first };
        len = if fragment.is_last { Some(end(fragment)) } else { len };
    }
    let bytes = bytes.get(..len?)?.iter().copied().collect::<Option<Vec<u8>>>()?;
    Some(Packet { bytes, ..first?.clone() })
}

/// Returns what must not arrive in this packet.
fn judge(packet: &Packet, guarded: bool) -> Option<&'static str> {
    let (protocol, bytes) = match packet.v6 {
        true => behind_extensions(packet.protocol, &packet.bytes)?,
        false => (packet.protocol, &packet.bytes[..]),
    };
    let [kind, ..] = *bytes else { return None };
    let ports = bytes
        .first_chunk()
        .map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
    let (server, client) = if packet.v6 { (547, 546) } else { (67, 68) };
    match (protocol, ports, packet.v6) {
        (17, Some((_, DENIED_UDP)), _) => Some("UDP to a port that is denied"),
        (6, Some((_, DENIED_TCP)), _) => Some("TCP to a port that is denied"),
        _ if !guarded => None,
        (17, Some((from, to)), _) if from == server || to == client => Some("a DHCP server's"),
        (58, _, true) if matches!(kind, 134 | 137) => Some("a router's"),
        (1, _, false) if matches!(kind, 5 | 9) => Some("a router's"),
        _ => None,
    }
}
