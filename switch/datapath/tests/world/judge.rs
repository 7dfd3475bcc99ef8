//! What may arrive at a port: every frame that leaves the switch is held against it.

use super::frames::{OUTSIDE_PORT, Segment, fold, id_of, pseudo};
use ports::Offloads;
use ports::memory::MemoryFrame;
use std::collections::HashMap;
use wire::vnet::{Flags, GsoType};
use wire::{Kind, Parsed, Traits};

/// The least payload of a train's segments, unless there are few.
const LEAST_SEGMENT: u16 = 48;
const FEW_SEGMENTS: u32 = 64;
const FEW_DATAGRAMS: u32 = 128;

/// What a port takes.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) name: &'static str,
    pub(crate) offloads: Offloads,
    pub(crate) mtu: u16,
    /// It is not in the attackers' VLAN.
    pub(crate) apart: bool,
}

/// What was sent in this case.
#[derive(Default)]
pub(crate) struct Sent {
    /// Frames of the hostile guest by the number at their end, and whether their checksum's place
    /// is the usual one.
    pub(crate) frames: HashMap<u32, (Vec<u8>, bool)>,
    /// Segments from outside, each with its first sequence number.
    pub(crate) segments: Vec<(u32, Segment)>,
    /// The guest has written its ring's memory by hand: what it sends is not what is noted here.
    pub(crate) unknown: bool,
}

/// Returns the round of a frame between benign guests.
pub(crate) fn round_of(frame: &[u8]) -> Option<u32> {
    let rest = frame.get(12..)?;
    let rest = if rest.starts_with(&[0x81, 0]) { rest.get(4..)? } else { rest };
    let rest = rest.strip_prefix(&[0x88, 0xb5])?.strip_prefix(b"mill")?;
    Some(u32::from_le_bytes(*rest.first_chunk()?))
}

/// Panics if the frame may not leave by this port.
pub(crate) fn judge(frame: &MemoryFrame, port: &Limits, sent: &Sent) {
    let MemoryFrame { vnet, bytes } = frame;
    let name = port.name;
    let Some(parsed) = wire::parse(bytes, bytes.len()) else {
        panic!("FINDING (length): a frame of {} bytes at {name}", bytes.len());
    };
    assert!(
        !bytes.starts_with(&[1, 0x80, 0xc2, 0, 0]) || bytes[5] > 15,
        "FINDING (reserved address): a frame to {:02x?} left by {name}",
        &bytes[..6]
    );
    assert!(
        bytes[12..14] != [0x88, 0xa8],
        "FINDING (VLAN): a service tag left by {name}, which a bridge may take for no tag: {frame:02x?}"
    );
    claims(vnet, bytes, &parsed, port);
    if is_outside(bytes, &parsed) {
        return outside(frame, &parsed, port, sent);
    }
    if round_of(bytes).is_some() {
        return;
    }
    assert!(
        !port.apart,
        "FINDING (VLAN): a frame of the attackers' VLAN left by {name}: {frame:02x?}"
    );
    assert!(
        parsed.vlan_id() == 0,
        "FINDING (VLAN): an access port's frame left by {name} with tag {}",
        parsed.vlan_id()
    );
    if let Some((original, usual)) = id_of(bytes).and_then(|id| sent.frames.get(&id))
        && !sent.unknown
        && !port.offloads.contains(Offloads::CSUM)
    {
        unharmed(bytes, &parsed, (original, *usual), name);
    }
}

