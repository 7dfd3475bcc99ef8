//! The receiving guest: takes frames of any length, coalesced or not, and counts them and their
//! segments.

use crate::queue::Queue;
use crate::slots::Used;
use crate::stream::{SEGMENT, TCP_HEADERS};
use anyhow::{Result, bail, ensure};
use wire::vnet::VnetHeader;

/// Maximum number of buffers reclaimed in one call: more than a train's segments.
const REAP_BATCH: usize = 64;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// The receiving end of a guest's queue.
pub(super) struct Receiver<'r> {
    queue: &'r mut Queue,
    /// The Ethernet header that every frame must have.
    wanted: [u8; ETHERNET],
    /// Buffers of the current frame that have not arrived yet.
    buffers_left: u16,
    /// Bytes of the current frame that have arrived.
    frame: usize,
    pub(super) frames: u64,
    pub(super) segments: u64,
}

impl<'r> Receiver<'r> {
    /// Publishes all buffers of the queue; the driver must own them.
    pub(super) fn new(queue: &'r mut Queue, frame: &[u8]) -> Receiver<'r> {
        let mut wanted = [0; ETHERNET];
        wanted.copy_from_slice(&frame[..ETHERNET]);
        queue.ring.publish(queue.ring.free());
        Receiver { queue, wanted, buffers_left: 0, frame: 0, frames: 0, segments: 0 }
    }

    /// Receives and counts what has arrived.
    pub(super) fn receive(&mut self) -> Result<()> {
        let mut used = [Used::default(); REAP_BATCH];
        let count = self.queue.ring.reap(&mut used)?;
        for used in &used[..count] {
            self.take(used)?;
        }
        if count > 0 {
            self.queue.ring.publish(self.queue.ring.free());
        }
        Ok(())
    }

    fn take(&mut self, used: &Used) -> Result<()> {
        self.frame += used.len as usize;
        if self.buffers_left == 0 {
            self.buffers_left = self.start(used)?;
        }
        self.buffers_left -= 1;
        if self.buffers_left == 0 { self.finish() } else { Ok(()) }
    }

    /// Checks the start of a frame, and returns the number of its buffers.
    fn start(&self, used: &Used) -> Result<u16> {
        let area = self.queue.ring.area();
        let mut start = [0; VnetHeader::LEN + ETHERNET];
        area.memory.read(area.buffer(used.id), &mut start);
        let (header, ethernet) = start.split_at(VnetHeader::LEN);
        ensure!(*ethernet == self.wanted, "a frame arrived that was not sent: {ethernet:02x?}");
        let buffers = VnetHeader::decode(header.try_into()?).num_buffers.get();
        ensure!(buffers > 0, "a frame arrived in no buffer");
        Ok(buffers)
    }

    fn finish(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.frame);
        let payload = bytes.saturating_sub(VnetHeader::LEN + TCP_HEADERS);
        if payload == 0 || !payload.is_multiple_of(SEGMENT) {
            bail!("{bytes} bytes arrived, which are no segments of {SEGMENT}");
        }
        self.frames += 1;
        self.segments += (payload / SEGMENT) as u64;
        Ok(())
    }
}
