// UNSAFETY: lends a guest's buffers for the length of a turn.
//! Takes from a guest: takes chains of its transmit queue by the burst and lends them in place.
#![allow(unsafe_code)]

use super::copy;
use crate::{Burst, BurstLimit, Ingress, Nanos, PortFault, Slice, TimeLimit};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use vhost_user::{RingSlot, Running};
use virtqueue::{ChainElement, Limit, Queue};
use wire::vnet::VnetHeader;

/// Most pieces of a frame that are listed without an allocation: 64 KiB in pages, and the header.
const PIECES: usize = 18;

/// Most pieces of a frame, whatever its bytes, and most that have the time of a page each; the bytes that each further piece must have on
/// average. Each piece may cost a page fault, more than a thousand times what its bytes cost. Linux
/// sends at most 19 pieces.
const MOST_PIECES: usize = 32;
const BYTES_A_PIECE: usize = 64;

/// What is taken between two looks at the clock: each chain may have a table and a page of its own
/// that the kernel has to find.
const PORTION: BurstLimit = BurstLimit { frames: 32, bytes: 32 * 1024 };
/// The same if the time is watched closely.
const SMALL_PORTION: BurstLimit = BurstLimit { frames: 1, bytes: 1 };

/// The ingress side of a guest's queue pair, see [`Ingress`]. The ring is borrowed from the session
/// from take to release, so the lent buffers stay mapped.
pub struct VhostIngress {
    ring: Arc<RingSlot>,
    borrowed: Option<Box<Running>>,
    /// How many frames of [`Running::announcement`] are in the burst.
    announced: usize,
    /// Buffer for frames of more pieces than [`PIECES`].
    pieces: Vec<Slice<'static>>,
}

impl VhostIngress {
    pub(super) fn new(ring: Arc<RingSlot>) -> VhostIngress {
        VhostIngress { ring, borrowed: None, announced: 0, pieces: Vec::new() }
    }
}

impl Drop for VhostIngress {
    fn drop(&mut self) {
        self.release();
    }
}

impl Ingress for VhostIngress {
    fn take<'q>(&'q mut self, _now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        let Some(running) = self.ring.borrow() else { return Ok(()) };
        let Running { queue, features, announcement, .. } = &mut **self.borrowed.insert(running);
        self.announced = announcement.len().min(burst.room());
        for frame in announcement.iter().take(self.announced) {
            burst.push(VnetHeader::default(), None, &[frame.as_slice().into()]);
        }
        let header_len = features.header_len();
        take(queue, header_len, burst, &mut self.pieces);
        Ok(())
    }

    fn release(&mut self) {
        let Some(mut running) = self.borrowed.take() else { return };
        if self.announced > 0 {
            running.announcement.drain(..self.announced);
        }
        if running.queue.complete(usize::MAX) {
            running.notify();
        }
        self.ring.give_back(running);
    }

    fn arm(&mut self) -> bool {
        self.ring.forget_kicks();
        let arm = |running: &mut Running| running.queue.arm() || !running.announcement.is_empty();
        self.ring.with(arm).unwrap_or(false)
    }

    fn disarm(&mut self) {
        self.ring.with(|running| running.queue.disarm());
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.ready_fd()
    }
}

/// Fills a burst. An error of the guest stops its queue, which keeps the reason for the session;
/// chains before the error are good.
#[inline(always)]
fn take(
    queue: &mut Queue,
    header_len: usize,
    burst: &mut Burst<'_>,
    pieces: &mut Vec<Slice<'static>>,
) {
    let portion = if burst.time().is_close { SMALL_PORTION } else { PORTION };
    let mut before = 0;
    while burst.room() > 0 {
        let chains = burst.room().min(portion.frames);
        let bytes = burst.room_bytes().min(portion.bytes);
        let Ok(taken @ 1..) = queue.take(Limit { chains, bytes }) else { return };
        if before == 0 {
            burst.start_counting();
        }
        let (old_bytes, old_slices) = (burst.bytes(), burst.slice_count());
        push(queue.taken_after(before), header_len, burst, pieces);
        before += taken;
        // Fewer than asked for, and none in pieces, which count for more than their bytes: the ring
        // has no more.
        let are_whole = burst.slice_count() - old_slices == taken;
        let is_drained = taken < chains && are_whole && burst.bytes() - old_bytes < bytes;
        if is_drained || burst.time_with(0).is_over() {
            return;
        }
    }
}

