//! The number of memory regions that a front end may have.
//!
//! The kernel limits the mappings of a process (`vm.max_map_count`, usually 65530). A region that
//! is not adjacent to another takes two of them, one for the gap, and four while the memory map
//! changes. So every front end may have [`OWN`] regions, and takes those beyond from a pool of
//! [`SHARED`] regions for all, so that some front ends may have as many as KVM gives a guest. The
//! pool takes at most a quarter of the mappings. The own regions are not guaranteed: from some 380
//! front ends with all their own regions on, the kernel's limit has to be raised.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Regions that every front end may have.
pub const OWN: usize = 32;
/// Most regions of one front end: as many as KVM gives a guest, and QEMU asks for no more.
pub(crate) const MOST: usize = 509;
/// Regions that all front ends together may have beyond their own.
pub const SHARED: usize = 4096;

/// Regions of the shared pool that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Number of regions that one front end has taken from the shared pool.
#[derive(Debug, Default)]
pub(crate) struct Slots(usize);

impl Slots {
    /// Changes the number of regions that the front end may have to `regions`. Returns `false`, and
    /// changes nothing, if the pool lacks room.
    pub(crate) fn hold(&mut self, regions: usize) -> bool {
        let (held, wanted) = (self.0, regions.saturating_sub(OWN));
        let change = |taken: usize| {
            let taken = taken.saturating_sub(held) + wanted;
            (wanted <= held || taken <= SHARED).then_some(taken)
        };
        let changed = regions <= MOST && TAKEN.fetch_update(Relaxed, Relaxed, change).is_ok();
        if changed {
            self.0 = wanted;
        }
        changed
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_take_all_that_is_shared_leave_the_others_their_own() {
        let mut greedy: Vec<Slots> = Vec::new();
        loop {
            let mut next = Slots::default();
            assert!(!next.hold(MOST + 1));
            if !next.hold(MOST) {
                break;
            }
            greedy.push(next);
        }
        assert_eq!(greedy.len(), SHARED / (MOST - OWN));
        let mut modest = Slots::default();
        assert!(modest.hold(OWN));
        drop(greedy.pop());
        assert!(modest.hold(MOST), "what one leaves another may have");
        assert!(!Slots::default().hold(MOST));
        assert!(modest.hold(0) && Slots::default().hold(MOST));
    }
}
