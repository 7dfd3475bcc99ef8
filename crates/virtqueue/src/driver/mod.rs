//! The driver side of a virtqueue, over guest memory of this process: in-process guests, and the partner of every
//! test of the device side.
//!
//! A driver [adds](Driver::add) buffers, [publishes](Driver::publish) them at once, and [reaps](Driver::reap) what
//! the device has used. It does not own the bytes of buffers; the caller knows which guest addresses are free by the
//! ids. The device is trusted to use each buffer once; an id it never got is passed over.

mod packed;
mod split;

pub use packed::PackedDriver;
pub use split::SplitDriver;

use crate::descriptor::{Descriptor, NEXT, WRITE};
use crate::{RingFeatures, Setup, SetupError};
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;

/// Descriptors an indirect table of this driver has room for.
pub const TABLE_ENTRIES: usize = 32;
/// Bytes of one indirect table; a driver has one a descriptor of the ring.
pub const TABLE_BYTES: u64 = 16 * TABLE_ENTRIES as u64;

/// One contiguous part of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it is.
    pub gpa: Gpa,
    /// Bytes.
    pub len: u32,
    /// For the device to write. Buffers to read come first.
    pub writable: bool,
}

/// How a chain goes into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One descriptor a buffer.
    Direct,
    /// One descriptor for a table of them; at most [`TABLE_ENTRIES`].
    Indirect,
}

/// A chain that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`Driver::add`] returned.
    pub id: u16,
    /// Bytes the device wrote.
    pub len: u32,
}

/// The driver side of a queue of either format.
#[derive(Debug)]
pub enum Driver {
    /// Virtio 1.2, section 2.7.
    Split(SplitDriver),
    /// Virtio 1.2, section 2.8.
    Packed(PackedDriver),
}

impl Driver {
    /// A driver of a ring whose memory is zero. `tables` is where its indirect tables go, [`TABLE_BYTES`] for each
    /// descriptor of the ring.
    pub fn new(memory: Arc<GuestMemory>, setup: &Setup, tables: Gpa) -> Result<Driver, SetupError> {
        if setup.features.contains(RingFeatures::RING_PACKED) {
            PackedDriver::new(memory, setup, tables).map(Driver::Packed)
        } else {
            SplitDriver::new(memory, setup, tables).map(Driver::Split)
        }
    }

    /// Puts a chain into the ring, not visible yet; its id. `None`: no room, no buffers, or more than a table holds.
    pub fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        match self {
            Driver::Split(driver) => driver.add(buffers, shape),
            Driver::Packed(driver) => driver.add(buffers, shape),
        }
    }

    /// Makes everything added visible to the device; `true`: notify it.
    pub fn publish(&mut self) -> bool {
        match self {
            Driver::Split(driver) => driver.publish(),
            Driver::Packed(driver) => driver.publish(),
        }
    }

    /// The next chain the device has used.
    pub fn reap(&mut self) -> Option<Used> {
        match self {
            Driver::Split(driver) => driver.reap(),
            Driver::Packed(driver) => driver.reap(),
        }
    }

    /// Asks the device to notify us of what it uses next. `true`: something is there already, do not sleep.
    pub fn arm(&mut self) -> bool {
        match self {
            Driver::Split(driver) => driver.arm(),
            Driver::Packed(driver) => driver.arm(),
        }
    }

    /// Tells the device that notifications are a waste.
    pub fn disarm(&mut self) {
        match self {
            Driver::Split(driver) => driver.disarm(),
            Driver::Packed(driver) => driver.disarm(),
        }
    }
}

/// A driver's indirect tables, one for each descriptor of the ring.
#[derive(Debug)]
struct Tables {
    memory: Arc<GuestMemory>,
    start: Gpa,
}

impl Tables {
    fn gpa(&self, index: u16) -> Gpa {
        Gpa(self.start.0 + u64::from(index) * TABLE_BYTES)
    }

    /// Writes a table; the descriptor that stands for it. The links are those of a split ring, which a packed one
    /// ignores.
    fn fill(&self, index: u16, buffers: &[Buffer], flags_last: bool) -> Option<Descriptor> {
        if buffers.len() > TABLE_ENTRIES {
            return None;
        }
        let gpa = self.gpa(index);
        for (buffer, place) in buffers.iter().zip(0u16..) {
            let last = usize::from(place) + 1 == buffers.len();
            let next = if last { 0 } else { NEXT };
            let flags = next | kind(buffer);
            let entry = Descriptor { gpa: buffer.gpa, len: buffer.len, flags, tag: place + 1 };
            let to = Gpa(gpa.0 + 16 * u64::from(place));
            if !self.memory.write(to, &entry.to_table(flags_last)) {
                return None;
            }
        }
        let len = u32::try_from(16 * buffers.len()).ok()?;
        Some(Descriptor { gpa, len, flags: crate::descriptor::INDIRECT, tag: 0 })
    }
}

/// The flag that tells whether the device may write.
fn kind(buffer: &Buffer) -> u16 {
    if buffer.writable { WRITE } else { 0 }
}