/// Pushes the frames of chains. Each page that a frame lies in is touched here, so that the time of
/// taking is all that the kernel takes for the sender's memory.
#[inline(always)]
fn push<'c>(
    chains: impl Iterator<Item = &'c [ChainElement]>,
    header_len: usize,
    burst: &mut Burst<'_>,
    pieces: &mut Vec<Slice<'static>>,
) {
    for chain in chains {
        let vnet = copy::read_header(chain, header_len).unwrap_or_default();
        match chain {
            [piece] => {
                // SAFETY: the queue is borrowed from the session until release, and lent chains
                // keep it from being remapped, so its pieces stay mapped for the burst.
                let bytes = unsafe { copy::lend(piece, header_len) };
                copy::touch_rest(&bytes.take(Burst::LARGEST_FRAME));
                burst.push(vnet, None, &[bytes]);
            }
            _ => push_chain(vnet, chain, header_len, burst, pieces),
        }
    }
}

/// Pushes a frame in several pieces, with the virtio header at their front. Cuts a frame that is
/// longer than any port takes, and keeps enough that it is still too long: a chain may have
/// gigabytes, more than a frame's length can express.
#[inline(never)]
fn push_chain(
    vnet: VnetHeader,
    chain: &[ChainElement],
    header_len: usize,
    burst: &mut Burst<'_>,
    pieces: &mut Vec<Slice<'static>>,
) {
    let mut skip = header_len;
    pieces.clear();
    pieces.reserve(PIECES);
    let mut room = Burst::LARGEST_FRAME + 1;
    for piece in chain {
        if skip < piece.len {
            // SAFETY: as in `take`; the list is emptied before anything else can happen to the
            // queue.
            let slice = unsafe { copy::lend(piece, skip) }.take(room);
            room -= slice.len();
            pieces.push(slice);
        }
        if room == 0 {
            break;
        }
        skip -= skip.min(piece.len);
    }
    let bytes = Burst::LARGEST_FRAME + 1 - room;
    let are_few = pieces.len() <= MOST_PIECES + bytes / BYTES_A_PIECE;
    let time = burst.time_with(bytes).for_frame(bytes, pieces.len().min(MOST_PIECES));
    if are_few && touch(pieces, time) {
        burst.push(vnet, None, pieces);
    } else {
        burst.refuse(chain.len());
    }
    pieces.clear();
}

