//! What a port's other side takes: it may change while the port is open, because a guest that starts, resets or reboots
//! negotiates offloads and queues anew.
//!
//! The port writes it, workers read it once a burst. A frame that was fitted to older capabilities still arrives at the egress
//! queue, which drops it if the other side no longer takes it.

use crate::Offloads;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

/// Shared by a port's [`Device`](crate::Device) and its opener. The values are independent, so loads and stores are relaxed.
#[derive(Debug)]
pub struct Capabilities {
    /// Bits of [`Offloads`].
    offloads: AtomicU8,
    queues: AtomicU16,
}

impl Capabilities {
    /// A port that takes `offloads` on `queues` egress queues.
    pub const fn new(offloads: Offloads, queues: u16) -> Capabilities {
        Capabilities { offloads: AtomicU8::new(offloads.bits()), queues: AtomicU16::new(queues) }
    }

    /// What its egress takes without help.
    #[inline]
    pub fn offloads(&self) -> Offloads {
        Offloads::from_bits_truncate(self.offloads.load(Relaxed))
    }

    /// From now on its egress takes this without help.
    pub fn set_offloads(&self, offloads: Offloads) {
        self.offloads.store(offloads.bits(), Relaxed);
    }

    /// Egress queues in use, the first ones of the device: as many as the other side serves. 0: it is not ready.
    #[inline]
    pub fn queues(&self) -> u16 {
        self.queues.load(Relaxed)
    }

    /// From now on this many egress queues are served.
    pub fn set_queues(&self, queues: u16) {
        self.queues.store(queues, Relaxed);
    }
}
