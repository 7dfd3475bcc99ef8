// UNSAFETY: reads and writes the words of a ring that two processes share, as atomics.
//! A split ring in private memory, between a worker (the device) and a ferry (the driver).
//!
//! Its [`SLOTS`] buffers are as long as the largest frame with its virtio header, so a frame is in
//! one. The memory is as little trusted by the worker as a guest's.
#![allow(unsafe_code)]

use guestmem::{Gpa, GuestMemory, MemoryError, Region, UserAddress};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use virtqueue::{Queue, RingAddresses, RingFeatures, Setup, SetupError};

/// Number of buffers: a power of two.
pub(crate) const SLOTS: u16 = 32;
/// Bytes of each: the largest frame that a port takes, its virtio header, and more.
pub(crate) const SLOT: u32 = 68 << 10;

/// The parts of the ring, each a part of the first page.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
/// Where the buffers begin.
pub(super) const BUFFERS: u64 = 0x1000;
const BYTES: u64 = BUFFERS + SLOTS as u64 * SLOT as u64;

/// Descriptor flag: the device writes.
const WRITE: u16 = 2;
/// Flag of the used ring: the device asks not to be notified.
const NO_NOTIFY: u16 = 1;

/// Why a relay cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// The worker's side, before it is a [`Queue`].
#[derive(Debug)]
pub(crate) struct Relay {
    file: Arc<OwnedFd>,
    memory: Arc<GuestMemory>,
}

impl Relay {
    pub(crate) fn new() -> Result<Relay, RelayError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("millrace-relay", flags).map_err(io::Error::from)?;
        ftruncate(&file, BYTES).map_err(io::Error::from)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(io::Error::from)?;
        let file = Arc::new(file);
        Ok(Relay { memory: map(file.clone())?, file })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the ring for the worker.
    pub(crate) fn queue(&self) -> Result<Queue, RelayError> {
        let rings = RingAddresses {
            descriptors: Gpa(DESCRIPTORS),
            driver: Gpa(AVAILABLE),
            device: Gpa(USED),
        };
        let setup = Setup { size: SLOTS, rings, features: RingFeatures::empty(), base: 0 };
        Ok(Queue::resume(self.memory.clone(), &setup, None)?)
    }

    /// Returns the driver's side after the ferry's end, which goes on at a used buffer.
    pub(crate) fn driver_at(&self, used: u16) -> Driver {
        Driver { memory: self.memory.clone(), free: Vec::new(), next: 0, published: 0, used }
    }

    /// Whether the worker has used all that the ferry made available.
    pub(crate) fn is_drained(&self) -> bool {
        let index = |part| {
            let mut bytes = [0; 2];
            self.memory.read(Gpa(part + 2), &mut bytes).then_some(bytes)
        };
        index(AVAILABLE) == index(USED)
    }
}

fn map(file: Arc<OwnedFd>) -> Result<Arc<GuestMemory>, MemoryError> {
    let user = UserAddress(0);
    GuestMemory::map(vec![Region { gpa: Gpa(0), size: BYTES, user, file_offset: 0, file }])
}

/// The ferry's side.
#[derive(Debug)]
pub(crate) struct Driver {
    memory: Arc<GuestMemory>,
    free: Vec<u16>,
    /// The next available index, and the last one published.
    next: u16,
    published: u16,
    /// The next used element to read.
    used: u16,
}

impl Driver {
    pub(crate) fn new(file: OwnedFd) -> Result<Driver, RelayError> {
        let memory = map(Arc::new(file))?;
        let free = (0..SLOTS).rev().collect();
        Ok(Driver { memory, free, next: 0, published: 0, used: 0 })
    }

    /// Returns the start of an aligned word in the ring. The memory is mapped as long as this driver
    /// is there.
    fn word<T>(&self, offset: u64) -> Option<&T> {
        let len = u32::try_from(size_of::<T>()).ok()?;
        let start = self.memory.translate(Gpa(offset), len)?.cast::<T>();
        if !start.is_aligned() {
            return None;
        }
        // SAFETY: the bytes are mapped and aligned; `T` is an atomic at each call in this file, for
        // which any bits are a value.
        Some(unsafe { start.as_ref() })
    }

    /// Returns a buffer's [`SLOT`] bytes.
    pub(crate) fn bytes(&self, slot: u16) -> Option<NonNull<u8>> {
        self.memory.translate(Gpa(BUFFERS + u64::from(slot) * u64::from(SLOT)), SLOT)
    }

    /// Returns the number of the next used buffer.
    pub(crate) fn used(&self) -> u16 {
        self.used
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take_free(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Makes a buffer available, visible with the next [`Driver::publish`].
    pub(crate) fn offer(&mut self, slot: u16, len: u32, is_writable: bool) {
        let cell = DESCRIPTORS + 16 * u64::from(slot);
        let place = AVAILABLE + 4 + 2 * u64::from(self.next % SLOTS);
        let (gpa, flags) =
            (BUFFERS + u64::from(slot) * u64::from(SLOT), if is_writable { WRITE } else { 0 });
        // Relaxed: published by the release store of the index.
        let store16 = |offset, value| {
            let word = self.word::<AtomicU16>(offset);
            word.into_iter().for_each(|word| word.store(value, Ordering::Relaxed));
        };
        self.word::<AtomicU64>(cell)
            .into_iter()
            .for_each(|word| word.store(gpa, Ordering::Relaxed));
        let length = self.word::<AtomicU32>(cell + 8);
        length.into_iter().for_each(|word| word.store(len, Ordering::Relaxed));
        store16(cell + 12, flags);
        store16(cell + 14, 0);
        store16(place, slot);
        self.next = self.next.wrapping_add(1);
    }

    /// Makes visible what was offered. Returns whether to notify the worker.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        if let Some(index) = self.word::<AtomicU16>(AVAILABLE + 2) {
            // Pairs with the device's acquire load of avail.idx.
            index.store(self.next, Ordering::Release);
        }
        // Pairs with the device's fence between asking for a notification and its last look at
        // avail.idx.
        fence(Ordering::SeqCst);
        let flags = self.word::<AtomicU16>(USED).map(|flags| flags.load(Ordering::Relaxed));
        flags.is_some_and(|flags| flags & NO_NOTIFY == 0)
    }

    /// Returns the next buffer that the worker has used, and the bytes it wrote.
    pub(crate) fn reap(&mut self) -> Option<(u16, u32)> {
        // Pairs with the device's release store of used.idx.
        let index = self.word::<AtomicU16>(USED + 2)?.load(Ordering::Acquire);
        if index == self.used {
            return None;
        }
        let element = USED + 4 + 8 * u64::from(self.used % SLOTS);
        let id = self.word::<AtomicU32>(element)?.load(Ordering::Relaxed);
        let len = self.word::<AtomicU32>(element + 4)?.load(Ordering::Relaxed);
        self.used = self.used.wrapping_add(1);
        let slot = u16::try_from(id).ok().filter(|slot| *slot < SLOTS)?;
        Some((slot, len.min(SLOT)))
    }

    /// Gives a buffer back to those that are free.
    pub(crate) fn put_free(&mut self, slot: u16) {
        self.free.push(slot);
    }
}
