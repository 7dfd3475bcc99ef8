//! The two sides of a TAP queue: one `read` for each frame in, one `writev` for each frame out,
//! with no copy in between.

use crate::{Burst, Egress, EgressDrop, Ingress, Nanos, Outgoing, PortFault, Slice, closing};
use rustix::io::{Errno, IoSlice};
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use wire::vnet::VnetHeader;
use zerocopy::{FromBytes, IntoBytes};

/// Alignment of frames to cache lines, which makes the kernel's copy faster.
const ALIGN: usize = 64;

/// The ingress side of a TAP queue, see [`Ingress`]. Frames are read into a buffer of the queue and
/// lent from there. The kernel counts the frames that it drops at a full queue in the statistics of
/// the device (as its `tx_dropped`), not here.
pub struct TapIngress {
    file: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

/// The egress side of a TAP queue, see [`Egress`]. One call passes a frame from its buffers to the
/// kernel.
pub struct TapEgress {
    file: Arc<OwnedFd>,
}

thread_local! {
    /// Buffer for the rare frame of more pieces than [`PIECES`].
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Drop for TapIngress {
    fn drop(&mut self) {
        closing::collect(self.file.as_fd());
    }
}

impl Drop for TapEgress {
    fn drop(&mut self) {
        closing::collect(self.file.as_fd());
    }
}

impl TapIngress {
    pub(super) fn new(file: Arc<OwnedFd>) -> TapIngress {
        // The allocator hands out zeroed memory untouched, so it takes no pages until frames are
        // read into it.
        TapIngress { file, buffer: vec![0; Burst::BUFFER] }
    }
}

impl Ingress for TapIngress {
    fn take<'q>(&'q mut self, _now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        let mut room = self.buffer.as_mut_slice();
        let mut taken = false;
        while !burst.is_full() && room.len() >= Burst::LARGEST_FRAME {
            let count = match rustix::io::read(&self.file, &mut *room) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // Frames taken so far are good; the next call reports a lasting fault.
                Err(_) if taken => break,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(fault("read from the TAP device", error)),
            };
            let (read, rest) = room.split_at_mut(count.next_multiple_of(ALIGN).min(room.len()));
            room = rest;
            let read: &'q [u8] = read;
            if let Ok((vnet, frame)) =
                VnetHeader::read_from_prefix(read.get(..count).unwrap_or_default())
            {
                burst.push(vnet, None, &[Slice::from(frame)]);
                taken = true;
            }
        }
        Ok(())
    }

    fn kernel_ns(&self) -> u32 {
        1500
    }

    fn release(&mut self) {
        // The buffer is the queue's own: the next `take` reads over it.
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Most pieces of a frame that are passed to the kernel as they are; more are joined first (the
/// kernel's limit is 1024).
const PIECES: usize = 128;

impl TapEgress {
    pub(super) fn new(file: Arc<OwnedFd>) -> TapEgress {
        TapEgress { file }
    }

    fn write_joined(&self, frame: &Outgoing<'_>) -> Result<usize, Errno> {
        if frame.len as usize > Burst::LARGEST_FRAME {
            return Err(Errno::MSGSIZE);
        }
        JOINED.with_borrow_mut(|joined| {
            joined.clear();
            joined.extend_from_slice(frame.vnet.as_bytes());
            joined.extend_from_slice(frame.header);
            frame.payload.iter().for_each(|slice| slice.append_to(joined));
            rustix::io::write(&self.file, joined)
        })
    }
}

impl Egress for TapEgress {
    fn kernel_ns(&self) -> u32 {
        4000
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        for (place, frame) in frames.iter().enumerate() {
            let payload = Slice::as_io_slices(frame.payload);
            let written = match pieces.get_mut(..2 + payload.len()) {
                Some([vnet, header, rest @ ..]) => {
                    *vnet = IoSlice::new(frame.vnet.as_bytes());
                    *header = IoSlice::new(frame.header);
                    rest.copy_from_slice(payload);
                    rustix::io::writev(&self.file, &pieces[..2 + payload.len()])
                }
                _ => self.write_joined(frame),
            };
            match written.map_err(refusal) {
                Ok(_) => {}
                // Further writes would fail with the same error.
                Err(Refusal::Drop(EgressDrop::Down)) => {
                    drops.extend((place..frames.len()).map(|place| (place, EgressDrop::Down)));
                    return Ok(());
                }
                Err(Refusal::Drop(reason)) => drops.push((place, reason)),
                Err(Refusal::Fault(error)) => return Err(fault("write to the TAP device", error)),
            }
        }
        Ok(())
    }
}

enum Refusal {
    Drop(EgressDrop),
    Fault(Errno),
}

fn refusal(error: Errno) -> Refusal {
    match error {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Refusal::Drop(EgressDrop::Full),
        // A TAP device that is down answers a write with EIO.
        Errno::IO | Errno::NETDOWN => Refusal::Drop(EgressDrop::Down),
        Errno::BADFD | Errno::NODEV | Errno::NXIO => Refusal::Fault(error),
        _ => Refusal::Drop(EgressDrop::Refused),
    }
}

fn fault(doing: &'static str, error: Errno) -> PortFault {
    match error {
        Errno::NETDOWN => PortFault::Down,
        // The error is EBADFD if the descriptor's device was deleted.
        Errno::BADFD | Errno::NODEV | Errno::NXIO | Errno::IO => PortFault::Gone(error.into()),
        _ => PortFault::Io { doing, source: error.into() },
    }
}
