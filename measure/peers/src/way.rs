//! One direction of traffic: frames go out by one vNIC's ring and are taken from the other's,
//! checked one by one.
//!
//! Length, stamp and virtio header of every frame are checked, which also loads its first cache
//! lines, as any guest's stack would; of one in [`SAMPLE`] every byte is. A buffer goes back as
//! soon as it was checked.

use crate::case::Case;
use crate::queue::Queue;
use crate::ring::Used;
use crate::stream::Stream;
use anyhow::{Result, bail};
use serde::Serialize;
use wire::vnet::VnetHeader;

/// Buffers taken back in one go.
const MOST_REAPED: usize = 64;
/// One frame in this many is compared byte by byte.
const SAMPLE: u64 = 1024;

/// Counts of a way since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Frames that the switch has taken.
    pub(crate) taken: u64,
    /// Frames that arrived.
    pub(crate) frames: u64,
    /// Their bytes, without virtio headers.
    pub(crate) bytes: u64,
    /// Of these, compared byte by byte.
    pub(crate) compared: u64,
    /// Of these, not the successor of the frame before: some were lost between, or overtaken.
    pub(crate) out_of_order: u64,
}

impl Tally {
    /// What happened after `earlier`.
    pub(crate) fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            taken: self.taken - earlier.taken,
            frames: self.frames - earlier.frames,
            bytes: self.bytes - earlier.bytes,
            compared: self.compared - earlier.compared,
            out_of_order: self.out_of_order - earlier.out_of_order,
        }
    }

    /// Both together.
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

/// See the module.
pub(crate) struct Way<'r> {
    ingress: &'r mut Queue,
    egress: &'r mut Queue,
    stream: Stream,
    burst: u16,
    /// The next frame to send.
    sequence: u32,
    flow: usize,
    /// The frame that should come next.
    expected: u32,
    pub(crate) tally: Tally,
}

impl<'r> Way<'r> {
    /// From the ring that a switch takes from to the ring that it delivers into; all buffers of
    /// both are ours.
    pub(crate) fn new(
        ingress: &'r mut Queue,
        egress: &'r mut Queue,
        stream: Stream,
        case: &Case,
    ) -> Way<'r> {
        for ahead in 0..ingress.ring.free() {
            stream.prepare(&ingress.ring.area().memory, ingress.ring.next(ahead));
        }
        egress.ring.publish(egress.ring.free());
        let burst = case.burst();
        Way {
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

    /// Sends a burst if there is room, and takes what has arrived. `false`: nothing moved.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<bool> {
        let sent = self.recycle()? | self.send_burst();
        Ok(self.receive()? > 0 || sent)
    }

    /// Takes back what the switch has taken. `false`: there was nothing.
    #[inline]
    pub(crate) fn recycle(&mut self) -> Result<bool> {
        let mut used = [Used::default(); MOST_REAPED];
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

    /// Sends a burst of `count` frames, or as many as there is room for; returns how many.
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

    /// Takes and checks what has arrived; returns how many frames.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<usize> {
        let mut used = [Used::default(); MOST_REAPED];
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
        if let Some(place) = self.stream.damage(sequence, &seen) {
            bail!("frame {sequence} arrived damaged: byte {place} is {:?}", seen.get(place));
        }
        self.tally.compared += 1;
        Ok(())
    }

    /// Wakes the switch if it sleeps at one of the two queues.
    pub(crate) fn kick_if_wanted(&self) -> Result<()> {
        self.ingress.kick_if_wanted()?;
        self.egress.kick_if_wanted()
    }
}
