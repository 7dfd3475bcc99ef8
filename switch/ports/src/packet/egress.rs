//! Delivers to an interface: one `sendmmsg` for up to 64 frames, each gathered from its slices.
//!
//! A mapped transmit ring would also copy each byte once, but into slots of a fixed size that
//! trains of 64 KiB do not fit, and all slots must be scanned for completed ones. The queueing
//! discipline is not bypassed: a bypass drops trains that the device cannot segment itself.
//!
//! Workers call in parallel, each with its own scratch: the kernel copies the payload within the
//! call, which takes as long as a guest's pages take to be faulted in. Frames of one worker stay in
//! order because its calls follow each other.

use super::VNET_LEN;
use super::socket::{Batch, PacketSocket};
use crate::{Egress, EgressDrop, Outgoing, PortFault, Room, Slice, recycle};
use rustix::io::{Errno, IoSlice};
use std::cell::RefCell;
use zerocopy::IntoBytes;

/// Bytes that may wait to be sent, with the kernel's overhead, before [`Egress::room`] is zero.
/// Less than the 1000 frames that a queueing discipline takes by default, and enough for a
/// millisecond at 4 Gbit/s.
const QUEUED: usize = 1 << 20;
/// Most slices of payload a message can carry: the kernel takes 1024 pieces, two are the headers.
const PIECES: usize = 1022;

/// The egress side of a queue pair. See [`Egress`].
pub struct PacketEgress {
    socket: PacketSocket,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::EMPTY) };
}

/// What a thread reuses from call to call.
struct Scratch {
    /// The pieces of a batch; empty between calls, kept for its capacity.
    pieces: Vec<IoSlice<'static>>,
    /// Payload of the rare frames of more than [`PIECES`] slices.
    joined: Vec<u8>,
}

impl PacketEgress {
    pub(super) fn new(socket: PacketSocket) -> PacketEgress {
        PacketEgress { socket }
    }
}

impl Scratch {
    const EMPTY: Scratch = Scratch { pieces: Vec::new(), joined: Vec::new() };

    /// Sends at most [`Batch::FRAMES`] frames; the first is number `base` of the burst. Returns
    /// whether to go on.
    fn deliver_batch(
        &mut self,
        socket: &PacketSocket,
        base: usize,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<bool, PortFault> {
        join_payloads(frames, &mut self.joined);
        let mut joined = self.joined.as_slice();
        let mut pieces: Vec<IoSlice<'_>> = recycle(std::mem::take(&mut self.pieces));
        pieces.reserve(16 * Batch::FRAMES);
        for frame in frames {
            let vnet = frame.vnet.as_bytes().get(..VNET_LEN).unwrap_or_default();
            pieces.extend([IoSlice::new(vnet), IoSlice::new(frame.header)]);
            if frame.payload.len() > PIECES {
                let (mine, rest) = joined.split_at(payload_len(frame).min(joined.len()));
                joined = rest;
                pieces.push(IoSlice::new(mine));
            } else {
                pieces.extend_from_slice(Slice::as_io_slices(frame.payload));
            }
        }
        let counts = frames.iter().map(|frame| 2 + slices_of(frame));
        let result = send(socket, Batch::new(&pieces, counts), base, frames.len(), drops);
        self.pieces = recycle(pieces);
        result
    }
}

impl Egress for PacketEgress {
    fn kernel_ns(&self) -> u32 {
        1500
    }

    /// Returns the room; without a queueing discipline nothing waits, and there is always room.
    fn room(&self) -> Option<Room> {
        let waiting = self.socket.unsent().unwrap_or(0);
        let free = QUEUED.saturating_sub(waiting);
        Some(Room { buffers: free / 1024, bytes: free / 2, waiting })
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        SCRATCH.with_borrow_mut(|scratch| {
            for (number, batch) in frames.chunks(Batch::FRAMES).enumerate() {
                let base = number * Batch::FRAMES;
                if !scratch.deliver_batch(&self.socket, base, batch, drops)? {
                    let rest = base + batch.len()..frames.len();
                    drops.extend(rest.map(|place| (place, EgressDrop::Down)));
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Sends a batch, and skips refused frames. Returns `false` if the interface is down and the rest
/// was dropped.
fn send(
    socket: &PacketSocket,
    mut batch: Batch<'_>,
    base: usize,
    count: usize,
    drops: &mut Vec<(usize, EgressDrop)>,
) -> Result<bool, PortFault> {
    let mut next = 0;
    while next < count {
        match batch.send(socket, next) {
            Ok(sent) => next += sent.max(1),
            Err(Errno::INTR) => {}
            Err(Errno::NETDOWN) => {
                drops.extend((base + next..base + count).map(|place| (place, EgressDrop::Down)));
                return Ok(false);
            }
            Err(error @ (Errno::NXIO | Errno::NODEV)) => return Err(PortFault::Gone(error.into())),
            Err(error) => {
                drops.push((base + next, refusal(error)));
                next += 1;
            }
        }
    }
    Ok(true)
}

fn refusal(error: Errno) -> EgressDrop {
    match error {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => EgressDrop::Full,
        // Mostly EMSGSIZE (longer than the MTU) and EINVAL (headers that do not fit the frame).
        _ => EgressDrop::Refused,
    }
}

fn slices_of(frame: &Outgoing<'_>) -> usize {
    if frame.payload.len() > PIECES { 1 } else { frame.payload.len() }
}

fn payload_len(frame: &Outgoing<'_>) -> usize {
    frame.payload.iter().map(Slice::len).sum()
}

/// Joins payloads of too many slices in one buffer, one behind the other.
fn join_payloads(frames: &[Outgoing<'_>], joined: &mut Vec<u8>) {
    joined.clear();
    for frame in frames.iter().filter(|frame| frame.payload.len() > PIECES) {
        for slice in frame.payload {
            slice.append_to(joined);
        }
    }
}
