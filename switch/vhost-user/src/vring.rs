//! The settings of one ring that a front end has sent so far.

use crate::Features;
use crate::post_copy::Crossing;
use crate::ring_slot::Running;
use crate::signal::Signal;
use guestmem::{DirtyLog, Gpa, GuestMemory, UserAddress};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use virtqueue::{InflightJournal, Queue, RingAddresses, Setup, SetupError};

/// Addresses of the parts of a ring, in the front end's own address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) descriptors: UserAddress,
    pub(crate) driver: UserAddress,
    pub(crate) device: UserAddress,
}

/// A ring's settings, before and while it runs.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    pub(crate) size: u16,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) base: u32,
    /// The base at which it was last started.
    pub(crate) began: u32,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<Signal>>,
    pub(crate) error: Option<Arc<Signal>>,
    pub(crate) enabled: bool,
    pub(crate) started: bool,
    /// A ring that a ferry carries, because pages of the guest are missing.
    pub(crate) crossing: Option<Crossing>,
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
    /// Makes the ring from its settings. Fails if some are missing, or do not fit the memory.
    pub(crate) fn build(
        &self,
        memory: Option<&Arc<GuestMemory>>,
        features: Features,
        log: Option<&Arc<DirtyLog>>,
        journal: Option<InflightJournal>,
    ) -> Result<Running, StartError> {
        let setup = self.setup(memory, features)?;
        let memory = memory.ok_or(StartError::Missing("memory table"))?;
        let mut queue = Queue::resume(memory.clone(), &setup, journal)?;
        queue.set_enabled(self.enabled);
        queue.set_log(log.cloned());
        let (kick, call, error) = (self.kick.clone(), self.call.clone(), self.error.clone());
        let (announcement, hash, hold) = Default::default();
        Ok(Running { queue, features, hash, hold, announcement, kick, call, error })
    }

    /// Describes the ring, and touches none of the guest's memory. Fails if settings are missing, or
    /// its parts do not begin in the memory.
    pub(crate) fn setup(
        &self,
        memory: Option<&Arc<GuestMemory>>,
        features: Features,
    ) -> Result<Setup, StartError> {
        let memory = memory.ok_or(StartError::Missing("memory table"))?;
        let addresses = self.addresses.ok_or(StartError::Missing("address"))?;
        let rings = RingAddresses {
            descriptors: find(memory, addresses.descriptors)?,
            driver: find(memory, addresses.driver)?,
            device: find(memory, addresses.device)?,
        };
        let features = virtqueue::RingFeatures::from_bits_truncate(features.bits());
        Ok(Setup { size: self.size, rings, features, base: self.base })
    }
}

/// Returns the guest address of a part of the ring. The part's size is checked by
/// [`Queue::resume`].
fn find(memory: &GuestMemory, address: UserAddress) -> Result<Gpa, StartError> {
    memory.guest_address(address, 1).ok_or(StartError::Address(address))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use guestmem::Region;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use virtqueue::RingFeatures;

    const USER: UserAddress = UserAddress(1 << 40);

    fn memory() -> Arc<GuestMemory> {
        let (size, user) = (0x10000, USER);
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&*file, size).unwrap();
        GuestMemory::map(vec![Region { gpa: Gpa(0), size, user, file_offset: 0, file }]).unwrap()
    }

    /// Returns a split ring in a guest's first 12 KiB, its memory and where it is.
    pub(crate) fn ring() -> (Running, Arc<GuestMemory>, Setup) {
        let memory = memory();
        let rings = RingAddresses { descriptors: Gpa(0), driver: Gpa(0x1000), device: Gpa(0x2000) };
        let setup = Setup { size: 64, rings, features: RingFeatures::empty(), base: 0 };
        let queue = Queue::resume(memory.clone(), &setup, None).unwrap();
        let (features, kick, call, error) = (Features::empty(), None, None, None);
        let (announcement, hash, hold) = Default::default();
        let running = Running { queue, features, hash, hold, announcement, kick, call, error };
        (running, memory, setup)
    }

    const AVAIL: u16 = 1 << 7;
    const USED: u16 = 1 << 15;

    /// Returns the position at which a packed ring resumes that was given base 0 and has these
    /// flags.
    fn resumed(flags: [u16; 4]) -> u32 {
        let memory = memory();
        for (flags, slot) in flags.iter().zip(0..) {
            assert!(memory.write(Gpa(16 * slot + 14), &flags.to_le_bytes()));
        }
        let address = |offset| UserAddress(USER.0 + offset);
        let addresses =
            Addresses { descriptors: address(0), driver: address(256), device: address(512) };
        let vring = Vring { size: 4, addresses: Some(addresses), ..Vring::default() };
        vring.build(Some(&memory), Features::RING_PACKED, None, None).unwrap().queue.base()
    }

    #[test]
    fn a_fresh_packed_ring_starts_with_the_wrap_counter_set() {
        assert_eq!(resumed([0; 4]), 0x8000_8000);
        assert_eq!(resumed([AVAIL; 4]), 0x8000_8000, "available already");
    }

    /// Descriptor 0 is in the middle of a chain that began in the lap before, so it was never
    /// marked as used.
    #[test]
    fn a_packed_ring_that_has_come_round_goes_on_in_its_lap() {
        assert_eq!(resumed([AVAIL, AVAIL | USED, AVAIL | USED, AVAIL | USED]), 0);
        assert_eq!(resumed([USED, AVAIL, AVAIL | USED, AVAIL]), 0);
    }
}
