//! Delivers to a guest: copies frames into the buffers it made available, and publishes them once
//! per burst.
//!
//! Several workers use a guest's ring. They copy short bursts while holding the ring's lock. For
//! longer ones they only reserve room under the lock and copy without it; the ring publishes in the
//! order of the reservations.

use super::copy;
use crate::{Burst, Egress, EgressDrop, Outgoing, PortFault, Room, lock};
use std::sync::{Arc, Mutex};
use vhost_user::{Features, RingSlot, Running};
use virtqueue::{BatchNumber, ChainElement, FrameBuffers, Queue, Reserved};
use wire::vnet::GsoType;

/// Most buffers of a frame where buffers merge: 64 KiB in the smallest buffers Linux posts.
const MOST_BUFFERS: u16 = 64;

/// The egress side of a guest's queue pair. See [`Egress`].
pub struct VhostEgress {
    ring: Arc<RingSlot>,
    /// One list for each worker that was copying at a time; kept for their allocations.
    copy_lists: Mutex<Vec<CopyList>>,
}

impl VhostEgress {
    pub(super) fn new(ring: Arc<RingSlot>) -> VhostEgress {
        VhostEgress { ring, copy_lists: Mutex::default() }
    }

    /// Copies without the ring's lock. Returns `false` if the ring cannot be lent now; then nothing
    /// was dropped.
    #[inline(never)]
    fn deliver_long(&self, frames: &[Outgoing<'_>], drops: &mut Vec<(usize, EgressDrop)>) -> bool {
        let mut list = lock(&self.copy_lists).pop().unwrap_or_default();
        let batch = self.ring.begin(|running| list.reserve(running, frames, drops));
        let is_lent = batch.is_some();
        if let Some(batch) = batch {
            list.copy(frames);
            self.ring.end(|running| {
                if running.queue.end_batch(batch) {
                    running.notify();
                }
            });
        }
        lock(&self.copy_lists).push(list);
        is_lent
    }
}

impl Egress for VhostEgress {
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        if Outgoing::are_long(frames) && self.deliver_long(frames, drops) {
            return Ok(());
        }
        let served = self.ring.with(|running| deliver(running, frames, drops));
        if served != Some(true) {
            drops.extend((0..frames.len()).map(|place| (place, EgressDrop::Down)));
        }
        Ok(())
    }

    fn room(&self) -> Option<Room> {
        let free = self.ring.with(|running| running.queue.room(Burst::FRAMES))?;
        let (buffers, bytes) = free;
        Some(Room { buffers, bytes, waiting: 0 })
    }
}

/// Frames of a burst, and where to copy them.
#[derive(Default)]
struct CopyList {
    features: Features,
    elements: Vec<ChainElement>,
    copies: Vec<FrameCopy>,
}

struct FrameCopy {
    /// The frame's number in the burst.
    frame: usize,
    /// See [`FrameBuffers::buffers`].
    buffers: u16,
    /// Index behind its last element; its elements start where those of the copy before it end.
    end: usize,
}

impl CopyList {
    /// Reserves room for a burst. `None`: the guest does not want frames now.
    fn reserve(
        &mut self,
        running: &mut Running,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<BatchNumber> {
        let CopyList { elements, copies, .. } = self;
        elements.clear();
        copies.clear();
        let is_enabled = fill(running, frames, drops, |frame, _, room| {
            elements.extend_from_slice(room.elements);
            copies.push(FrameCopy { frame, buffers: room.buffers, end: elements.len() });
        });
        self.features = running.features;
        is_enabled.then(|| running.queue.begin_batch())
    }

    /// Copies the frames. Their elements are mapped for as long as the ring is lent.
    fn copy(&self, frames: &[Outgoing<'_>]) {
        let mut start = 0;
        for FrameCopy { frame, buffers, end } in &self.copies {
            let elements = self.elements.get(start..*end).unwrap_or_default();
            start = *end;
            if let Some(frame) = frames.get(*frame) {
                write(frame, FrameBuffers { elements, buffers: *buffers }, self.features);
            }
        }
    }
}

/// Delivers a burst under the ring's lock. Returns `false` if the guest does not want frames now.
fn deliver(
    running: &mut Running,
    frames: &[Outgoing<'_>],
    drops: &mut Vec<(usize, EgressDrop)>,
) -> bool {
    let features = running.features;
    let is_enabled = fill(running, frames, drops, |_, frame, room| write(frame, room, features));
    if is_enabled && running.queue.publish() {
        running.notify();
    }
    is_enabled
}

/// Finds room for each frame, and calls `put` with the frame's place, the frame and its room.
/// Returns `false` if the guest does not want frames now.
#[inline(always)]
fn fill<'f>(
    running: &mut Running,
    frames: &'f [Outgoing<'f>],
    drops: &mut Vec<(usize, EgressDrop)>,
    mut put: impl FnMut(usize, &'f Outgoing<'f>, FrameBuffers<'_>),
) -> bool {
    let Running { queue, features, .. } = running;
    if !queue.is_enabled() {
        return false;
    }
    for (place, frame) in frames.iter().enumerate() {
        let found = if !frame.vnet.asks_nothing() && !takes(*features, frame) {
            Err(EgressDrop::Refused)
        } else if let Some(elements) = queue.reserve_one(len(frame, *features)) {
            Ok(FrameBuffers { elements, buffers: 1 })
        } else {
            find_room(queue, frame, *features)
        };
        match found {
            Ok(room) => put(place, frame, room),
            Err(EgressDrop::Refused) => drops.push((place, EgressDrop::Refused)),
            // Later frames would overtake this one.
            Err(reason) => {
                drops.extend((place..frames.len()).map(|place| (place, reason)));
                break;
            }
        }
    }
    true
}

/// Returns the bytes of a frame with its header.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "10 or 12")]
fn len(frame: &Outgoing<'_>, features: Features) -> u32 {
    frame.len + features.header_len() as u32
}

/// Finds room for a frame that needs more than the next known buffer.
#[inline(never)]
fn find_room<'q>(
    queue: &'q mut Queue,
    frame: &Outgoing<'_>,
    features: Features,
) -> Result<FrameBuffers<'q>, EgressDrop> {
    let buffers = if features.contains(Features::MRG_RXBUF) { MOST_BUFFERS } else { 1 };
    match queue.reserve(len(frame, features), buffers) {
        Ok(Reserved::Buffers(room)) => Ok(room),
        Ok(Reserved::TooSmall) => Err(EgressDrop::Refused),
        Ok(Reserved::Full) => Err(EgressDrop::Full),
        Err(_) => Err(EgressDrop::Down),
    }
}

