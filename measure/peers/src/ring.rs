//! The driver side of one queue, built to be faster than any switch.
//!
//! Every buffer keeps its descriptor, so the driver moves only indices. It polls, tells the switch
//! so (NO_INTERRUPT), and [notifies](Ring::wants_kick) the switch only if nothing has moved for a
//! while: a fence and a read of the switch's flag with every burst would be the generator's most
//! expensive step. Called by [`direction`](crate::direction).

use crate::area::{Area, Parts};
use crate::packed::PackedRing;
use crate::slots::{ForeignBuffer, Used};
use crate::split::SplitRing;

/// A queue of either format.
#[derive(Debug)]
pub(crate) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    /// Creates a ring of which the driver owns all buffers. `in_order`: they come back in the order
    /// in which they are published.
    pub(crate) fn new(area: Area, packed: bool, in_order: bool) -> Ring {
        if packed {
            Ring::Packed(PackedRing::new(area, in_order))
        } else {
            Ring::Split(SplitRing::new(area))
        }
    }

    /// Returns the offsets of the ring's parts.
    pub(crate) fn parts(&self) -> Parts {
        match self {
            Ring::Split(ring) => ring.parts(),
            Ring::Packed(ring) => ring.parts(),
        }
    }

    /// Returns the index at which both sides start, as in `VHOST_USER_SET_VRING_BASE`.
    pub(crate) fn base(&self) -> u16 {
        match self {
            Ring::Split(_) => 0,
            // Both wrap counters start as 1.
            Ring::Packed(_) => 1 << 15,
        }
    }

    /// Returns the queue's memory.
    #[inline(always)]
    pub(crate) fn area(&self) -> &Area {
        match self {
            Ring::Split(ring) => &ring.area,
            Ring::Packed(ring) => &ring.area,
        }
    }

    /// Returns the number of buffers that the driver owns.
    #[inline(always)]
    pub(crate) fn free(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.slots.free(),
            Ring::Packed(ring) => ring.slots.free(),
        }
    }

    /// Returns the offset of the buffer that is published as the `ahead`th from now.
    #[inline(always)]
    pub(crate) fn next(&self, ahead: u16) -> usize {
        match self {
            Ring::Split(ring) => ring.area.buffer(ring.slots.next(ahead)),
            Ring::Packed(ring) => ring.area.buffer(ring.slots.next(ahead)),
        }
    }

    /// Reclaims buffers that the switch has used, at most as many as `out` holds. Returns their
    /// number.
    ///
    /// # Errors
    /// The switch returned a buffer that it did not own.
    #[inline]
    pub(crate) fn reap(&mut self, out: &mut [Used]) -> Result<usize, ForeignBuffer> {
        match self {
            Ring::Split(ring) => ring.reap(out),
            Ring::Packed(ring) => ring.reap(out),
        }
    }

    /// Publishes the next `count` buffers to the switch together.
    #[inline]
    pub(crate) fn publish(&mut self, count: u16) {
        match self {
            Ring::Split(ring) => ring.publish(count),
            Ring::Packed(ring) => ring.publish(count),
        }
    }

    /// Returns whether the switch asks to be notified of published buffers.
    pub(crate) fn wants_kick(&self) -> bool {
        match self {
            Ring::Split(ring) => ring.wants_kick(),
            Ring::Packed(ring) => ring.wants_kick(),
        }
    }
}
