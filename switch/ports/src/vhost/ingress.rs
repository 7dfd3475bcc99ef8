// UNSAFETY: lends a guest's buffers for the length of a turn.
//! Takes from a guest: takes chains of its transmit queue by the burst and lends them in place.
#![allow(unsafe_code)]

use super::copy;
use crate::{Burst, Ingress, Nanos, PortFault, Slice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use vhost_user::{RingSlot, Running};
use virtqueue::{ChainElement, Limit, Queue};
use wire::vnet::VnetHeader;

/// Most pieces of a frame that are listed without an allocation: 64 KiB in pages, and the header.
const PIECES: usize = 18;

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
        Some(self.ring.ready_fd())
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
    let limit = Limit { chains: burst.room(), bytes: burst.room_bytes() };
    if queue.take(limit).is_err() {
        return;
    }
    for chain in queue.taken() {
        let vnet = copy::read_header(chain, header_len).unwrap_or_default();
        match chain {
            // SAFETY: the queue is borrowed from the session until release, and lent chains keep it
            // from being remapped, so its pieces stay mapped for the burst.
            [piece] => burst.push(vnet, None, &[unsafe { copy::lend(piece, header_len) }]),
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
    burst.push(vnet, None, pieces);
    pieces.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