/// Writes a frame, with the number of segments for a guest that counts them.
#[inline(always)]
fn write(frame: &Outgoing<'_>, room: FrameBuffers<'_>, features: Features) {
    let FrameBuffers { elements, buffers } = room;
    if features.contains(Features::RSC_EXT) && frame.vnet.coalesced() > 0 {
        write_counted(frame, buffers, elements, features);
    } else {
        copy::write(frame, buffers, features.header_len(), elements);
    }
}

#[inline(never)]
fn write_counted(frame: &Outgoing<'_>, buffers: u16, room: &[ChainElement], features: Features) {
    let vnet = frame.vnet.with_rsc_info();
    copy::write(&Outgoing { vnet, ..*frame }, buffers, features.header_len(), room);
}

/// Whether the guest takes the frame, which may have been made for its features before its last
/// reset.
#[inline(never)]
fn takes(features: Features, frame: &Outgoing<'_>) -> bool {
    features.contains(match frame.vnet.gso() {
        GsoType::None => Features::GUEST_CSUM,
        GsoType::Tcp4 => Features::GUEST_TSO4,
        GsoType::Tcp6 => Features::GUEST_TSO6,
        GsoType::UdpL4 => Features::GUEST_USO4 | Features::GUEST_USO6,
        GsoType::Unknown(_) => return false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EgressQueue;
    use crate::vhost::{VhostOptions, open};
    use tempfile::TempDir;
    use test_guest::Guest;
    use wire::vnet::VnetHeader;

    /// A guest that saw the ring's index before a copy would read the old bytes of its buffers.
    #[test]
    fn what_follows_a_copy_is_published_with_it() {
        for format in [Features::empty(), Features::RING_PACKED] {
            let folder = TempDir::new().expect("a folder");
            let path = folder.path().join("vm");
            let opened = open(&VhostOptions::new(&path)).expect("a port");
            let wanted = Features::VERSION_1 | Features::MRG_RXBUF | format;
            let mut guest = Guest::connect(&path, wanted.bits(), 1).expect("a guest");
            let [EgressQueue::Vhost(egress)] = opened.device.egress.as_slice() else {
                panic!("one queue")
            };
            while egress.room().is_none_or(|room| room.buffers == 0) {
                std::thread::yield_now();
            }
            let bytes = [1, 2, 3].map(|fill| vec![fill; if fill == 2 { 60 } else { 40_000 }]);
            let frames = bytes.each_ref().map(|header| {
                let len = u32::try_from(header.len()).expect("short");
                Outgoing { vnet: VnetHeader::default(), header, payload: &[], len }
            });
            let [first, short, long] = frames;
            let (mut list, mut drops) = (CopyList::default(), Vec::new());
            let batch = egress.ring.begin(|running| list.reserve(running, &[first], &mut drops));
            for later in [short, long] {
                egress.deliver(&[later], &mut drops).expect("deliver");
                assert!(guest.receive(0).is_none(), "the first is not copied yet");
            }
            list.copy(&[first]);
            egress.ring.end(|running| {
                running.queue.end_batch(batch.expect("a batch"));
            });
            for sent in bytes {
                assert!(guest.receive(0).expect("a frame").1 == sent);
            }
            assert!(drops.is_empty() && guest.receive(0).is_none());
        }
    }
}
