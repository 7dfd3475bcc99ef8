//! The memory of one queue: sizes, and where its ring and its buffers are.

use crate::memory::Memory;
use std::rc::Rc;

/// Bytes of a queue's ring area, for both formats and up to [`MAX_RING_SIZE`] entries.
pub(crate) const AREA: usize = 64 << 10;
/// Maximum number of ring entries, as in QEMU.
pub(crate) const MAX_RING_SIZE: u16 = 1024;

/// Sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of ring entries, a power of two.
    pub(crate) size: u16,
    /// Number of buffers, at most `size`.
    pub(crate) window: u16,
    /// Bytes of a buffer, virtio header included.
    pub(crate) buffer: u32,
    /// Whether the switch writes into the buffers, as its egress; otherwise it reads them, as its
    /// ingress.
    pub(crate) writable: bool,
}

impl Shape {
    /// Returns the distance between buffers in bytes: an odd number of cache lines, so that the
    /// first lines of all buffers do not share a few sets of a cache.
    pub(crate) fn stride(&self) -> usize {
        ((self.buffer as usize).div_ceil(64) | 1) * 64
    }

    /// Returns the bytes of all buffers.
    pub(crate) fn len(&self) -> usize {
        self.stride() * usize::from(self.window)
    }
}

/// A queue's place in its vNIC's memory.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) memory: Rc<Memory>,
    /// Offset of [`AREA`] bytes for the ring.
    pub(crate) ring: usize,
    /// Offset of the first buffer.
    pub(crate) buffers: usize,
    pub(crate) shape: Shape,
}

impl Area {
    /// Returns the offset of a buffer, which is also its guest address.
    #[inline(always)]
    pub(crate) fn buffer(&self, id: u16) -> usize {
        self.buffers + usize::from(id) * self.shape.stride()
    }
}

/// Offsets of the three parts of a ring, in the terms of `VHOST_USER_SET_VRING_ADDR`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Offset of the descriptors.
    pub(crate) descriptors: usize,
    /// Offset of the part that the driver writes.
    pub(crate) driver: usize,
    /// Offset of the part that the switch writes.
    pub(crate) device: usize,
}
