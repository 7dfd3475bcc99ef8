//! A set of VLAN ids.

/// A set of VLAN ids (0 to 4095) as a bitmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// Returns whether the id is in the set.
    #[inline]
    pub fn contains(&self, id: u16) -> bool {
        self.0.get(word(id)).is_some_and(|word| word & bit(id) != 0)
    }

    /// Returns whether the sets have an id in common.
    pub fn overlaps(&self, other: &VlanSet) -> bool {
        self.0.iter().zip(&*other.0).any(|(one, two)| one & two != 0)
    }

    /// Puts an id into the set, cut to 12 bits, or takes it out.
    pub fn set(&mut self, id: u16, is_in: bool) {
        if let Some(word) = self.0.get_mut(word(id)) {
            *word = if is_in { *word | bit(id) } else { *word & !bit(id) };
        }
    }

    /// Returns the bitmap: the bits of the ids 0 to 63, the lowest first, and so on.
    pub fn words(&self) -> &[u64; 64] {
        &self.0
    }
}

fn word(id: u16) -> usize {
    usize::from(id & 0xfff) / 64
}

fn bit(id: u16) -> u64 {
    1 << (id % 64)
}

impl Default for VlanSet {
    /// Returns the empty set.
    fn default() -> VlanSet {
        VlanSet::from([0; 64])
    }
}

impl From<[u64; 64]> for VlanSet {
    /// Makes the set of this bitmap, see [`VlanSet::words`].
    fn from(words: [u64; 64]) -> VlanSet {
        VlanSet(Box::new(words))
    }
}

impl FromIterator<u16> for VlanSet {
    /// Makes the set of these ids, cut to 12 bits. It never has 4095, which is reserved (IEEE
    /// 802.1Q, table 9-2).
    fn from_iter<I: IntoIterator<Item = u16>>(ids: I) -> VlanSet {
        let mut set = VlanSet::default();
        let valid = ids.into_iter().map(|id| id & 0xfff).filter(|id| *id != 0xfff);
        valid.for_each(|id| set.set(id, true));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_set_holds_what_it_was_made_of() {
        let ids = [0, 1, 63, 64, 4094];
        let set: VlanSet = ids.into_iter().chain([4095]).collect();
        assert!((0..=4095).all(|id| set.contains(id) == ids.contains(&id)));
        assert_eq!(VlanSet::from(*set.words()), set);
    }

    #[test]
    fn an_id_is_put_in_and_taken_out() {
        let mut set = VlanSet::default();
        for id in [0, 63, 64, 4095] {
            set.set(id, true);
            assert!((0..=4095).all(|other| set.contains(other) == (other == id)));
            set.set(id, false);
        }
        assert_eq!(set, VlanSet::default());
    }
}
