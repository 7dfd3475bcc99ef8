//! Detects rings that the kernel has stopped filling.
//!
//! Before it fills a slot of a ring of version 2 the kernel marks the slot as its own. If it then
//! cannot describe the frame in a virtio-net header (trains of SCTP, old UDP fragmentation offload)
//! it drops the frame and leaves the mark. From then on it takes the slot for occupied: it drops
//! every later frame, in front of an empty ring (tried on Linux 6.18). Only a new ring clears the
//! mark, so the port must be reopened.
//!
//! A ring has stalled if all frames between two checks were dropped and it was empty at both. A
//! ring that was full because it was not read is not empty at once.

use super::gate::Slots;
use super::socket::PacketSocket;
use crate::lock;
use std::sync::{Arc, Mutex};

/// Checks a port's rings for stalls; meant to be asked once a second.
pub struct StallWatch {
    rings: Mutex<Vec<Watched>>,
}

pub(super) struct Watched {
    /// Declared first, so that the mapping is dropped before the socket.
    slots: Arc<dyn Slots>,
    socket: Arc<PacketSocket>,
    /// Frames that arrived, and frames dropped, until the last check.
    seen: (u64, u64),
    /// Whether at the last check that saw frames all were dropped and the ring was empty.
    suspect: bool,
    stalled: bool,
}

impl StallWatch {
    pub(super) fn new(rings: Vec<Watched>) -> StallWatch {
        StallWatch { rings: Mutex::new(rings) }
    }

    /// Returns the first queue with a stalled ring, which stays stalled. Found by the second call
    /// that sees drops.
    pub fn stalled(&self) -> Option<usize> {
        lock(&self.rings).iter_mut().position(Watched::look)
    }
}

impl Watched {
    pub(super) fn new(slots: Arc<dyn Slots>, socket: Arc<PacketSocket>) -> Watched {
        Watched { slots, socket, seen: (0, 0), suspect: false, stalled: false }
    }

    fn look(&mut self) -> bool {
        let (packets, drops) = self.socket.statistics();
        let new = (packets - self.seen.0, drops - self.seen.1);
        self.seen = (packets, drops);
        if new.0 > 0 {
            // Counted before the ring is checked: a ring that filled up before is found full.
            let all_dropped = new.0 == new.1 && self.is_empty();
            self.stalled |= all_dropped && self.suspect;
            self.suspect = all_dropped;
        }
        self.stalled
    }

    fn is_empty(&self) -> bool {
        !(0..self.slots.count()).any(|place| self.slots.is_filled(place))
    }
}
