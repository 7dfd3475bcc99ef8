//! Weights: vNICs that send to an uplink share a congested egress queue by their weights, instead
//! of first come, first served.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996) over ports. Each port has a tag: the bytes
//! it has sent, divided by its weight. While less than half of the room is left, frames are taken
//! only from the port with the lowest tag among those with frames, and the others wait in their own
//! queues. A port that was idle starts at the tag of the port let through last, so it saves up
//! nothing. If a port's frames are slow or go elsewhere, its unused room soon makes more than half
//! of the room, and is free for all. (So half of the room must outlast the pause of a waiting
//! queue, 20 µs.)

use crate::settings::PortId;
use ports::{Nanos, Room};

/// The time after which a port that has not asked counts as gone. It is long, since a worker may
/// have to wait for its processor; before that, the room that the port leaves exceeds half of all.
const WAITING: Nanos = Nanos(100_000_000);
/// The time without room and without a frame sent after which a queue counts as stopped. Then
/// frames for it are dropped, as without weights.
const STOPPED: Nanos = Nanos(10_000_000);

/// How far ahead a tag may be: some bursts of weight 1. It bounds the debt of a guest that evades
/// the rule, and of the next guest at its port.
const AHEAD: u64 = 1 << 28;

/// The vNICs that send to one egress queue.
#[derive(Default)]
pub(crate) struct Weights {
    /// The senders, by number of the port.
    senders: Vec<Sender>,
    /// The tag of the port that was let through last.
    tag: u64,
    /// The most bytes of room seen so far.
    most: usize,
    /// Whether less than half of that was left when it was last read.
    pub(crate) is_short: bool,
    /// The time since when the queue has had no room and sent nothing, and the room last seen.
    full: Option<(Nanos, Room)>,
}

#[derive(Clone, Default)]
struct Sender {
    tag: u64,
    /// The port's queues that had frames, or had to wait, when they were last asked about. Each has
    /// the bit of its number modulo 64.
    backlogged: u64,
    asked_at: Nanos,
}

impl Sender {
    fn is_waiting(&self, now: Nanos) -> bool {
        self.backlogged != 0 && now.since(self.asked_at) < WAITING
    }
}

impl Weights {
    fn sender(&mut self, port: PortId) -> Option<&mut Sender> {
        let place = usize::from(port.0);
        self.senders.resize(self.senders.len().max(place + 1), Sender::default());
        self.senders.get_mut(place)
    }

    /// Raises a port's tag by the bytes divided by the weight, to at most [`AHEAD`] above the
    /// lowest. Returns how far ahead the tag is.
    pub(crate) fn charge(&mut self, port: PortId, bytes: u64, weight: u8) -> u64 {
        let (paid, lowest) = (bytes * 100 / u64::from(weight.max(1)), self.tag);
        let Some(sender) = self.sender(port) else { return 0 };
        sender.tag = (sender.tag + paid).min(lowest + AHEAD);
        sender.tag.saturating_sub(lowest)
    }

    /// Whether a queue of a port may be taken from; `fits`: the room is enough for a frame.
    pub(crate) fn admit(
        &mut self,
        (port, queue): (PortId, usize),
        (room, fits): (Room, bool),
        now: Nanos,
    ) -> bool {
        self.most = self.most.max(room.bytes);
        self.is_short = room.bytes < self.most / 2;
        if !self.is_short {
            self.full = None;
            return true;
        }
        let (lowest, Some(sender)) = (self.tag, self.sender(port)) else { return true };
        if !sender.is_waiting(now) {
            (sender.tag, sender.backlogged) = (sender.tag.max(lowest), 0);
        }
        sender.backlogged |= 1 << (queue % 64);
        sender.asked_at = now;
        let tag = sender.tag;
        if !fits {
            let (mut since, before) = self.full.unwrap_or((now, room));
            if room.waiting < before.waiting || room.bytes > before.bytes {
                since = now;
            }
            self.full = Some((since, room));
            return now.since(since) >= STOPPED;
        }
        self.full = None;
        let is_first = self.senders.iter().all(|it| it.tag >= tag || !it.is_waiting(now));
        if is_first {
            self.tag = tag;
        }
        is_first
    }

    /// Records that a port's queue, which was let through, had no frames for this one.
    pub(crate) fn leave(&mut self, (port, queue): (PortId, usize)) {
        self.sender(port).into_iter().for_each(|it| it.backlogged &= !(1 << (queue % 64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guests that sent from many queues at once filled an uplink so far that all were let in while
    /// that drained.
    #[test]
    fn an_uplink_that_still_sends_has_not_stopped() {
        let (mut weights, asks) = (Weights::default(), (PortId(1), 0));
        let room = |bytes, waiting| Room { buffers: 0, bytes, waiting };
        let mut admit = |ms: u64, room| weights.admit(asks, (room, false), Nanos(ms * 1_000_000));
        assert!(admit(0, room(1 << 20, 0)), "nothing waits");
        let mut waiting = 4_000_000;
        for ms in 1..100 {
            waiting -= 12_500;
            assert!(!admit(ms, room(0, waiting)), "{ms} ms");
        }
        assert!((100..109).all(|ms| !admit(ms, room(0, waiting))));
        assert!(admit(109, room(0, waiting)));
        assert!(admit(110, room(1 << 20, 0)), "it has gone on");
        assert!(!admit(500, room(0, 9_000_000)), "that it was full before says nothing");
        let refilled = |ms: u64| room(0, if ms.is_multiple_of(2) { 8_000_000 } else { 9_000_000 });
        assert!((501..600).all(|ms| !admit(ms, refilled(ms))), "it sends, and is filled again");
    }
}
