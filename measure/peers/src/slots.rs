//! The buffers of a ring that the driver owns, in the order in which they go back to the switch.
//!
//! Used by both ring formats. A buffer's id never changes. A switch that returns buffers in order
//! finds the same id at the same place of the ring for ever, so the driver writes almost nothing.

/// Ids in a ring of a power of two of places. Counters run on and wrap at 2^16.
#[derive(Debug)]
pub(crate) struct Slots {
    ids: Box<[u16]>,
    /// How many ids there are.
    window: u16,
    /// Ids returned to us, including the first ones.
    freed: u16,
    /// Ids published.
    published: u16,
}

/// The result of placing an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The same id was there before.
    Same,
    /// Another one was; the place.
    New(u16),
    /// The id is unknown, or more came back than went out.
    Foreign,
}

impl Slots {
    /// `window` buffers, all of them ours, for a ring of `size` places.
    pub(crate) fn new(size: u16, window: u16) -> Slots {
        assert!(size.is_power_of_two() && size <= 1 << 15, "a ring of {size}");
        assert!(window <= size, "{window} buffers for a ring of {size}");
        let ids = (0..size).map(|place| place % window).collect();
        Slots { ids, window, freed: window, published: 0 }
    }

    /// Places of the ring.
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

    /// How many are ours.
    #[inline(always)]
    pub(crate) fn free(&self) -> u16 {
        self.freed.wrapping_sub(self.published)
    }

    /// How many were ever published, modulo 2^16.
    #[inline(always)]
    pub(crate) fn published(&self) -> u16 {
        self.published
    }

    /// The id that goes out as the `ahead`th from now.
    #[inline(always)]
    pub(crate) fn next(&self, ahead: u16) -> u16 {
        self.ids[self.place(self.published.wrapping_add(ahead))]
    }

    /// The id at a place of the ring.
    pub(crate) fn at(&self, place: u16) -> u16 {
        self.ids[self.place(place)]
    }

    /// `count` ids went out.
    #[inline(always)]
    pub(crate) fn publish(&mut self, count: u16) {
        debug_assert!(count <= self.free());
        self.published = self.published.wrapping_add(count);
    }

    /// An id came back.
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
    fn what_is_not_ours_is_refused() {
        let mut slots = Slots::new(4, 4);
        assert_eq!(slots.give_back(0), Place::Foreign);
        slots.publish(1);
        assert_eq!(slots.give_back(4), Place::Foreign);
        assert_eq!(slots.give_back(0), Place::Same);
    }
}
