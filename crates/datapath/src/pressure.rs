//! Back-pressure: a queue whose last burst went to one egress queue takes no more than that has room for. The rest
//! waits in the sender's own queue, where its network stack sees it, instead of being dropped here.
//!
//! Only egress queues that know their room (a guest's) hold a sender back. A guest that reads nothing does so for
//! [`PATIENCE`] at most, because the sender may have other receivers: then its frames are dropped as without back-pressure.

use crate::outbox::Target;
use crate::view::View;
use ports::{Burst, Most, Nanos, Room};
use std::sync::PoisonError;

/// The longest a queue waits for another.
const PATIENCE: Nanos = Nanos(10_000_000);
/// How long a queue rests before its receiver's room is read again.
pub(crate) const PAUSE: Nanos = Nanos(20_000);

/// Where an ingress queue sends, and since when it waits.
#[derive(Default)]
pub(crate) struct Pressure {
    /// The only egress queue its last burst went to.
    toward: Option<Target>,
    waiting_since: Option<Nanos>,
}

impl Pressure {
    /// What may be taken now; `None`: nothing yet.
    pub(crate) fn allowance(&mut self, view: &View, now: Nanos) -> Option<Most> {
        let Some(room) = self.toward.and_then(|target| room(view, target)) else {
            self.waiting_since = None;
            return Some(Most::default());
        };
        if let Some(most) = fitting(room) {
            self.waiting_since = None;
            return Some(most);
        }
        let since = *self.waiting_since.get_or_insert(now);
        (now.since(since) > PATIENCE).then(Most::default)
    }

    /// Where a burst went, if all of it went one way.
    pub(crate) fn note(&mut self, toward: Option<Target>) {
        self.toward = toward;
    }
}

fn room(view: &View, target: Target) -> Option<Room> {
    let queue = view.port(target.port)?.shared.egress.get(target.queue)?;
    queue.lock().unwrap_or_else(PoisonError::into_inner).room()
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
