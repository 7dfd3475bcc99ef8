//! The capabilities of a port's other side. They change while the port is open, because a guest
//! that starts, resets or reboots renegotiates offloads and queues.
//!
//! The port writes them, and workers read them once per burst. A frame fitted to older capabilities
//! still reaches the egress queue, which drops it if the other side no longer takes it.

use crate::{Announced, Offloads, lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

/// Shared by a port's [`Device`](crate::Device) and its opener. The values are independent, so
/// loads and stores are relaxed.
#[derive(Debug)]
pub struct Capabilities {
    /// Bits of [`Offloads`].
    offloads: AtomicU8,
    queues: AtomicU16,
    /// The other way round: written by the switch, read by the port.
    announced: Mutex<Announced>,
}

impl Capabilities {
    /// A port that takes `offloads` on `queues` egress queues.
    pub const fn new(offloads: Offloads, queues: u16) -> Capabilities {
        let announced = Mutex::new(Announced { tagged: Vec::new(), addresses: Vec::new() });
        let (offloads, queues) = (AtomicU8::new(offloads.bits()), AtomicU16::new(queues));
        Capabilities { offloads, queues, announced }
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

    /// Egress queues in use, the first ones of the device: as many as the other side serves. 0: it
    /// is not ready.
    #[inline]
    pub fn queues(&self) -> u16 {
        self.queues.load(Relaxed)
    }

    /// From now on this many egress queues are served.
    pub fn set_queues(&self, queues: u16) {
        self.queues.store(queues, Relaxed);
    }

    /// In what VLANs and with what addresses the port's guest is announced.
    pub fn announced(&self) -> Announced {
        lock(&self.announced).clone()
    }

    /// From now on the port's guest is announced so.
    pub fn set_announced(&self, announced: Announced) {
        *lock(&self.announced) = announced;
    }
}
