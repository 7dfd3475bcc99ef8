//! How many memory regions a front end may have.
//!
//! The process has places for a number of mappings (`vm.max_map_count`, usually 65530). A region
//! that touches no other takes two of them, one for the gap, and twice that while the memory map
//! changes. So every front end may have a few regions, and only some of them as many as KVM gives a
//! guest: those beyond the few are taken from what all share, at most a quarter of the places. That
//! is no promise of the few: from some 380 front ends on that take all they may, the kernel's limit
//! is to be raised.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What every front end may have.
pub const OWN: usize = 32;
/// What one may have: as many as KVM gives a guest, and QEMU asks for no more.
pub(crate) const MOST: usize = 509;
/// What all together may have beyond their own.
pub const SHARED: usize = 4096;

/// What is taken of that.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// What one front end has taken of the shared ones.
#[derive(Debug, Default)]
pub(crate) struct Slots(usize);

impl Slots {
    /// Makes room for this many regions in all, as long as there is some; `false`: it has as much
    /// as before.
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
