//! A guest in this process: memory with a hole, a ring, and a driver. For the tests and benches of
//! this crate.
#![allow(dead_code, unreachable_pub, reason = "the benches use a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a guest that fails is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use guestmem::{Gpa, GuestMemory, Region, UserAddress};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use test_guest::driver::{Buffer, Driver, RingLayout, TABLE_BYTES};
use virtqueue::{ChainElement, Queue, RingAddresses, RingFeatures, Setup};

/// The ring's region.
pub const RING_REGION_SIZE: u64 = 4 << 20;
/// Where the buffers' region starts, after a hole.
pub const BUFFER_REGION: u64 = 16 << 20;
/// Bytes of the buffers' region.
pub const BUFFER_REGION_SIZE: u64 = 8 << 20;
/// Where the indirect tables are.
pub const TABLES_START: u64 = 2 << 20;

pub struct Guest {
    pub file: Arc<OwnedFd>,
    pub memory: Arc<GuestMemory>,
    pub setup: Setup,
}

impl Guest {
    pub fn new(size: u16, features: RingFeatures) -> Guest {
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&*file, RING_REGION_SIZE + BUFFER_REGION_SIZE).unwrap();
        let region = |gpa, size, file_offset| Region {
            gpa: Gpa(gpa),
            size,
            user: UserAddress(gpa),
            file_offset,
            file: file.clone(),
        };
        let regions = vec![
            region(0, RING_REGION_SIZE, 0),
            region(BUFFER_REGION, BUFFER_REGION_SIZE, RING_REGION_SIZE),
        ];
        let memory = GuestMemory::map(regions).unwrap();
        assert!(u64::from(size) * TABLE_BYTES <= RING_REGION_SIZE - TABLES_START);
        let rings = RingAddresses {
            descriptors: Gpa(0x1000),
            driver: Gpa(0x10_0000),
            device: Gpa(0x18_0000),
        };
        let base = if features.contains(RingFeatures::RING_PACKED) { 1 << 15 } else { 0 };
        Guest { file, memory, setup: Setup { size, rings, features, base } }
    }

    pub fn driver(&self) -> Driver {
        Driver::new(self.memory.clone(), layout(&self.setup, Gpa(TABLES_START)))
    }

    pub fn queue(&self) -> Queue {
        let mut queue = Queue::resume(self.memory.clone(), &self.setup, None).unwrap();
        queue.set_enabled(true);
        queue
    }

    /// Returns the guest's address of an element.
    pub fn gpa_of(&self, element: &ChainElement) -> u64 {
        let start = |gpa| self.memory.translate(Gpa(gpa), 1).unwrap().addr().get();
        let address = element.start.addr();
        [(0, RING_REGION_SIZE), (BUFFER_REGION, BUFFER_REGION_SIZE)]
            .into_iter()
            .find(|(gpa, size)| (start(*gpa)..start(*gpa) + *size as usize).contains(&address))
            .map(|(gpa, _)| gpa + (address - start(gpa)) as u64)
            .expect("an element lies in guest memory")
    }

    /// Every element lies wholly in guest memory.
    pub fn owns(&self, element: &ChainElement) -> bool {
        let gpa = self.gpa_of(element);
        self.memory.translate(Gpa(gpa), u32::try_from(element.len).unwrap()).is_some()
    }

    pub fn read(&self, gpa: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.read(Gpa(gpa), &mut bytes));
        bytes
    }
}

/// Returns a device's setup as a driver takes it.
pub fn layout(setup: &Setup, tables: Gpa) -> RingLayout {
    let Setup { size, rings: RingAddresses { descriptors, driver, device }, .. } = *setup;
    RingLayout { size, descriptors, driver, device, tables, features: setup.features.bits() }
}

pub fn readable(gpa: u64, len: u32) -> Buffer {
    Buffer { gpa: Gpa(gpa), len, writable: false }
}

pub fn writable(gpa: u64, len: u32) -> Buffer {
    Buffer { gpa: Gpa(gpa), len, writable: true }
}
