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
use wire::tcp::{TcpFlags, TcpHeader};
use wire::{Header, Kind};

/// The most frames of a burst that is checked.
pub(crate) const SPARSE: usize = 4;
/// IP packets up to this size pass everywhere (RFC 8200, 5).
const SMALL: u32 = 1280;
/// The number of retransmissions of a segment that is reported.
const RESENT: u8 = 2;
/// The shortest time to a retransmission by timer; earlier ones have another cause.
const SOON: Nanos = Nanos(10_000_000);
/// Segments under way at first (RFC 6928 has 10). A flow that comes further has had large ones
/// acknowledged.
const FLIGHT: u32 = 16;
/// Flows of a worker; one more takes the place of another.
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

/// The flows of one worker.
pub(crate) struct BlackHoles(Box<[Flow; FLOWS]>);

impl BlackHoles {
    pub(crate) fn new() -> BlackHoles {
        BlackHoles(Box::new([Flow::default(); FLOWS]))
    }

    /// Checks the frames of a sparse burst. Returns whether one of them shows a black hole.
    #[inline(never)]
    pub(crate) fn look(&mut self, frames: &[Frame], headers: &Headers, now: Nanos) -> bool {
        let mut found = false;
        for frame in frames.iter().filter(|frame| frame.parsed.kind == Kind::Tcp) {
            found |= self.note(frame, headers.get(frame.header), now).unwrap_or(false);
        }
        found
    }

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
        if opens || size <= SMALL && (flow.hash != hash || flow.large.is_none()) {
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
        self.is_settled = behind(self.small_end) > (FLIGHT * self.size).cast_signed();
        if self.is_settled || behind(self.small_end) < 0 || size <= SMALL {
            return false;
        }
        match self.large {
            Some(large) if behind(large) > 0 => return false,
            Some(large) if behind(large) == 0 => {
                self.resent += u8::from(now.since(self.sent_at) >= SOON);
            }
            _ => (self.large, self.resent) = (Some(sequence), 0),
        }
        self.sent_at = now;
        self.is_settled = self.resent == RESENT;
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
