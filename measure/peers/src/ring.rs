//! The driver side of one queue, built for one purpose: to be faster than any switch.
//!
//! Every buffer keeps its descriptor for ever, so the driver only moves indices. It polls, tells
//! the switch so (NO_INTERRUPT), and [kicks](Ring::wants_kick) only if nothing has moved for a
//! while: a fence and a look at the switch's flag with every burst would be the generator's most
//! expensive step. Called by `way`.

use crate::memory::Memory;
use crate::packed::PackedRing;
use crate::split::SplitRing;
use std::rc::Rc;

/// Bytes of a queue's ring area, for both formats, up to [`MOST`] places.
pub(crate) const AREA: usize = 64 << 10;
/// Most places of a ring, as in QEMU.
pub(crate) const MOST: u16 = 1024;

/// What a queue consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Places of the ring, a power of two.
    pub(crate) size: u16,
    /// Buffers in use, at most `size`.
    pub(crate) window: u16,
    /// Bytes of a buffer, virtio header included.
    pub(crate) buffer: u32,
    /// The switch writes into the buffers: its egress. Otherwise its ingress.
    pub(crate) writable: bool,
}

impl Shape {
    /// Distance between buffers: an odd number of cache lines, so that the first lines of all
    /// buffers do not share a few sets of a cache.
    pub(crate) fn stride(&self) -> usize {
        ((self.buffer as usize).div_ceil(64) | 1) * 64
    }

    /// Bytes of all buffers.
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
    /// Offset of a buffer, which is also its guest address.
    #[inline(always)]
    pub(crate) fn buffer(&self, id: u16) -> usize {
        self.buffers + usize::from(id) * self.shape.stride()
    }
}

/// A buffer that came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) id: u16,
    /// Bytes that the switch wrote.
    pub(crate) len: u32,
}

/// Offsets of the three parts of a ring, in the terms of `VHOST_USER_SET_VRING_ADDR`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Descriptors.
    pub(crate) descriptors: usize,
    /// What the driver writes.
    pub(crate) driver: usize,
    /// What the switch writes.
    pub(crate) device: usize,
}

/// A queue of either format.
#[derive(Debug)]
pub(crate) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    /// All buffers are ours, nothing is published.
    pub(crate) fn new(area: Area, packed: bool) -> Ring {
        if packed { Ring::Packed(PackedRing::new(area)) } else { Ring::Split(SplitRing::new(area)) }
    }

    /// Where its parts are.
    pub(crate) fn parts(&self) -> Parts {
        match self {
            Ring::Split(ring) => ring.parts(),
            Ring::Packed(ring) => ring.parts(),
        }
    }

    /// Where both sides start, in the terms of `VHOST_USER_SET_VRING_BASE`.
    pub(crate) fn base(&self) -> u16 {
        match self {
            Ring::Split(_) => 0,
            // Both wrap counters start as 1.
            Ring::Packed(_) => 1 << 15,
        }
    }

    /// Memory and buffers.
    #[inline(always)]
    pub(crate) fn area(&self) -> &Area {
        match self {
            Ring::Split(ring) => &ring.area,
            Ring::Packed(ring) => &ring.area,
        }
    }

    /// Buffers that are ours.
    #[inline(always)]
    pub(crate) fn free(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.slots.free(),
            Ring::Packed(ring) => ring.slots.free(),
        }
    }

    /// Offset of the buffer that goes out as the `ahead`th from now.
    #[inline(always)]
    pub(crate) fn next(&self, ahead: u16) -> usize {
        match self {
            Ring::Split(ring) => ring.area.buffer(ring.slots.next(ahead)),
            Ring::Packed(ring) => ring.area.buffer(ring.slots.next(ahead)),
        }
    }

    /// Takes back what the switch has used, at most `out`; returns how many.
    #[inline]
    pub(crate) fn reap(&mut self, out: &mut [Used]) -> Result<usize, ForeignBuffer> {
        match self {
            Ring::Split(ring) => ring.reap(out),
            Ring::Packed(ring) => ring.reap(out),
        }
    }

    /// Hands the next `count` buffers to the switch, at once.
    #[inline]
    pub(crate) fn publish(&mut self, count: u16) {
        match self {
            Ring::Split(ring) => ring.publish(count),
            Ring::Packed(ring) => ring.publish(count),
        }
    }

    /// Whether the switch sleeps until it is notified of published buffers.
    pub(crate) fn wants_kick(&self) -> bool {
        match self {
            Ring::Split(ring) => ring.wants_kick(),
            Ring::Packed(ring) => ring.wants_kick(),
        }
    }
}

/// The switch returned a buffer that it did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForeignBuffer(pub(crate) u16);

impl std::fmt::Display for ForeignBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the switch returned buffer {}, which it did not have", self.0)
    }
}

impl std::error::Error for ForeignBuffer {}
