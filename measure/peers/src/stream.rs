//! The frames of one direction: their contents, and the check that one arrived unchanged.
//!
//! A frame's first 64 bytes are rewritten each time it is sent, as a guest's stack writes headers:
//! Ethernet, IPv4, UDP or TCP, and a stamp with a sequence number. The rest is a pattern that the
//! buffers hold from the start. The sequence number determines every byte of a frame, so any frame
//! can be checked in full.

use crate::case::{Case, Load};
use crate::memory::Memory;
use wire::checksum::Sum;
use wire::ipv4::fill_checksum;
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{tcp, udp};

/// Bytes that are rewritten for each frame.
const HEAD: usize = 64;
/// Offset of the stamp in a frame: [`MAGIC`] in the upper half, the sequence number in the lower.
const STAMP: usize = 54;
/// Upper half of a stamp, which marks it as ours.
const MAGIC: u64 = 0x6d69_6c6c << 32;
/// Bytes of Ethernet, IPv4 and TCP headers.
pub(crate) const TCP_HEADERS: usize = 54;
/// Offset of TCP's sequence number.
const TCP_SEQUENCE: usize = 38;
/// Offsets of TCP's checksum.
const TCP_CHECKSUM: std::ops::Range<usize> = 50..52;
/// Payload bytes of each segment of a train: those of TCP with timestamps at an MTU of 1500 bytes.
pub(crate) const SEGMENT: usize = 1448;
/// Segments of a train, the most that fit into an IPv4 packet.
pub(crate) const SEGMENTS: usize = 45;
/// Bytes of a train.
pub(crate) const TRAIN: usize = TCP_HEADERS + SEGMENTS * SEGMENT;

/// The side that frames come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Second,
}

/// Contents of the frames of one direction.
#[derive(Debug)]
pub(crate) struct Stream {
    heads: Vec<[u8; HEAD]>,
    /// Bytes of a frame.
    pub(crate) len: usize,
    train: bool,
}

impl Stream {
    /// Returns the frames that `side` sends in this case.
    pub(crate) fn new(case: &Case, side: Side) -> Stream {
        let train = case.load == Load::Train;
        let heads = (0..case.flows).map(|flow| head(case, side, flow)).collect();
        Stream { heads, len: case.frame, train }
    }

    /// Returns the virtio header of all frames.
    pub(crate) fn vnet_header(&self) -> VnetHeader {
        let mut header = VnetHeader::default();
        if self.train {
            header.set_flags(Flags::NEEDS_CSUM);
            header.set_gso(GsoType::Tcp4, false);
            header.hdr_len.set(number(TCP_HEADERS));
            header.gso_size.set(number(SEGMENT));
            header.csum_start.set(34);
            header.csum_offset.set(16);
        }
        header
    }

    /// Writes the constant part of a buffer: virtio header and pattern.
    pub(crate) fn prepare(&self, memory: &Memory, buffer: usize) {
        memory.write(buffer, &self.vnet_header().encode());
        memory.write(buffer + VnetHeader::LEN, &pattern(self.len));
    }

    /// Returns the flow of a sequence number.
    pub(crate) fn flow(&self, sequence: u32) -> usize {
        sequence as usize % self.heads.len()
    }

    /// Returns the flow after `flow`, in the order of sequence numbers.
    #[inline(always)]
    pub(crate) fn flow_after(&self, flow: usize) -> usize {
        if flow + 1 == self.heads.len() { 0 } else { flow + 1 }
    }

    /// Writes the head of a frame into a prepared buffer.
    #[inline(always)]
    pub(crate) fn write(&self, memory: &Memory, buffer: usize, flow: usize, sequence: u32) {
        let frame = buffer + VnetHeader::LEN;
        memory.write(frame, &self.heads[flow]);
        memory.write(frame + STAMP, &(MAGIC | u64::from(sequence)).to_le_bytes());
        if self.train {
            memory.write(frame + TCP_SEQUENCE, &self.tcp_sequence(sequence).to_be_bytes());
        }
    }

    /// Returns TCP's sequence number of a train; trains follow each other without a gap.
    fn tcp_sequence(&self, sequence: u32) -> u32 {
        let payload = u32::from(number(self.len - TCP_HEADERS));
        sequence.wrapping_mul(payload)
    }

    /// Returns the sequence number of the frame in a buffer; `None` if it has no stamp.
    #[inline(always)]
    pub(crate) fn sequence(memory: &Memory, buffer: usize) -> Option<u32> {
        let mut stamp = [0; 8];
        memory.read(buffer + VnetHeader::LEN + STAMP, &mut stamp);
        let stamp = u64::from_le_bytes(stamp);
        #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
        let sequence = stamp as u32;
        (stamp ^ u64::from(sequence) == MAGIC).then_some(sequence)
    }

    /// Returns all bytes of a frame.
    pub(crate) fn frame(&self, sequence: u32) -> Vec<u8> {
        let mut frame = pattern(self.len);
        frame[..HEAD].copy_from_slice(&self.heads[self.flow(sequence)]);
        self.stamp(&mut frame, sequence);
        frame
    }

    /// Writes a sequence number into a frame of the same flow.
    pub(crate) fn stamp(&self, frame: &mut [u8], sequence: u32) {
        frame[STAMP..STAMP + 8].copy_from_slice(&(MAGIC | u64::from(sequence)).to_le_bytes());
        if self.train {
            let tcp = self.tcp_sequence(sequence).to_be_bytes();
            frame[TCP_SEQUENCE..TCP_SEQUENCE + 4].copy_from_slice(&tcp);
        }
    }

