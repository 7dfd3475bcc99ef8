//! Finds which trains the kernel accepts: writes one of each kind to an address that no station
//! has, of UDP one of each length that a kernel is known to draw the line at.
//!
//! Called when a TAP port is opened, and once for all packet ports. Kernels differ in what they
//! accept, and some refused valid trains for months (all `EINVAL`), so only an attempt tells.

use crate::{Capabilities, Offloads};
use rustix::io::{Errno, IoSlice};
use std::os::fd::AsFd;
use wire::vnet::{Flags, GsoType, VnetHeader};
use zerocopy::IntoBytes;

/// Payload of a probe, which for the kinds is that of two segments.
const PAYLOAD: [u8; 128] = [0; 128];
const SEGMENT: u16 = 64;
/// Locally administered addresses that no device has: the kernel drops the frame as not its own.
const UNUSED: [u8; 12] = [0x02, 0x4d, 0x52, 0xff, 0xff, 0xfe, 0x02, 0x4d, 0x52, 0xff, 0xff, 0xfd];

/// Kinds of trains, and the offload of each.
const TRAINS: [(GsoType, Offloads); 3] = [
    (GsoType::Tcp4, Offloads::TSO4),
    (GsoType::Tcp6, Offloads::TSO6),
    (GsoType::UdpL4, Offloads::USO),
];

/// Datagrams of a UDP train: what Linux sends in one call (`UDP_MAX_SEGMENTS`) since 6.9, and
/// before. Kernels of either kind refuse longer trains from a virtio-net header; older ones have no
/// limit there, and get none longer.
const DATAGRAMS: [u16; 2] = [128, 64];

/// What a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Kinds of trains.
    pub(crate) offloads: Offloads,
    /// Most datagrams of a UDP train.
    pub(crate) datagrams: u16,
}

impl Taken {
    /// What every kernel takes, for where none can be asked.
    pub(crate) fn by_all() -> Taken {
        Taken { offloads: Offloads::all() - Offloads::USO, datagrams: 64 }
    }

    /// Returns the capabilities of a port with this kernel behind it.
    pub(crate) fn capabilities(self, queues: u16) -> Capabilities {
        let capabilities = Capabilities::of_kernel(self.offloads, queues);
        capabilities.set_datagrams(self.datagrams);
        capabilities
    }
}

/// Returns what the device behind `file` takes, found by writing trains after the first
/// `header_len` bytes of the virtio header. Any answer but `EINVAL` counts as accepted: other
/// errors concern the device's state, not the frame.
pub(crate) fn egress(file: impl AsFd, header_len: usize) -> Taken {
    let takes = |kind, payload: &[u8], segment| {
        let (header, frame) = probe_frame(kind, payload.len(), segment);
        let header = header.as_bytes().get(..header_len).unwrap_or_default();
        let pieces = [header, &frame, payload].map(IoSlice::new);
        rustix::io::writev(&file, &pieces) != Err(Errno::INVAL)
    };
    let mut taken = Taken { offloads: Offloads::all(), datagrams: 0 };
    for (kind, offload) in TRAINS {
        if !takes(kind, &PAYLOAD, SEGMENT) {
            taken.offloads -= offload;
        }
    }
    // The payload of a probe is one byte a datagram.
    let in_one = |count: &u16| {
        let payload = PAYLOAD.get(..usize::from(*count)).unwrap_or_default();
        takes(GsoType::UdpL4, payload, 1)
    };
    taken.datagrams = DATAGRAMS.into_iter().find(in_one).unwrap_or(2);
    taken
}

/// Returns the trains that the kernel refuses for a device, as text for people.
pub(crate) fn refused(name: &str, offloads: Offloads) -> impl Iterator<Item = String> {
    let refused = TRAINS.into_iter().filter(move |(_, offload)| !offloads.contains(*offload));
    refused.map(move |(_, offload)| {
        format!("{name}: this kernel refuses {offload:?} trains: they are segmented in software")
    })
}

/// Builds the headers of a train of such segments. Its checksum is never checked: no station has the
/// address.
fn probe_frame(kind: GsoType, payload: usize, segment: u16) -> (VnetHeader, Vec<u8>) {
    let (v6, tcp) = (kind == GsoType::Tcp6, kind != GsoType::UdpL4);
    let transport = if tcp { 20 } else { 8 };
    let network = if v6 { 40 } else { 20 };
    let length = transport + payload;
    let mut frame = UNUSED.to_vec();
    if v6 {
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend_from_slice(&big_endian(length));
        frame.extend_from_slice(&[6, 64]);
        frame.extend_from_slice(&[0xfe; 32]);
    } else {
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
        frame.extend_from_slice(&big_endian(network + length));
        // No fragments, TTL 64, and the documentation addresses 192.0.2.1 and 192.0.2.2 (RFC 5737).
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
        frame.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    }
    // Source and destination port: discard (9).
    frame.extend_from_slice(&[0, 9, 0, 9]);
    if tcp {
        frame.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        frame.extend_from_slice(&big_endian(length));
        frame.extend_from_slice(&[0, 0]);
    }
    let mut vnet = vnet_header(kind, 14 + network, if tcp { 16 } else { 6 }, frame.len());
    vnet.gso_size.set(segment);
    (vnet, frame)
}

#[allow(clippy::cast_possible_truncation, reason = "headers of a probe are below 100 bytes")]
fn vnet_header(kind: GsoType, start: usize, offset: u16, headers: usize) -> VnetHeader {
    let mut header = VnetHeader::default();
    header.set_flags(Flags::NEEDS_CSUM);
    header.set_gso(kind, false);
    header.hdr_len.set(headers as u16);
    header.csum_start.set(start as u16);
    header.csum_offset.set(offset);
    header
}

#[allow(clippy::cast_possible_truncation, reason = "lengths of a probe are below 1 KiB")]
fn big_endian(length: usize) -> [u8; 2] {
    (length as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_parse_as_what_they_claim_to_be() {
        for (kind, headers, transport) in
            [(GsoType::Tcp4, 54, 34), (GsoType::Tcp6, 74, 54), (GsoType::UdpL4, 42, 34)]
        {
            let (header, frame) = probe_frame(kind, PAYLOAD.len(), SEGMENT);
            assert_eq!(frame.len(), headers);
            assert_eq!(
                (header.csum_start.get(), usize::from(header.hdr_len.get())),
                (transport, headers)
            );
            assert_eq!(frame[0] & 3, 2, "locally administered, not a group");
        }
    }
}
