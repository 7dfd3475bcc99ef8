//! Rings that the kernel has stopped filling.
//!
//! Before it fills a slot of a ring of version 2 the kernel marks the slot as its own. Where it
//! then cannot describe the frame in a virtio-net header (trains of SCTP, old UDP fragmentation
//! offload) it drops the frame and leaves the mark, and takes the slot for occupied ever after:
//! every later frame is dropped, in front of an empty ring (tried on Linux 6.18). Nothing clears
//! the mark but a new ring, so the port is to be opened anew.
//!
//! It shows when all frames of two looks were dropped, and the ring was empty at both. A ring that
//! was full, because nobody read it, is not empty at once.

use super::gate::Slots;
use super::socket::PacketSocket;
use crate::lock;
use std::sync::{Arc, Mutex};

/// Looks for such rings; to be asked about once a second.
pub struct StallWatch {
    rings: Mutex<Vec<Watched>>,
}

pub(super) struct Watched {
    /// First, so that it goes first: the mapping before the socket.
    slots: Arc<dyn Slots>,
    socket: Arc<PacketSocket>,
    /// Frames that came, and were dropped, until the last look.
    seen: (u64, u64),
    /// At the last look that saw frames, all were dropped and the ring was empty.
    suspect: bool,
    stalled: bool,
}

impl StallWatch {
    pub(super) fn new(rings: Vec<Watched>) -> StallWatch {
        StallWatch { rings: Mutex::new(rings) }
    }

    /// The first queue whose ring has stalled; it stays so. Found by the second call that sees
    /// drops.
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
            // Counted first, looked at then: a ring that filled up before is found full.
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
