//! What a guest receives: frames copied into the buffers it made available, published once a burst.

use super::copy;
use crate::{Burst, Egress, EgressDrop, Outgoing, PortFault, Room};
use std::sync::Arc;
use vhost_user::{Features, Ring, Running};
use virtqueue::{Queue, Reservation, Virtqueue};
use wire::vnet::GsoType;

/// Buffers a frame may take where they merge: 64 KiB in the smallest buffers Linux posts.
const MOST_BUFFERS: u16 = 64;

/// See [`Egress`].
pub struct VhostEgress {
    ring: Arc<Ring>,
}

impl VhostEgress {
    pub(super) fn new(ring: Arc<Ring>) -> VhostEgress {
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
fn fill<R: virtqueue::Ring>(
    queue: &mut Virtqueue<R>,
    features: Features,
    frames: &[Outgoing<'_>],
    drops: &mut Vec<(usize, EgressDrop)>,
) -> bool {
    let header_len = features.header_len();
    let buffers = if features.contains(Features::MRG_RXBUF) { MOST_BUFFERS } else { 1 };
    let counts_segments = features.contains(Features::RSC_EXT);
    #[allow(clippy::cast_possible_truncation, reason = "10 or 12")]
    let header_bytes = header_len as u32;
    for (place, frame) in frames.iter().enumerate() {
        if !frame.vnet.asks_nothing() && !takes(features, frame) {
            drops.push((place, EgressDrop::Refused));
            continue;
        }
        let reason = match queue.reserve(header_bytes + frame.len, buffers) {
            Ok(Reservation::Room(room)) => {
                let vnet = match frame.vnet.coalesced() {
                    1.. if counts_segments => frame.vnet.with_rsc_info(),
                    _ => frame.vnet,
                };
                copy::write(&Outgoing { vnet, ..*frame }, room.buffers, header_len, room.pieces);
                continue;
            }
            Ok(Reservation::TooSmall) => {
                drops.push((place, EgressDrop::Refused));
                continue;
            }
            Ok(Reservation::Full) => EgressDrop::Full,
            Err(_) => EgressDrop::Down,
        };
        drops.extend((place..frames.len()).map(|place| (place, reason)));
        break;
    }
    queue.publish()
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
