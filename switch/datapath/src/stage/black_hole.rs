//! Black holes: flows with large segments that are retransmitted repeatedly while small ones pass.
//! This is the sign of a smaller MTU behind the switch that no router reports.
//!
//! Only sparse bursts of at most [`SPARSE`] frames are checked, because a flow in a black hole
//! sends only one segment per retransmission timeout; full bursts cost nothing. A retransmitted
//! segment proves that all segments before it arrived: if the one before it was small, small ones
//! pass.

use crate::frame::Frame;
use crate::frame::headers::Headers;
use ports::Nanos;
use std::sync::Mutex;
use wire::tcp::{TcpFlags, TcpHeader};
use wire::{Header, Kind};

/// Largest number of frames in a burst that is checked.
pub(crate) const SPARSE: usize = 4;
/// Size of the IP packets that every path carries: the smallest MTU of IPv6 links (RFC 8200, 5).
const MIN_MTU: u32 = 1280;
/// Retransmissions of one segment after which the flow is reported.
const REPORTED_RETRANSMISSIONS: u8 = 2;
/// Shortest time to a retransmission by timer; earlier retransmissions have another cause.
const MIN_RETRANSMISSION_TIMEOUT: Nanos = Nanos(10_000_000);
/// Segments in the initial window (RFC 6928 has 10). In a flow beyond it, large segments were
/// acknowledged.
const INITIAL_WINDOW: u32 = 16;
/// Flows that a port remembers; a new flow replaces the one with its index.
const FLOWS: usize = 256;

/// A flow, known by a hash.
#[derive(Clone, Copy, Default)]
struct Flow {
    hash: u64,
    /// The sequence number behind the last small segment.
    small_end: u32,
    /// The first large segment behind it.
    large: Option<u32>,
    /// The size of the flow's largest packet.
    size: u32,
    sent_at: Nanos,
    resent: u8,
    /// Whether large segments pass, or it was reported that they do not.
    is_settled: bool,
}

/// The flows that a port sends. Its queues share them: a kernel sends a flow's first segment by one
/// queue, and what follows the answer by another.
#[derive(Default)]
pub(crate) struct BlackHoles(Mutex<Option<Box<[Flow; FLOWS]>>>);

impl BlackHoles {
    /// Checks the frames of a sparse burst. Returns whether one of them shows a black hole. While
    /// another worker looks, nothing is checked: what is retransmitted comes again.
    #[inline(never)]
    pub(crate) fn look(&self, frames: &[Frame], headers: &Headers, now: Nanos) -> bool {
        let mut tcp = frames.iter().filter(|frame| frame.parsed.kind == Kind::Tcp).peekable();
        if tcp.peek().is_none() {
            return false;
        }
        let Ok(mut flows) = self.0.try_lock() else { return false };
        let mut flows = Flows(flows.get_or_insert_with(|| Box::new([Flow::default(); FLOWS])));
        tcp.fold(false, |found, frame| {
            flows.note(frame, headers.get(frame.header), now).unwrap_or(false) | found
        })
    }
}

struct Flows<'f>(&'f mut [Flow; FLOWS]);

impl Flows<'_> {
    fn note(&mut self, frame: &Frame, header: &[u8], now: Nanos) -> Option<bool> {
        let tcp = TcpHeader::at(header, frame.parsed.l4)?;
        let (sequence, payload) = (tcp.sequence.get(), frame.parsed.payload_len());
        let opens = tcp.flags().contains(TcpFlags::SYN);
        if payload == 0 && !opens {
            return None;
        }
        let ports = header.get(frame.parsed.l4.into()..)?.first_chunk::<4>()?;
        let hash = hash(frame.parsed.addresses(header)?, *ports);
        #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
        let flow = self.0.get_mut(hash as usize % FLOWS)?;
        let size = frame.largest_packet();
        if opens || size <= MIN_MTU && (flow.hash != hash || flow.large.is_none()) {
            let small_end = sequence.wrapping_add(payload).wrapping_add(opens.into());
            *flow = Flow { hash, small_end, ..Flow::default() };
            return None;
        }
        (flow.hash == hash && !flow.is_settled).then(|| flow.note(sequence, size, now))
    }
}

impl Flow {
    /// Notes a segment of the flow. Returns whether it shows a black hole.
    fn note(&mut self, sequence: u32, size: u32, now: Nanos) -> bool {
        let behind = |start: u32| sequence.wrapping_sub(start).cast_signed();
        self.size = self.size.max(size);
        self.is_settled = behind(self.small_end) > (INITIAL_WINDOW * self.size).cast_signed();
        if self.is_settled || behind(self.small_end) < 0 || size <= MIN_MTU {
            return false;
        }
        match self.large {
            Some(large) if behind(large) > 0 => return false,
            Some(large) if behind(large) == 0 => {
                self.resent += u8::from(now.since(self.sent_at) >= MIN_RETRANSMISSION_TIMEOUT);
            }
            _ => (self.large, self.resent) = (Some(sequence), 0),
        }
        self.sent_at = now;
        self.is_settled = self.resent == REPORTED_RETRANSMISSIONS;
        self.is_settled
    }
}

/// Hashes addresses and ports.
fn hash(addresses: &[u8], ports: [u8; 4]) -> u64 {
    let mix = |sum: u64, word: u32| {
        (sum ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    let words = addresses.as_chunks::<4>().0.iter().chain([&ports]);
    words.fold(1, |sum, word| mix(sum, u32::from_ne_bytes(*word)))
}
