//! Places of a team, and sets of them.

/// Most members of a team, as in SET.
pub const PLACES: usize = 8;

/// A member's place, 0 to 7. The member keeps it for as long as it is in the team.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Place(pub u8);

impl Place {
    /// Returns the place as an index.
    pub fn index(self) -> usize {
        usize::from(self.0) % PLACES
    }
}

/// A set of places, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mask(pub(super) u8);

impl Mask {
    /// Whether a place is in the set.
    #[inline]
    pub(super) fn has(self, place: Place) -> bool {
        self.0 >> place.index() & 1 != 0
    }

    /// Returns the set with one more place.
    #[must_use]
    pub(super) fn with(self, place: Place) -> Mask {
        Mask(self.0 | 1 << place.index())
    }

    /// Returns the set without a place.
    #[must_use]
    pub(super) fn without(self, place: Place) -> Mask {
        Mask(self.0 & !(1 << place.index()))
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the places in the set, lowest first.
    #[inline]
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        (0..8).map(Place).filter(move |place| self.has(*place))
    }

    /// Maps a number to a place of the set, evenly.
    #[inline]
    pub(super) fn nth(self, number: u64) -> Option<Place> {
        let count = u64::from(self.0.count_ones());
        if count == 0 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most 8 are in it")]
        self.places().nth((number % count) as usize)
    }
}