    /// Returns whether a frame that arrived with this virtio header is still one frame. A train may
    /// have another segment size (Open vSwitch derives it from its MTU), but must not be split into
    /// many frames.
    #[inline(always)]
    pub(crate) fn arrived_whole(&self, header: VnetHeader) -> bool {
        let segments = header.gso_size.get() > 0 && header.flags().contains(Flags::NEEDS_CSUM);
        if self.train { header.gso() == GsoType::Tcp4 && segments } else { header.asks_nothing() }
    }

    /// Returns the first offset at which a frame that arrived differs from the one sent. A train's
    /// checksum is partial and is not compared: a switch may start it differently (DPDK leaves the
    /// length out).
    pub(crate) fn first_difference(&self, sequence: u32, seen: &[u8]) -> Option<usize> {
        let sent = self.frame(sequence);
        let unfinished = if self.train { TCP_CHECKSUM } else { 0..0 };
        let differs = |place: &usize| seen.get(*place) != sent.get(*place);
        (0..sent.len().max(seen.len())).filter(|place| !unfinished.contains(place)).find(differs)
    }
}

/// Returns a pattern of bytes that is the same in all frames.
#[allow(clippy::cast_possible_truncation, reason = "less than 251")]
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place % 251) as u8).collect()
}

/// Returns a length as 16 bits: frames and their parts are shorter than 64 KiB.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
fn number(len: usize) -> u16 {
    debug_assert!(u16::try_from(len).is_ok());
    len as u16
}

/// Returns the headers of a flow, from its sender's side. Hosts of both sides are paired so that
/// each talks to several on the other side.
fn head(case: &Case, side: Side, flow: u16) -> [u8; HEAD] {
    let first = flow % case.hosts;
    let second = (flow + flow / case.hosts) % case.hosts;
    let (from, to, ports) = match side {
        Side::First => ((1, first), (2, second), (10_000 + flow, 5201)),
        Side::Second => ((2, second), (1, first), (5201, 10_000 + flow)),
    };
    let mut head = [0; HEAD];
    let mut rest = head.as_mut_slice();
    let mut put = |bytes: &[u8]| {
        let (to, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        rest = after;
    };
    let packet = number(case.frame - 14);
    let train = case.load == Load::Train;
    let protocol = if train { tcp::PROTOCOL } else { udp::PROTOCOL };
    put(&mac(to));
    put(&mac(from));
    put(&[8, 0]);
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&packet.to_be_bytes());
    ip[12..16].copy_from_slice(&address(from));
    ip[16..20].copy_from_slice(&address(to));
    fill_checksum(&mut ip);
    put(&ip);
    put(&ports.0.to_be_bytes());
    put(&ports.1.to_be_bytes());
    if train {
        // The pseudo-header: addresses, protocol and the length of the TCP segment.
        let addresses = Sum::of(&[address(from), address(to)].concat());
        let sum = addresses.add_u16(protocol.into()).add_u16(packet - 20);
        // Acknowledgement 1, header of 20 bytes, ACK, a window of 65535.
        put(&[0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff]);
        put(&sum.0.to_be_bytes());
    } else {
        // Without a checksum, as UDP over IPv4 allows.
        put(&(packet - 20).to_be_bytes());
    }
    head
}

/// Returns the MAC address of a host, by side and number.
fn mac((side, host): (u8, u16)) -> [u8; 6] {
    let [high, low] = host.to_be_bytes();
    [2, 0x6d, 0x72, side, high, low]
}

fn address((side, host): (u8, u16)) -> [u8; 4] {
    let [high, low] = host.to_be_bytes();
    [10, side, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::CASES;
    use wire::{Traits, parse};

    #[test]
    fn every_case_sends_sound_frames_of_its_length() {
        for case in &CASES {
            for side in [Side::First, Side::Second] {
                let stream = Stream::new(case, side);
                let frame = stream.frame(7);
                assert_eq!(frame.len(), case.frame);
                let parsed = parse(&frame, frame.len()).unwrap();
                assert!(parsed.traits.contains(Traits::IPV4), "{}", case.name);
                assert!(wire::ipv4::checksum_ok(&frame[14..34]), "{}", case.name);
            }
        }
    }

    #[test]
    fn what_is_written_is_what_is_expected() {
        let memory = Memory::new(1 << 20).unwrap();
        for case in &CASES {
            let stream = Stream::new(case, Side::Second);
            stream.prepare(&memory, 128);
            for sequence in [0, 1, 12_345] {
                stream.write(&memory, 128, stream.flow(sequence), sequence);
                let mut seen = vec![0; case.frame];
                memory.read(128 + VnetHeader::LEN, &mut seen);
                assert_eq!(seen, stream.frame(sequence));
                assert_eq!(Stream::sequence(&memory, 128), Some(sequence));
            }
        }
    }

    #[test]
    fn many_flows_are_many_pairs_of_hosts() {
        let case = CASES.iter().find(|case| case.flows > 1).unwrap();
        let heads: std::collections::HashSet<_> =
            (0..case.flows).map(|flow| head(case, Side::First, flow)[..12].to_vec()).collect();
        assert_eq!(heads.len(), usize::from(case.flows));
    }
}
