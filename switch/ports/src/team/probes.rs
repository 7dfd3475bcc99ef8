//! The probes that members of a team have heard, as a table that workers write and the thread that
//! probes ([`super::rounds`]) reads.

use super::mask::{Mask, PLACES, Place};
use super::probe::{Probe, START, Size};
use crate::Slice;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Most VLANs that are probed.
pub(super) const VLANS: usize = 16;

/// What workers and the thread that probes share.
pub(super) struct Probes {
    pub(super) token: u128,
    /// The current round. Probes of others are ignored.
    round: AtomicU32,
    /// By receiver, VLAN and size, a bit for each sender that it has heard in the round.
    heard: [[[AtomicU8; 2]; VLANS]; PLACES],
}

impl Probes {
    pub(super) fn new() -> Probes {
        let random = RandomState::new();
        let [high, low] = [0, 1].map(|word: u64| u128::from(random.hash_one(word)));
        Probes { token: high << 64 | low, round: AtomicU32::new(0), heard: Default::default() }
    }

    /// Notes a frame to the probes' group address that a member received in a VLAN, if it is a
    /// probe of this team and round.
    #[cold]
    pub(super) fn hear(&self, receiver: Place, vlan: u16, slices: &[Slice<'_>]) {
        let mut bytes = [0; START];
        let mut len = 0;
        for slice in slices {
            len += slice.copy_to(bytes.get_mut(len..).unwrap_or_default());
        }
        let Some(probe) = bytes.get(..len).and_then(Probe::read) else { return };
        let is_current = probe.token == self.token && probe.round == self.round.load(Relaxed);
        // In another VLAN than it was sent in, it says nothing about either.
        if is_current
            && probe.vlan == vlan
            && let Some(heard) = self.cell(receiver, usize::from(probe.index), probe.size)
        {
            heard.fetch_or(Mask::default().with(probe.sender).without(receiver).0, Relaxed);
        }
    }

    fn cell(&self, receiver: Place, index: usize, size: Size) -> Option<&AtomicU8> {
        self.heard.get(receiver.index())?.get(index)?.get(size as usize)
    }

    /// Begins a round: from here on probes of the last one come too late.
    pub(super) fn begin(&self) -> u32 {
        self.round.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Returns the senders that each member has heard, and forgets them.
    pub(super) fn take(&self, index: usize, size: Size) -> [Mask; PLACES] {
        let heard = |place| self.cell(place, index, size).map_or(0, |cell| cell.swap(0, Relaxed));
        std::array::from_fn(|place| Mask(heard(place_of(place))))
    }
}

#[allow(clippy::cast_possible_truncation, reason = "there are 8 places")]
fn place_of(index: usize) -> Place {
    Place(index as u8)
}
