//! What a guest receives: frames copied into the buffers it made available, published once a burst.

use super::copy;
use crate::{Burst, Egress, EgressDrop, Outgoing, PortFault, Room};
use std::sync::Arc;
use vhost_user::{Features, RingSlot, Running};
use virtqueue::{ChainElement, Queue, Reserved, Virtqueue};
use wire::vnet::GsoType;

/// Buffers a frame may take where they merge: 64 KiB in the smallest buffers Linux posts.
const MOST_BUFFERS: u16 = 64;

/// See [`Egress`].
pub struct VhostEgress {
    ring: Arc<RingSlot>,
}

impl VhostEgress {
    pub(super) fn new(ring: Arc<RingSlot>) -> VhostEgress {
        VhostEgress { ring }
    }
}

impl Egress for VhostEgress {
    fn deliver(
        &mut self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let served = self.ring.with(|running| deliver(running, frames, drops));
        if served != Some(true) {
            drops.extend((0..frames.len()).map(|place| (place, EgressDrop::Down)));
        }
        Ok(())
    }

    fn room(&mut self) -> Option<Room> {
        let free = self.ring.with(|running| running.queue.room(Burst::FRAMES))?;
        let (buffers, bytes) = free;
        Some(Room { buffers, bytes })
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
    let notify = match &mut running.queue {
        Queue::Split(queue) => fill(queue, features, frames, drops),
        Queue::Packed(queue) => fill(queue, features, frames, drops),
    };
    if notify {
        running.notify();
    }
    true
}

/// `true`: the driver wants to be notified.
#[inline(always)]
fn fill<R: virtqueue::Format>(
    queue: &mut Virtqueue<R>,
    features: Features,
    frames: &[Outgoing<'_>],
    drops: &mut Vec<(usize, EgressDrop)>,
) -> bool {
    for (place, frame) in frames.iter().enumerate() {
        let written = if !frame.vnet.asks_nothing() && !takes(features, frame) {
            Err(EgressDrop::Refused)
        } else if let Some(buffer) = queue.reserve_one(len(frame, features)) {
            write(frame, 1, buffer, features);
            Ok(())
        } else {
            find_room(queue, frame, features)
        };
        match written {
            Ok(()) => {}
            Err(EgressDrop::Refused) => drops.push((place, EgressDrop::Refused)),
            // Whatever follows would come in front of it.
            Err(reason) => {
                drops.extend((place..frames.len()).map(|place| (place, reason)));
                break;
            }
        }
    }
    queue.publish()
}

/// Bytes of a frame with its header.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "10 or 12")]
fn len(frame: &Outgoing<'_>, features: Features) -> u32 {
    frame.len + features.header_len() as u32
}

/// Writes a frame that needs more than the next buffer that is known.
#[inline(never)]
fn find_room<R: virtqueue::Format>(
    queue: &mut Virtqueue<R>,
    frame: &Outgoing<'_>,
    features: Features,
) -> Result<(), EgressDrop> {
    let buffers = if features.contains(Features::MRG_RXBUF) { MOST_BUFFERS } else { 1 };
    match queue.reserve(len(frame, features), buffers) {
        Ok(Reserved::Buffers(room)) => write(frame, room.buffers, room.elements, features),
        Ok(Reserved::TooSmall) => return Err(EgressDrop::Refused),
        Ok(Reserved::Full) => return Err(EgressDrop::Full),
        Err(_) => return Err(EgressDrop::Down),
    }
    Ok(())
}

/// Writes a frame; for a guest that counts segments, with their number.
#[inline(always)]
fn write(frame: &Outgoing<'_>, buffers: u16, room: &[ChainElement], features: Features) {
    if features.contains(Features::RSC_EXT) && frame.vnet.coalesced() > 0 {
        write_counted(frame, buffers, room, features);
    } else {
        copy::write(frame, buffers, features.header_len(), room);
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
