//! A list with storage that stays initialised, so that a run of entries is written in place: no
//! capacity check an entry, no unsafe.

/// Like a `Vec`, with room beyond its end that may be written before it counts.
#[derive(Debug)]
pub(crate) struct List<T> {
    storage: Vec<T>,
    len: usize,
}

impl<T: Copy + Default> List<T> {
    /// Returns an empty list with room for `capacity`.
    pub(crate) fn new(capacity: usize) -> List<T> {
        List { storage: vec![T::default(); capacity], len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[T] {
        self.storage.get(..self.len).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        self.storage.get_mut(..self.len).unwrap_or_default()
    }

    /// Returns exactly `count` entries after the end, which [`List::extend`] adds to the list.
    #[inline(always)]
    pub(crate) fn spare(&mut self, count: usize) -> &mut [T] {
        let end = self.len + count;
        if end > self.storage.len() {
            self.grow(end);
        }
        self.storage.get_mut(self.len..end).unwrap_or_default()
    }

    #[cold]
    fn grow(&mut self, wanted: usize) {
        self.storage.resize(wanted.next_power_of_two(), T::default());
    }

    /// Adds the first `count` spare entries to the list.
    #[inline(always)]
    pub(crate) fn extend(&mut self, count: usize) {
        debug_assert!(self.len + count <= self.storage.len());
        self.len += count;
    }

    pub(crate) fn push(&mut self, entry: T) {
        if let [spare] = self.spare(1) {
            *spare = entry;
        }
        self.extend(1);
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes the oldest `count` off.
    #[inline]
    pub(crate) fn forget_front(&mut self, count: usize) {
        let count = count.min(self.len);
        if count < self.len {
            self.storage.copy_within(count..self.len, 0);
        }
        self.len -= count;
    }
}
