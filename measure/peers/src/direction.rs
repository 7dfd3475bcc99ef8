//! One direction of traffic: sends frames on one vNIC's ring, and receives and checks them on the
//! other's.
//!
//! Length, stamp and virtio header of every frame are checked, which also loads its first cache
//! lines, as any guest's stack would. Of one frame in [`SAMPLE`], every byte is checked. A buffer
//! is published again as soon as it is checked.

use crate::case::Case;
use crate::queue::Queue;
use crate::slots::Used;
use crate::stream::Stream;
use anyhow::{Result, bail};
use serde::Serialize;
use wire::vnet::VnetHeader;

/// Maximum number of buffers reclaimed in one call.
const REAP_BATCH: usize = 64;
/// One frame in this many is compared byte by byte.
const SAMPLE: u64 = 1024;

/// Counts of a direction since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Frames that the switch has consumed.
    pub(crate) taken: u64,
    /// Frames that arrived.
    pub(crate) frames: u64,
    /// Bytes of the frames that arrived, without virtio headers.
    pub(crate) bytes: u64,
    /// Frames that were compared byte by byte.
    pub(crate) compared: u64,
    /// Frames that did not follow the one sent before them: some between were lost, or overtaken.
    pub(crate) out_of_order: u64,
}

impl Tally {
    /// Returns the counts since `earlier`.
    pub(crate) fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            taken: self.taken - earlier.taken,
            frames: self.frames - earlier.frames,
            bytes: self.bytes - earlier.bytes,
            compared: self.compared - earlier.compared,
            out_of_order: self.out_of_order - earlier.out_of_order,
        }
    }

    /// Returns the sum of both.
    pub(crate) fn plus(&self, other: &Tally) -> Tally {
        Tally {
            taken: self.taken + other.taken,
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
            compared: self.compared + other.compared,
            out_of_order: self.out_of_order + other.out_of_order,
        }
    }
}

/// Sender and receiver of one direction.
pub(crate) struct Direction<'r> {
    ingress: &'r mut Queue,
    egress: &'r mut Queue,
    stream: Stream,
    burst: u16,
    /// Sequence number of the next frame to send.
    sequence: u32,
    flow: usize,
    /// Sequence number of the frame that should arrive next.
    expected: u32,
    pub(crate) tally: Tally,
}

impl<'r> Direction<'r> {
    /// Creates a direction from the ring that the switch reads to the ring that it writes; the
    /// driver must own all buffers of both.
    pub(crate) fn new(
        ingress: &'r mut Queue,
        egress: &'r mut Queue,
        stream: Stream,
        case: &Case,
    ) -> Direction<'r> {
        for ahead in 0..ingress.ring.free() {
            stream.prepare(&ingress.ring.area().memory, ingress.ring.next(ahead));
        }
        egress.ring.publish(egress.ring.free());
        let burst = case.burst();
        Direction {
            ingress,
            egress,
            stream,
            burst,
            sequence: 0,
            flow: 0,
            expected: 0,
            tally: Tally::default(),
        }
    }

    /// Sends a burst if there is room, and receives what has arrived. Returns whether anything
    /// moved.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<bool> {
        let sent = self.recycle()? | self.send_burst();
        Ok(self.receive()? > 0 || sent)
    }

    /// Reclaims the buffers that the switch has consumed. Returns whether there were any.
    #[inline]
    pub(crate) fn recycle(&mut self) -> Result<bool> {
        let mut used = [Used::default(); REAP_BATCH];
        let count = self.ingress.ring.reap(&mut used)?;
        self.tally.taken += count as u64;
        Ok(count > 0)
    }

    fn send_burst(&mut self) -> bool {
        let room = self.ingress.ring.free() >= self.burst;
        if room {
            self.send(self.burst);
        }
        room
    }

    /// Sends at most `count` frames, within the burst and the room in the ring. Returns the number
    /// sent.
    pub(crate) fn send_at_most(&mut self, count: u16) -> u16 {
        let count = count.min(self.burst).min(self.ingress.ring.free());
        if count > 0 {
            self.send(count);
        }
        count
    }

    #[inline]
    fn send(&mut self, count: u16) {
        let memory = &self.ingress.ring.area().memory;
        for ahead in 0..count {
            self.stream.write(memory, self.ingress.ring.next(ahead), self.flow, self.sequence);
            self.flow = self.stream.flow_after(self.flow);
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.ingress.ring.publish(count);
    }

    /// Receives and checks what has arrived. Returns the number of frames.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<usize> {
        let mut used = [Used::default(); REAP_BATCH];
        let count = self.egress.ring.reap(&mut used)?;
        for used in &used[..count] {
            self.check(used)?;
        }
        if count > 0 {
            self.egress.ring.publish(self.egress.ring.free());
        }
        Ok(count)
    }

    #[inline(always)]
    fn check(&mut self, used: &Used) -> Result<()> {
        let area = self.egress.ring.area();
        let buffer = area.buffer(used.id);
        let mut header = [0; VnetHeader::LEN];
        area.memory.read(buffer, &mut header);
        let whole = self.stream.arrived_whole(VnetHeader::decode(header));
        let fits = used.len as usize == self.stream.len + VnetHeader::LEN;
        let (true, true, Some(sequence)) = (whole, fits, Stream::sequence(&area.memory, buffer))
        else {
            return self.refuse(used, header);
        };
        self.tally.out_of_order += u64::from(sequence != self.expected);
        self.expected = sequence.wrapping_add(1);
        if self.tally.frames.is_multiple_of(SAMPLE) {
            self.compare(buffer, sequence)?;
        }
        self.tally.frames += 1;
        self.tally.bytes += self.stream.len as u64;
        Ok(())
    }

    #[cold]
    fn refuse(&self, used: &Used, header: [u8; VnetHeader::LEN]) -> Result<()> {
        bail!(
            "a frame arrived that was not sent: {} bytes with the virtio header {:?}, wanted {} with {:?}",
            used.len,
            header,
            self.stream.len + VnetHeader::LEN,
            self.stream.vnet_header().encode()
        )
    }

    #[cold]
    fn compare(&mut self, buffer: usize, sequence: u32) -> Result<()> {
        let mut seen = vec![0; self.stream.len];
        self.egress.ring.area().memory.read(buffer + VnetHeader::LEN, &mut seen);
        if let Some(place) = self.stream.first_difference(sequence, &seen) {
            bail!("frame {sequence} arrived damaged: byte {place} is {:?}", seen.get(place));
        }
        self.tally.compared += 1;
        Ok(())
    }

    /// Notifies the switch of the queues for which it asks for a notification.
    pub(crate) fn kick_if_wanted(&self) -> Result<()> {
        self.ingress.kick_if_wanted()?;
        self.egress.kick_if_wanted()
    }
}
