//! What a guest receives: frames copied into the buffers it made available, published once a burst.
//!
//! Workers meet at a guest's ring. Short bursts are copied with the ring's lock held. Of others only the room is reserved with the
//! lock: each worker copies without it, and the ring publishes in the order of the reservations.

use super::copy;
use crate::{Burst, Egress, EgressDrop, Outgoing, PortFault, Room, lock};
use std::sync::{Arc, Mutex};
use vhost_user::{Features, RingSlot, Running};
use virtqueue::{BatchNumber, ChainElement, FrameBuffers, Queue, Reserved, Virtqueue};
use wire::vnet::GsoType;

/// Buffers a frame may take where they merge: 64 KiB in the smallest buffers Linux posts.
const MOST_BUFFERS: u16 = 64;

/// See [`Egress`].
pub struct VhostEgress {
    ring: Arc<RingSlot>,
    /// One for each worker that was here at a time; kept for their allocations.
    batches: Mutex<Vec<Batch>>,
}

impl VhostEgress {
    pub(super) fn new(ring: Arc<RingSlot>) -> VhostEgress {
        VhostEgress { ring, batches: Mutex::default() }
    }

    /// `false`: the ring cannot be lent now.
    #[inline(never)]
    fn deliver_batch(&self, frames: &[Outgoing<'_>], drops: &mut Vec<(usize, EgressDrop)>) -> bool {
        let mut batch = lock(&self.batches).pop().unwrap_or_default();
        let begun = self.ring.begin(|running| batch.begin(running, frames, drops));
        let is_begun = begun.is_some();
        if let Some((number, features)) = begun {
            batch.write(frames, features);
            self.ring.end(|running| {
                if running.queue.end_batch(number) {
                    running.notify();
                }
            });
        }
        lock(&self.batches).push(batch);
        is_begun
    }
}

impl Egress for VhostEgress {
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        if Outgoing::are_long(frames) && self.deliver_batch(frames, drops) {
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
        Some(Room { buffers, bytes })
    }
}

/// Room for a burst, which is written without the lock.
#[derive(Default)]
struct Batch {
    elements: Vec<ChainElement>,
    places: Vec<Place>,
}

/// Where a frame of a batch goes.
struct Place {
    /// Its number in the burst.
    frame: usize,
    /// See [`FrameBuffers::buffers`].
    buffers: u16,
    /// Where its elements end; they start where those of the frame before it end.
    end: usize,
}

impl Batch {
    /// Reserves room for a burst. `None`: the guest does not want frames now.
    fn begin(
        &mut self,
        running: &mut Running,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<(BatchNumber, Features)> {
        let (features, Batch { elements, places }) = (running.features, self);
        elements.clear();
        places.clear();
        let put = |place, _, room: FrameBuffers<'_>| {
            elements.extend_from_slice(room.elements);
            places.push(Place { frame: place, buffers: room.buffers, end: elements.len() });
        };
        let number = match &mut running.queue {
            queue if !queue.is_enabled() => return None,
            Queue::Split(queue) => {
                fill(queue, features, frames, drops, put);
                queue.begin_batch()
            }
            Queue::Packed(queue) => {
                fill(queue, features, frames, drops, put);
                queue.begin_batch()
            }
        };
        Some((number, features))
    }

    /// The elements stay mapped: the ring is lent.
    fn write(&self, frames: &[Outgoing<'_>], features: Features) {
        let mut start = 0;
        for Place { frame, buffers, end } in &self.places {
            let elements = self.elements.get(start..*end).unwrap_or_default();
            start = *end;
            if let Some(frame) = frames.get(*frame) {
                write(frame, FrameBuffers { elements, buffers: *buffers }, features);
            }
        }
    }
}

/// `false`: the guest does not want frames now.
fn deliver(
    running: &mut Running,
    frames: &[Outgoing<'_>],
    drops: &mut Vec<(usize, EgressDrop)>,
) -> bool {
    if !running.queue.is_enabled() {
        return false;
    }
    let features = running.features;
    let put = |_, frame, room: FrameBuffers<'_>| write(frame, room, features);
    let notify = match &mut running.queue {
        Queue::Split(queue) => {
            fill(queue, features, frames, drops, put);
            queue.publish()
        }
        Queue::Packed(queue) => {
            fill(queue, features, frames, drops, put);
            queue.publish()
        }
    };
    if notify {
        running.notify();
    }
    true
}

/// Finds room for each frame, and calls `put` with the frame's place, the frame and its room.
#[inline(always)]
fn fill<'f, R: virtqueue::Format>(
    queue: &mut Virtqueue<R>,
    features: Features,
    frames: &'f [Outgoing<'f>],
    drops: &mut Vec<(usize, EgressDrop)>,
    mut put: impl FnMut(usize, &'f Outgoing<'f>, FrameBuffers<'_>),
) {
    for (place, frame) in frames.iter().enumerate() {
        let found = if !frame.vnet.asks_nothing() && !takes(features, frame) {
            Err(EgressDrop::Refused)
        } else if let Some(elements) = queue.reserve_one(len(frame, features)) {
            Ok(FrameBuffers { elements, buffers: 1 })
        } else {
            find_room(queue, frame, features)
        };
        match found {
            Ok(room) => put(place, frame, room),
            Err(EgressDrop::Refused) => drops.push((place, EgressDrop::Refused)),
            // Whatever follows would come in front of it.
            Err(reason) => {
                drops.extend((place..frames.len()).map(|place| (place, reason)));
                break;
            }
        }
    }
}

/// Bytes of a frame with its header.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "10 or 12")]
fn len(frame: &Outgoing<'_>, features: Features) -> u32 {
    frame.len + features.header_len() as u32
}

/// Finds room for a frame that needs more than the next buffer that is known.
#[inline(never)]
fn find_room<'q, R: virtqueue::Format>(
    queue: &'q mut Virtqueue<R>,
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

/// Writes a frame; for a guest that counts segments, with their number.
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

/// A frame may have been made for what the guest took before its last reset.
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
