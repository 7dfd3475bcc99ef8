//! The driver side of a ring of either format.
//!
//! A driver [adds](Driver::add) buffers, [publishes](Driver::publish) them at once, and
//! [reaps](Driver::reap) what the device has used. It does not own the bytes of buffers: its caller
//! knows by the ids which guest addresses are free. The device is trusted to use each buffer once;
//! an id it never got is passed over.

mod packed;
mod split;

pub use packed::PackedDriver;
pub use split::SplitDriver;

use crate::feature;
use crate::shared::{DescriptorCell, at};
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;

/// Descriptor flags (virtio 1.2, sections 2.7.5 and 2.8.13): the chain goes on, the device may
/// write, a table of descriptors.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Descriptors that an indirect table of this driver has room for.
pub const TABLE_ENTRIES: usize = 32;
/// Bytes of one indirect table.
pub const TABLE_BYTES: u64 = 16 * TABLE_ENTRIES as u64;

/// One contiguous part of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its guest address.
    pub gpa: Gpa,
    /// Its length in bytes.
    pub len: u32,
    /// Whether the device writes it. Buffers that the device reads come first.
    pub writable: bool,
}

/// The way in which a chain is put into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One descriptor for each buffer.
    Direct,
    /// One descriptor for a table of at most [`TABLE_ENTRIES`] descriptors.
    Indirect,
}

/// A chain that the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The id that [`Driver::add`] returned.
    pub id: u16,
    /// Bytes the device wrote.
    pub len: u32,
}

/// A ring in guest memory.
#[derive(Clone, Copy, Debug)]
pub struct RingLayout {
    /// Descriptors: a power of two in a split ring.
    pub size: u16,
    /// Descriptor table, or packed descriptor ring.
    pub descriptors: Gpa,
    /// Written by the driver: available ring, or driver event suppression.
    pub driver: Gpa,
    /// Written by the device: used ring, or device event suppression.
    pub device: Gpa,
    /// Indirect tables, [`TABLE_BYTES`] for each descriptor of the ring.
    pub tables: Gpa,
    /// The negotiated feature bits, of which RING_PACKED and EVENT_IDX matter here.
    pub features: u64,
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
    /// Creates a driver of a ring in zeroed memory.
    pub fn new(memory: Arc<GuestMemory>, layout: RingLayout) -> Driver {
        let ring = Ring { memory, layout };
        if layout.features & feature::RING_PACKED != 0 {
            Driver::Packed(PackedDriver::new(ring))
        } else {
            Driver::Split(SplitDriver::new(ring))
        }
    }

    /// Goes on in a copy of the memory.
    pub(crate) fn move_to(&mut self, memory: Arc<GuestMemory>) {
        match self {
            Driver::Split(driver) => driver.ring.memory = memory,
            Driver::Packed(driver) => driver.ring.memory = memory,
        }
    }

    /// Puts a chain into the ring, not visible yet. Returns its id; `None` if there is no room, no
    /// buffer, or more than a table holds.
    pub fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        match self {
            Driver::Split(driver) => driver.add(buffers, shape),
            Driver::Packed(driver) => driver.add(buffers, shape),
        }
    }

    /// Makes everything added visible to the device. Returns whether to notify it.
    pub fn publish(&mut self) -> bool {
        match self {
            Driver::Split(driver) => driver.publish(),
            Driver::Packed(driver) => driver.publish(),
        }
    }

    /// Takes the next chain that the device has used; `None` if there is none.
    pub fn reap(&mut self) -> Option<Used> {
        match self {
            Driver::Split(driver) => driver.reap(),
            Driver::Packed(driver) => driver.reap(),
        }
    }

    /// Asks the device to notify us of the next used chain. Returns whether a used chain is already
    /// pending, so that the caller must not sleep.
    pub fn arm(&mut self) -> bool {
        match self {
            Driver::Split(driver) => driver.arm(),
            Driver::Packed(driver) => driver.arm(),
        }
    }

    /// Asks the device not to notify us.
    pub fn disarm(&mut self) {
        match self {
            Driver::Split(driver) => driver.disarm(),
            Driver::Packed(driver) => driver.disarm(),
        }
    }
}

/// A ring and the memory it lies in.
#[derive(Debug)]
struct Ring {
    memory: Arc<GuestMemory>,
    layout: RingLayout,
}

impl Ring {
    fn by_position(&self) -> bool {
        self.layout.features & feature::EVENT_IDX != 0
    }

    fn descriptor(&self, index: u16) -> &DescriptorCell {
        at(&self.memory, Gpa(self.layout.descriptors.0 + 16 * u64::from(index)))
    }

    /// Writes the indirect table of a descriptor. Returns its address and length. It has the links
    /// of a split ring, which a packed one ignores.
    fn fill_table(&self, index: u16, buffers: &[Buffer]) -> Option<(Gpa, u32)> {
        if buffers.len() > TABLE_ENTRIES {
            return None;
        }
        let packed = self.layout.features & feature::RING_PACKED != 0;
        let table = Gpa(self.layout.tables.0 + u64::from(index) * TABLE_BYTES);
        for (buffer, next) in buffers.iter().zip(1..) {
            let more = if usize::from(next) < buffers.len() { NEXT } else { 0 };
            let flags = more | kind(buffer);
            let gpa = Gpa(table.0 + 16 * u64::from(next - 1));
            let cell: &DescriptorCell = at(&self.memory, gpa);
            cell.write(buffer.gpa, buffer.len);
            cell.write_last(if packed { [next, flags] } else { [flags, next] });
        }
        Some((table, u32::try_from(16 * buffers.len()).ok()?))
    }
}

/// Returns the descriptor flag that says whether the device may write.
fn kind(buffer: &Buffer) -> u16 {
    if buffer.writable { WRITE } else { 0 }
}

/// Whether a publisher that went from `old` to `new` has passed the position `event`
/// (`vring_need_event` of the specification's `virtio_ring.h`).
fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
