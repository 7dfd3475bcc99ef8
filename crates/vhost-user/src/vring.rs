//! What a front end has said about one ring so far.

use crate::Features;
use crate::ring::Running;
use crate::signal::Signal;
use guestmem::{DirtyLog, Gpa, GuestMemory, UserAddress};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use virtqueue::{Journal, Queue, Rings, Setup, SetupError};

/// Where the parts of a ring are in the front end's own address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) descriptors: UserAddress,
    pub(crate) driver: UserAddress,
    pub(crate) device: UserAddress,
}

/// A ring before and while it runs.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    pub(crate) size: u16,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) base: u32,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<Signal>>,
    pub(crate) error: Option<Arc<Signal>>,
    pub(crate) enabled: bool,
    pub(crate) started: bool,
}

/// Why a ring cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("the ring was started before its {0} was known")]
    Missing(&'static str),
    #[error("the ring's address {0} is not in the memory table")]
    Address(UserAddress),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Vring {
    /// Makes the ring out of all that was said.
    pub(crate) fn build(
        &self,
        memory: Option<&Arc<GuestMemory>>,
        features: Features,
        log: Option<&Arc<DirtyLog>>,
        journal: Option<Journal>,
    ) -> Result<Running, StartError> {
        let memory = memory.ok_or(StartError::Missing("memory table"))?;
        let addresses = self.addresses.ok_or(StartError::Missing("address"))?;
        let rings = Rings {
            descriptors: find(memory, addresses.descriptors)?,
            driver: find(memory, addresses.driver)?,
            device: find(memory, addresses.device)?,
        };
        let setup = Setup {
            size: self.size,
            rings,
            features: virtqueue::Features::from_bits_truncate(features.bits()),
            base: self.first_base(memory, features, rings),
        };
        let mut queue = Queue::resume(memory.clone(), &setup, journal)?;
        queue.set_enabled(self.enabled);
        queue.set_log(log.cloned());
        let (kick, call, error) = (self.kick.clone(), self.call.clone(), self.error.clone());
        Ok(Running { queue, features, kick, call, error })
    }

    /// User-mode Linux starts a packed ring at base 0 without the wrap bit. Descriptor 0 tells a fresh ring from one
    /// that has come round: only the latter has its USED flag set (virtio 1.2, section 2.8.1).
    fn first_base(&self, memory: &GuestMemory, features: Features, rings: Rings) -> u32 {
        const FLAGS: u64 = 14;
        const USED: u16 = 1 << 15;
        const WRAP: u32 = 1 << 15;
        let mut flags = [0; 2];
        let is_fresh = self.base == 0
            && features.contains(Features::RING_PACKED)
            && memory.read(Gpa(rings.descriptors.0.saturating_add(FLAGS)), &mut flags)
            && u16::from_le_bytes(flags) & USED == 0;
        if is_fresh { WRAP | WRAP << 16 } else { self.base }
    }
}

/// The size of what is there is checked by the ring itself.
fn find(memory: &GuestMemory, address: UserAddress) -> Result<Gpa, StartError> {
    memory.guest_address(address, 1).ok_or(StartError::Address(address))
}