/// Checks lengths, segment sizes and the place of an unfinished checksum.
fn claims(vnet: &wire::vnet::VnetHeader, bytes: &[u8], parsed: &Parsed, port: &Limits) {
    let name = port.name;
    let is_train = vnet.gso() != GsoType::None;
    let packet = match is_train {
        true => usize::from(parsed.payload) + usize::from(vnet.gso_size.get()),
        false => bytes.len(),
    };
    let packet = packet - usize::from(parsed.l3);
    assert!(packet <= port.mtu.into(), "FINDING (length): a packet of {packet} bytes at {name}");
    if is_train {
        assert!(
            bytes.len() == parsed.end as usize,
            "FINDING (trailing bytes): a train of {} bytes, {} of them behind its packet, at {name}",
            bytes.len(),
            bytes.len() - parsed.end as usize
        );
        assert!(
            vnet.hdr_len.get() == parsed.payload,
            "FINDING (header length): {} at {name}, of headers of {} bytes",
            vnet.hdr_len.get(),
            parsed.payload
        );
        // What the switch itself made of small segments is as small as they were.
        let segments = parsed.payload_len().div_ceil(vnet.gso_size.get().max(1).into());
        let few = if parsed.kind == Kind::Udp { FEW_DATAGRAMS } else { FEW_SEGMENTS };
        assert!(
            vnet.gso_size.get() >= LEAST_SEGMENT || vnet.coalesced() > 0 || segments <= few,
            "FINDING (segment size): {} at {name}",
            vnet.gso_size.get()
        );
        let (kind, offload) = match vnet.gso() {
            GsoType::Tcp4 => (Kind::Tcp, Offloads::TSO4),
            GsoType::Tcp6 => (Kind::Tcp, Offloads::TSO6),
            _ => (Kind::Udp, Offloads::USO),
        };
        let taken = parsed.kind == kind && port.offloads.contains(offload);
        assert!(taken, "FINDING (train): {vnet:?} at {name}, which takes {:?}", port.offloads);
        let flags = bytes.get(usize::from(parsed.l4) + 13).copied().unwrap_or(0);
        let marked = vnet.gso_ecn() || kind == Kind::Tcp && flags & 0xc0 != 0;
        assert!(
            !marked || port.offloads.contains(Offloads::ECN),
            "FINDING (ECN): an ECN train at {name}, which takes none"
        );
    }
    if !vnet.flags().contains(Flags::NEEDS_CSUM) {
        return;
    }
    assert!(port.offloads.contains(Offloads::CSUM), "FINDING (checksum): unfinished at {name}");
    let (start, offset) = (vnet.csum_start.get(), vnet.csum_offset.get());
    // Inner checksums of tunnels lie behind the headers that the switch knows.
    let behind = start >= parsed.payload
        && usize::from(start) + usize::from(offset) + 2 <= bytes.len()
        && parsed.kind != Kind::Tcp;
    let fits = match parsed.kind {
        Kind::Tcp => start == parsed.l4 && offset == 16,
        Kind::Udp => start == parsed.l4 && offset == 6 || behind,
        _ => behind,
    };
    assert!(fits, "FINDING (checksum): {start}+{offset} at {name} of {parsed:?}");
}

/// Checks that a frame that was finished for a port without offloads is the sent one, with a right
/// checksum.
fn unharmed(bytes: &[u8], parsed: &Parsed, (original, usual): (&[u8], bool), name: &str) {
    let Some(was) = wire::parse(original, original.len()) else { return };
    if !matches!(was.kind, Kind::Tcp | Kind::Udp)
        || was.end as usize != original.len()
        || bytes.len() > original.len()
    {
        return;
    }
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    let (l3_was, l4_was) = (usize::from(was.l3), usize::from(was.l4));
    let whole = bytes.len() - l3 == original.len() - l3_was;
    assert!(
        bytes[..12] == original[..12] && parsed.kind == was.kind,
        "FINDING (bytes): {name} got {bytes:02x?} of {original:02x?}"
    );
    if whole {
        let place = if was.kind == Kind::Tcp { 16 } else { 6 };
        let same = bytes[l3..l4 + place] == original[l3_was..l4_was + place]
            && (!usual || bytes[l4 + place + 2..] == original[l4_was + place + 2..]);
        assert!(same, "FINDING (bytes): {name} got {bytes:02x?} of {original:02x?}");
    }
    let ip_sum = parsed.traits.contains(Traits::IPV4).then(|| fold(&bytes[l3..l3 + 20]));
    assert!(
        ip_sum.is_none_or(|sum| sum == 0xffff),
        "FINDING (bytes): a wrong IP checksum at {name}"
    );
    if !usual {
        return;
    }
    let sum = fold(&[pseudo(bytes, l3, l4), bytes[l4..].to_vec()].concat());
    assert!(
        sum == 0xffff,
        "FINDING (checksum): not right at {name}: {bytes:02x?} of {original:02x?}"
    );
}

fn is_outside(bytes: &[u8], parsed: &Parsed) -> bool {
    let port = usize::from(parsed.l4) + 2;
    parsed.kind == Kind::Tcp && bytes.get(port..port + 2) == Some(&OUTSIDE_PORT)
}

/// Checks that the common header fields of a train are those of each of its segments.
fn outside(frame: &MemoryFrame, parsed: &Parsed, port: &Limits, sent: &Sent) {
    let bytes = &frame.bytes;
    let l4 = usize::from(parsed.l4);
    let tags = &bytes[12..usize::from(parsed.l3) - 2];
    assert!(
        tags.is_empty() || !port.apart,
        "FINDING (VLAN): the inner tag {tags:02x?} laid bare at {}",
        port.name
    );
    let found = (tags.to_vec(), bytes[l4 + 12] & 15, bytes[l4 + 13] & 0xc0);
    let first = u32::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5], bytes[l4 + 6], bytes[l4 + 7]]);
    let covered = first..first + parsed.payload_len();
    for (sequence, segment) in
        sent.segments.iter().filter(|(sequence, _)| covered.contains(sequence))
    {
        let mut wanted = segment.likeness();
        if port.apart {
            wanted.0.clear();
        }
        assert!(
            wanted == found,
            "FINDING (coalescing): {segment:?} at {sequence} left by {} as {found:?}",
            port.name
        );
    }
}
