//! Back-pressure: a queue whose last burst went to one egress queue takes no more than that has room for. The rest
//! waits in the sender's own queue, where its network stack sees it, instead of being dropped here.
//!
//! Only egress queues that know their room (a guest's) hold a sender back. The sender may have other receivers, so a guest is
//! waited for only by what it has taken: [`PER_FRAME`] and [`PER_BYTE`], and [`PATIENCE`] at most, for all senders together.
//! Then its frames are dropped as without back-pressure, until it has taken some again.

use crate::outbox::Target;
use crate::view::{PortShared, View};
use ports::{Burst, Most, Nanos, Room};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest a queue waits for another.
const PATIENCE: u64 = 10_000_000;
/// Nanoseconds that a receiver may take for a frame, and for a byte of it: 50,000 frames or 1 Gbit a second. A slower one
/// loses frames, or it could hold a sender to any rate.
const PER_FRAME: u64 = 20_000;
const PER_BYTE: u64 = 8;
/// How long a queue rests before its receiver's room is read again.
pub(crate) const PAUSE: Nanos = Nanos(20_000);

/// What may be taken now from a queue whose last burst went `toward` one egress queue only; `None`: nothing yet.
pub(crate) fn allowance(toward: Option<Target>, view: &View, now: Nanos) -> Option<Most> {
    let full = Some(Most::default());
    let Some(target) = toward else { return full };
    let Some(port) = view.port(target.port) else { return full };
    let Some(room) = room(&port.shared, target.queue) else { return full };
    let until = port.shared.patient_until.get(target.queue);
    let waits = until.is_some_and(|until| now.0 < until.load(Ordering::Relaxed));
    fitting(room).or_else(|| full.filter(|_| !waits))
}

/// A receiver has taken frames of so many bytes: senders wait for it for longer.
pub(crate) fn be_patient(until: &AtomicU64, now: Nanos, frames: usize, bytes: u64) {
    let earned = frames as u64 * PER_FRAME + bytes * PER_BYTE;
    let from = until.load(Ordering::Relaxed).max(now.0);
    until.store((from + earned).min(now.0 + PATIENCE), Ordering::Relaxed);
}

fn room(port: &PortShared, queue: usize) -> Option<Room> {
    port.egress.get(queue)?.lock().unwrap_or_else(PoisonError::into_inner).room()
}

/// A burst that fits, though every frame leaves a part of its last buffer empty; `None`: not even one is sure to.
fn fitting(room: Room) -> Option<Most> {
    let frames = (room.buffers / 4).min(Burst::FRAMES);
    let bytes = (room.bytes / 4 * 3).saturating_sub(Burst::LARGEST_FRAME).min(Burst::BYTES);
    (frames > 0 && bytes > 0).then_some(Most { frames, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// However a receiver hands out its room, a sender that always waits for it is held to no less than its rate.
    #[test]
    fn a_receiver_that_drips_is_waited_for_as_long_as_its_frames_earn() {
        let until = AtomicU64::new(0);
        be_patient(&until, Nanos(1_000_000), 1, 60);
        assert_eq!(until.load(Ordering::Relaxed), 1_000_000 + PER_FRAME + 60 * PER_BYTE);
        be_patient(&until, Nanos(1_000_000), 256, 256 * 65_549);
        assert_eq!(until.load(Ordering::Relaxed), 1_000_000 + PATIENCE, "and no longer than that");
        be_patient(&until, Nanos(90_000_000), 1, 60);
        assert!(
            until.load(Ordering::Relaxed) < 90_000_000 + 2 * PER_FRAME,
            "what was not needed is not kept"
        );
    }

    proptest! {
        /// However the frames of a burst are cut, their buffers are there.
        #[test]
        fn what_is_allowed_fits(
            buffers in 1usize..2000,
            buffer in 1000usize..70_000,
            lengths in proptest::collection::vec(14usize..Burst::LARGEST_FRAME, 1..300),
        ) {
            let Some(most) = fitting(Room { buffers, bytes: buffers * buffer }) else { return Ok(()) };
            let (mut frames, mut bytes, mut taken) = (0, 0, 0);
            for length in lengths {
                if frames == most.frames || bytes >= most.bytes {
                    break;
                }
                frames += 1;
                bytes += length;
                taken += length.div_ceil(buffer);
            }
            prop_assert!(taken <= buffers, "{taken} of {buffers}");
        }
    }
}
