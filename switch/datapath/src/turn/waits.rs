//! Counters of how long an ingress queue's frames waited before they were taken.

use crate::counters::Counter;
use crate::status::Waits;
use ports::Nanos;

/// The counters; the worker that owns the queue writes them.
#[derive(Default)]
pub(crate) struct WaitCells {
    sum: Counter,
    frames: [Counter; Waits::BOUNDS.len() + 1],
}

impl WaitCells {
    /// Counts so many frames with this wait.
    #[inline]
    pub(crate) fn add(&self, waited: Nanos, frames: usize) {
        let frames = frames as u64;
        self.sum.add(waited.0.saturating_mul(frames));
        let place = Waits::BOUNDS.partition_point(|bound| *bound < waited);
        if let Some(counter) = self.frames.get(place) {
            counter.add(frames);
        }
    }

    pub(crate) fn get(&self) -> Waits {
        let frames = std::array::from_fn(|place| self.frames.get(place).map_or(0, Counter::get));
        Waits { sum: Nanos(self.sum.get()), frames }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_up_to_its_bound() {
        let cells = WaitCells::default();
        let added = [(0, 1), (50_000, 2), (50_001, 4), (50_000_000, 8), (u64::MAX / 16, 16)];
        for (waited, frames) in added {
            cells.add(Nanos(waited), frames);
        }
        let waits = cells.get();
        assert_eq!(waits.frames, [3, 4, 0, 0, 0, 0, 0, 0, 0, 8, 16]);
        assert_eq!(waits.count(), 31);
    }
}
