//! The buffers of a ring that the driver owns, in the order in which they are published.
//!
//! Used by both ring formats. A buffer's id never changes. With a switch that returns buffers in
//! order, each ring entry keeps its id, so the driver writes almost nothing.

/// A buffer that the switch returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) id: u16,
    /// Bytes that the switch wrote.
    pub(crate) len: u32,
}

/// Buffer ids of a ring. Its size is a power of two; counters wrap at 2^16.
#[derive(Debug)]
pub(crate) struct Slots {
    ids: Box<[u16]>,
    /// Number of ids.
    window: u16,
    /// Ids returned by the switch, plus the initial ones.
    freed: u16,
    /// Ids published to the switch.
    published: u16,
}

/// The result of returning an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The entry has the same id as before.
    Same,
    /// The entry at this index had another id before.
    New(u16),
    /// The id is unknown, or more were returned than published.
    Foreign,
}

impl Slots {
    /// Creates the ids of `window` buffers, all owned by the driver, for a ring of `size` entries.
    pub(crate) fn new(size: u16, window: u16) -> Slots {
        assert!(size.is_power_of_two() && size <= 1 << 15, "a ring of {size}");
        assert!(window <= size, "{window} buffers for a ring of {size}");
        let ids = (0..size).map(|place| place % window).collect();
        Slots { ids, window, freed: window, published: 0 }
    }

    /// Returns the number of ring entries.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        // The length was made from a u16.
        #[allow(clippy::cast_possible_truncation, reason = "made from a u16")]
        let size = self.ids.len() as u16;
        size
    }

    #[inline(always)]
    fn place(&self, counter: u16) -> usize {
        usize::from(counter) & (self.ids.len() - 1)
    }

    /// Returns the number of buffers that the driver owns.
    #[inline(always)]
    pub(crate) fn free(&self) -> u16 {
        self.freed.wrapping_sub(self.published)
    }

    /// Returns the number of buffers published so far, modulo 2^16.
    #[inline(always)]
    pub(crate) fn published(&self) -> u16 {
        self.published
    }

    /// Returns the id that is published as the `ahead`th from now.
    #[inline(always)]
    pub(crate) fn next(&self, ahead: u16) -> u16 {
        self.ids[self.place(self.published.wrapping_add(ahead))]
    }

    /// Returns the id that the switch has had longest; it must have one.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u16 {
        self.ids[self.place(self.freed.wrapping_sub(self.window))]
    }

    /// Returns how many ids the switch has had at least as long as this one, itself included;
    /// `None` if it does not have it.
    pub(crate) fn up_to(&self, id: u16) -> Option<u16> {
        let oldest = self.freed.wrapping_sub(self.window);
        let at = |ahead: u16| self.ids[self.place(oldest.wrapping_add(ahead))];
        (0..self.window - self.free()).find(|ahead| at(*ahead) == id).map(|ahead| ahead + 1)
    }

    /// Returns the id at a ring entry.
    pub(crate) fn at(&self, place: u16) -> u16 {
        self.ids[self.place(place)]
    }

    /// Records that `count` ids were published.
    #[inline(always)]
    pub(crate) fn publish(&mut self, count: u16) {
        debug_assert!(count <= self.free());
        self.published = self.published.wrapping_add(count);
    }

    /// Records that an id was returned.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, id: u16) -> Place {
        if id >= self.window || self.free() >= self.window {
            return Place::Foreign;
        }
        let place = self.place(self.freed);
        self.freed = self.freed.wrapping_add(1);
        if self.ids[place] == id {
            return Place::Same;
        }
        self.ids[place] = id;
        #[allow(clippy::cast_possible_truncation, reason = "less than the size, a u16")]
        let place = place as u16;
        Place::New(place)
    }
}

/// Error: the switch returned a buffer that it did not own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForeignBuffer(pub(crate) u16);

impl std::fmt::Display for ForeignBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the switch returned buffer {}, which it did not have", self.0)
    }
}

impl std::error::Error for ForeignBuffer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_returned_in_order_keep_their_places() {
        let mut slots = Slots::new(8, 4);
        for round in 0..40_000u32 {
            let id = slots.next(0);
            assert_eq!(u32::from(id), round % 4);
            slots.publish(1);
            assert_eq!((slots.free(), slots.give_back(id)), (3, Place::Same));
        }
    }

    #[test]
    fn buffers_returned_out_of_order_move() {
        let mut slots = Slots::new(4, 4);
        slots.publish(2);
        assert_eq!([slots.give_back(1), slots.give_back(0)], [Place::New(0), Place::New(1)]);
        slots.publish(2);
        assert_eq!([slots.next(0), slots.next(1)], [1, 0]);
    }

    #[test]
    fn one_id_stands_for_those_before_it() {
        let mut slots = Slots::new(8, 4);
        for _ in 0..40_000 {
            slots.publish(3);
            let third = slots.next(0).wrapping_sub(1) % 4;
            assert_eq!((slots.up_to(third), slots.up_to(slots.next(0))), (Some(3), None));
            for left in (0..3).rev() {
                let oldest = slots.oldest();
                assert_eq!(slots.give_back(oldest), Place::Same);
                assert_eq!(slots.up_to(third), (left > 0).then_some(left));
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let mut slots = Slots::new(4, 4);
        assert_eq!(slots.give_back(0), Place::Foreign);
        slots.publish(1);
        assert_eq!(slots.give_back(4), Place::Foreign);
        assert_eq!(slots.give_back(0), Place::Same);
    }
}
