//! Holding back signals to a guest for received frames, as its driver asks for (virtio 1.3, section
//! 5.1.6.5.9, notification coalescing).
//!
//! A signal is held until so many frames were delivered, or for so long, whichever is first. The
//! worker that holds one back looks after it ([`Hold::until`]), and so does the session before it
//! stops the ring.

/// The longest that a signal is held, in nanoseconds, whatever the driver asks for.
pub const LONGEST_HOLD_NS: u64 = 1_000_000;

/// What a driver asks for at one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct HoldWish {
    pub(crate) packets: u32,
    pub(crate) microseconds: u32,
}

/// The state of one ring.
#[derive(Debug, Default)]
pub struct Hold {
    /// Frames after which a held signal is sent, and the time that it is held. 0: it is sent at
    /// once.
    most: u32,
    most_ns: u64,
    /// Frames since the signal is held.
    frames: u32,
    /// When to send it, on the switch's clock; `None` if none is held.
    until: Option<u64>,
}

impl Hold {
    /// Sets what the driver asks for, within bounds. Returns whether a signal was held until now,
    /// which is to be sent.
    #[must_use]
    pub(crate) fn set(&mut self, HoldWish { packets, microseconds }: HoldWish) -> bool {
        self.most = packets;
        self.most_ns = (u64::from(microseconds) * 1_000).min(LONGEST_HOLD_NS);
        self.settle()
    }

    /// Notes frames that were delivered at this time (nanoseconds), and whether the driver wants a
    /// signal for them. Returns whether to send one now.
    #[inline]
    pub fn note(&mut self, frames: usize, is_wanted: bool, now: u64) -> bool {
        if self.most_ns == 0 || self.most < 2 {
            return is_wanted;
        }
        self.hold(frames, is_wanted, now)
    }

    #[cold]
    fn hold(&mut self, frames: usize, is_wanted: bool, now: u64) -> bool {
        if !is_wanted && self.until.is_none() {
            return false;
        }
        self.frames = self.frames.saturating_add(u32::try_from(frames).unwrap_or(u32::MAX));
        let until = *self.until.get_or_insert(now.saturating_add(self.most_ns));
        let is_due = self.frames >= self.most || now >= until;
        is_due && self.settle()
    }

    /// Returns until when a signal is held; `None` if none is.
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Returns whether a signal is held whose time has come. It is to be sent.
    #[must_use]
    pub fn is_due(&mut self, now: u64) -> bool {
        self.until.is_some_and(|until| now >= until) && self.settle()
    }

    /// Returns whether a signal is held. It is to be sent, whatever its time.
    #[must_use]
    pub(crate) fn settle(&mut self) -> bool {
        self.frames = 0;
        self.until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a driver asks for, no wanted signal is lost, and none is later than the bound.
        #[test]
        fn each_wanted_signal_is_sent_within_the_bound(
            packets: u32, microseconds in prop_oneof![0..2_000u32, any::<u32>()],
            steps in vec((0..64usize, any::<bool>(), 0..400_000u64), 1..100),
        ) {
            let mut hold = Hold::default();
            let packets = packets % 300;
            let was_held = hold.set(HoldWish { packets, microseconds });
            prop_assert!(!was_held);
            let (mut now, mut owed_since, mut frames_since) = (1, None, 0);
            for (frames, is_wanted, pause) in steps {
                if is_wanted {
                    owed_since.get_or_insert(now);
                }
                frames_since += u32::try_from(frames).unwrap();
                if hold.note(frames, is_wanted, now) {
                    prop_assert!(owed_since.is_some(), "one that was not wanted");
                    (owed_since, frames_since) = (None, 0);
                }
                if owed_since.is_none() {
                    frames_since = 0;
                }
                prop_assert!(owed_since.is_none() || packets > frames_since);
                // The worker looks no later than at `until`.
                let end = now + pause;
                while let Some(until) = hold.until().filter(|until| *until <= end) {
                    prop_assert!(hold.is_due(until));
                    prop_assert!(until - owed_since.expect("owed") <= LONGEST_HOLD_NS);
                    (owed_since, frames_since) = (None, 0);
                }
                now = end;
                prop_assert_eq!(owed_since.is_some(), hold.until().is_some());
            }
            let is_owed = owed_since.is_some();
            prop_assert_eq!(hold.set(HoldWish::default()), is_owed, "a new wish leaves none behind");
        }
    }
}