/// Touches the pages of a frame. Returns `false` if the time is over before the last. A frame that
/// begins when it is nearly over has as long again, so a guest's first pages cost it no frame.
fn touch(pieces: &[Slice<'_>], time: TimeLimit) -> bool {
    pieces.iter().enumerate().all(|(number, piece)| {
        let is_over = time.is_over_before(number);
        if !is_over {
            copy::touch(piece);
        }
        !is_over
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IngressQueue;
    use crate::clock::tests::{faulting, over_at};
    use crate::vhost::{VhostOptions, open};
    use tempfile::TempDir;
    use test_guest::Guest;
    use vhost_user::Features;

    #[test]
    fn a_chain_of_4_gib_is_no_short_frame() {
        let memory = vec![0u8; 64 << 20];
        let piece = |len| ChainElement { start: memory.as_ptr().cast_mut(), len };
        let mut chain = vec![piece(12 + 100)];
        chain.extend((0..64).map(|_| piece(memory.len())));
        let mut burst = Burst::new();
        push_chain(VnetHeader::default(), &chain, 12, &mut burst, &mut Vec::new());
        assert_eq!(burst.bytes(), Burst::LARGEST_FRAME + 1);
    }

    /// A chain of 1024 pieces of a byte, each in a page of its own, cost as many page faults.
    #[test]
    fn a_frame_of_crumbs_is_refused() {
        let memory = vec![0u8; 1 << 20];
        let frame = |pieces: usize, len| {
            let start = memory.as_ptr().cast_mut();
            let chain = vec![ChainElement { start, len }; pieces];
            let mut burst = Burst::new();
            push_chain(VnetHeader::default(), &chain, 0, &mut burst, &mut Vec::new());
            (burst.frames().len(), burst.refused())
        };
        for (pieces, len) in [(2, 7), (MOST_PIECES, 1), (19, 4096), (1024, 64), (1056, 64)] {
            assert_eq!(frame(pieces, len), (1, 0), "{pieces} pieces of {len} bytes");
        }
        for (pieces, len) in [(MOST_PIECES + 1, 1), (1024, 1), (1024, 60), (2047, 1)] {
            assert_eq!(frame(pieces, len), (0, 1), "{pieces} pieces of {len} bytes");
        }
    }

    /// 256 such frames a burst held a worker for 2 ms although none of their pages was touched.
    #[test]
    fn refused_crumbs_fill_a_burst() {
        let mut memory = vec![0u8; 4096];
        let chain = vec![ChainElement { start: memory.as_mut_ptr(), len: 1 }; 1024];
        let mut burst = Burst::new();
        while burst.room() > 0 {
            push_chain(VnetHeader::default(), &chain, 0, &mut burst, &mut Vec::new());
        }
        assert_eq!((burst.refused(), burst.refused_pieces()), (1, 1024));
    }

    /// 18 huge pages that the kernel had to make held a worker for seconds.
    #[test]
    fn a_frame_whose_pages_take_too_long_is_refused() {
        let memory = vec![0u8; 4096];
        let frame = |pieces: usize, look, is_close| {
            let start = memory.as_ptr().cast_mut();
            let chain = vec![ChainElement { start, len: 64 }; pieces];
            let mut burst = Burst::new();
            burst.limit_time(over_at(look, is_close));
            push_chain(VnetHeader::default(), &chain, 0, &mut burst, &mut Vec::new());
            (burst.frames().len(), burst.refused())
        };
        const EVERY: usize = TimeLimit::EVERY;
        // The frame may take twice the time.
        for (pieces, look, is_close) in [(EVERY, 1, false), (3 * EVERY, 2, false), (19, 10, true)] {
            assert_eq!(frame(pieces, look, is_close), (1, 0), "{pieces} pieces, over at {look}");
            assert_eq!(frame(pieces + 1, look, is_close), (0, 1), "one more");
        }
    }

    /// A frame in a thousand absent pages had the time of its pieces, a third of a millisecond.
    #[test]
    fn a_frame_with_more_page_faults_than_pages_is_refused() {
        let memory = vec![0u8; 8 * 4096];
        let frame = |pieces: usize, len| {
            let start = memory.as_ptr().cast_mut();
            let chain = vec![ChainElement { start, len }; pieces];
            let mut burst = Burst::new();
            // Looked at before each piece but the first.
            burst.limit_time(faulting(8));
            burst.start_counting();
            push_chain(VnetHeader::default(), &chain, 0, &mut burst, &mut Vec::new());
            (burst.frames().len(), burst.refused())
        };
        for (pieces, len, most) in [(3, 64, 18), (4, 4096, 26)] {
            assert_eq!(frame(pieces, len), (1, 0), "{pieces} pieces, at most {most} page faults");
            assert_eq!(frame(pieces + 1, len), (0, 1), "one more");
        }
    }

    #[test]
    fn what_a_late_take_leaves_waits() {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("vm");
        let mut opened = open(&VhostOptions::new(&path)).expect("a port");
        let mut guest = Guest::connect(&path, Features::VERSION_1.bits(), 1).expect("a guest");
        let [IngressQueue::Vhost(ingress)] = opened.device.ingress.as_mut_slice() else {
            panic!("one queue")
        };
        for number in 0..20 {
            assert!(guest.send(0, &[0; 12], &[number; 60]));
        }
        let mut seen: Vec<u8> = Vec::new();
        while seen.len() < 20 {
            let mut burst = Burst::new();
            burst.limit_time(over_at(3, true));
            ingress.take(Nanos(0), &mut burst).expect("take");
            assert!(burst.frames().len() <= 3, "over after the third frame");
            for frame in burst.frames() {
                let mut bytes = Vec::new();
                burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
                seen.extend(bytes.first());
            }
            drop(burst);
            ingress.release();
        }
        assert!(seen.iter().copied().eq(0..20), "none is lost: {seen:?}");
    }
}
