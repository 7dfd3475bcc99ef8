//! Back-pressure: a queue whose last burst went to one egress queue takes no more frames than that
//! queue has room for. The rest waits in the sender's own queue, visible to its network stack,
//! instead of being dropped here.
//!
//! Only egress queues that know their room hold a sender back: a guest's, and an uplink's, which
//! vNICs may share by their [weights](crate::port::weights). The sender may have other receivers,
//! so it waits for one without weights only in proportion to what that has taken from this sender:
//! [`PER_FRAME`] and [`PER_BYTE`], at most [`ROOM_TIMEOUT`]. After that, frames for it are dropped
//! as without back-pressure, until it has taken some again. Frames that it takes from others do not
//! count; otherwise a receiver with an accomplice could hold a sender forever.

use crate::port::view::Port;
use crate::turn::outbox::Target;
use crate::turn::{Delivered, Turn};
use ports::{Burst, BurstLimit, Nanos, Room};

/// The longest a queue waits for another.
const ROOM_TIMEOUT: u64 = 10_000_000;
/// Nanoseconds that a receiver may take for a frame, and for a byte of it: 50,000 frames or 1 Gbit
/// a second. A slower receiver loses frames; otherwise it could hold a sender to any rate.
const PER_FRAME: u64 = 20_000;
const PER_BYTE: u64 = 8;
/// How long a queue rests before its receiver's room is read again.
pub(crate) const PAUSE: Nanos = Nanos(20_000);

/// The egress queue that an ingress queue sends to, and how long it waits for room there.
#[derive(Default)]
pub(crate) struct Pressure {
    /// The only egress queue its last burst went to, or one of them that is shared by weights.
    toward: Option<Target>,
    waits_until: Nanos,
}

impl Pressure {
    /// Returns how much may be taken now; `None` if nothing yet.
    pub(crate) fn allowance(&self, turn: &Turn<'_>) -> Option<BurstLimit> {
        let full = Some(BurstLimit::default());
        let Some((target, port)) = self.receiver(turn) else { return full };
        let weights = turn.weights(port, target);
        if weights.is_none() && !turn.from.settings.back_pressure {
            return full;
        }
        let egress = port.shared.egress.get(target.queue);
        let Some(room) = egress.and_then(|egress| egress.room()) else { return full };
        let fitting = fitting(room);
        let is_admitted = match weights {
            Some(mut weights) => weights.admit(turn.place(), (room, fitting.is_some()), turn.now),
            None => fitting.is_some() || turn.now >= self.waits_until,
        };
        fitting.or(full).filter(|_| is_admitted)
    }

    /// Notes where the queue's burst went; `None` for an empty burst or several queues. If that is
    /// not where it sent before, it no longer waits there for its share.
    pub(crate) fn leave(&self, turn: &Turn<'_>, toward: Option<Target>) {
        if let Some((target, port)) = self.receiver(turn)
            && toward.is_none_or(|toward| toward.slot != target.slot)
        {
            turn.weights(port, target).into_iter().for_each(|mut it| it.leave(turn.place()));
        }
    }

    fn receiver<'t>(&self, turn: &Turn<'t>) -> Option<(Target, &'t Port)> {
        let target = self.toward?;
        Some((target, turn.view.port(target.port)?))
    }

    /// Notes what the egress queue took that a burst went to. `toward` is `None` if it went to
    /// several that are not shared by weights.
    pub(crate) fn note(&mut self, toward: Option<Target>, delivered: Delivered, now: Nanos) {
        let slot = |target: Option<Target>| target.map(|target| target.slot);
        let is_same = slot(toward) == slot(std::mem::replace(&mut self.toward, toward));
        let from = if is_same { self.waits_until.max(now) } else { now };
        let earned = delivered.frames as u64 * PER_FRAME + delivered.bytes * PER_BYTE;
        self.waits_until = Nanos((from.0 + earned).min(now.0 + ROOM_TIMEOUT));
    }
}

/// Returns a burst limit that fits into the room even if every frame leaves a part of its last
/// buffer empty; `None` if not even one frame is sure to fit.
fn fitting(room: Room) -> Option<BurstLimit> {
    let frames = (room.buffers / 4).min(Burst::FRAMES);
    let bytes = (room.bytes / 4 * 3).saturating_sub(Burst::LARGEST_FRAME).min(Burst::BYTES);
    (frames > 0 && bytes > 0).then_some(BurstLimit { frames, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PortId;
    use proptest::prelude::*;

    /// However a receiver hands out its room, a sender that always waits for it is held to no less
    /// than its rate.
    #[test]
    fn a_receiver_that_drips_is_waited_for_as_long_as_its_frames_earn() {
        let toward = Some(Target { slot: 0, port: PortId(0), queue: 0 });
        let mut pressure = Pressure::default();
        let mut until = |ms: u64, frames, bytes| {
            pressure.note(toward, Delivered { frames, bytes }, Nanos(ms * 1_000_000));
            pressure.waits_until.0
        };
        assert_eq!(until(1, 1, 60), 1_000_000 + PER_FRAME + 60 * PER_BYTE);
        assert_eq!(
            until(1, 256, 256 * 65_549),
            1_000_000 + ROOM_TIMEOUT,
            "and no longer than that"
        );
        let later = until(90, 1, 60);
        assert!(later < 90_000_000 + 2 * PER_FRAME, "what was not needed is not kept: {later}");
    }

    #[test]
    fn what_one_receiver_took_earns_another_no_patience() {
        let toward = |slot| Some(Target { slot, port: PortId(0), queue: 0 });
        let mut pressure = Pressure::default();
        pressure.note(toward(0), Delivered { frames: 256, bytes: 1 << 20 }, Nanos(5));
        pressure.note(toward(1), Delivered::default(), Nanos(6));
        assert_eq!(pressure.waits_until, Nanos(6));
    }

    proptest! {
        /// However the frames of a burst are cut, their buffers are there.
        #[test]
        fn what_is_allowed_fits(
            buffers in 1usize..2000,
            buffer in 1000usize..70_000,
            lengths in proptest::collection::vec(14usize..Burst::LARGEST_FRAME, 1..300),
        ) {
            let Some(most) = fitting(Room { buffers, bytes: buffers * buffer, waiting: 0 }) else { return Ok(()) };
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
