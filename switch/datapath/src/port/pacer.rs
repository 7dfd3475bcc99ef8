//! The pacer of what a port receives (`rate-to`): frames above the rate wait, and are dropped where
//! too many wait.
//!
//! What a port receives has many senders, which cannot all wait for one receiver. So frames wait
//! here, in a copy, ready for the port's egress queue. Without a wait TCP gets a fraction of the
//! rate: between ports of one host, a window at the rate is less than a segment, which no sender can
//! halve. [Pacing](crate::stage::pace) puts frames in and takes them out, as private copies: the
//! pacer's lock is not held while a guest's memory is touched.

use crate::port::bucket::Bucket;
use crate::settings::PortId;
use ports::{Nanos, Offloads, Outgoing, Slice};
use std::collections::VecDeque;
use wire::vnet::VnetHeader;

/// The bucket in time at the rate. The rate and this are never more than 102 % of a second's.
const DEPTH: Nanos = Nanos(16_000_000);
/// The least that it holds, in bytes: two frames.
const LEAST: u64 = 3_036;
/// The time at the rate for which frames may wait, and the bounds of their bytes.
const WAIT: Nanos = Nanos(20_000_000);
const ROOM: std::ops::RangeInclusive<u64> = 96 * 1024..=16 * 1024 * 1024;
/// What a frame takes of the room at least, so that small ones, and the list of all, are bounded.
const SMALLEST: usize = 128;
/// Most bytes and frames that are released in one call of an egress queue.
const BATCH: (usize, usize) = (64 * 1024, 64);
/// The least and the most between two looks at what waits: the rate may change before a long debt is
/// paid.
const PAUSE: Nanos = Nanos(250_000);
const LONGEST: Nanos = Nanos(100_000_000);

/// A frame that waits.
#[derive(Clone, Copy)]
struct Waiting {
    /// The egress queue it is for.
    queue: usize,
    vnet: VnetHeader,
    /// What the port took when the frame was fitted.
    offloads: Offloads,
    /// Where its bytes are.
    at: usize,
    len: usize,
    /// How many of them are its header.
    header: usize,
}

impl Waiting {
    fn room(&self) -> usize {
        room_of(self.len)
    }
}

/// Returns what a frame of this length takes of the room.
fn room_of(len: usize) -> usize {
    len.max(SMALLEST)
}

/// A private copy of a frame.
pub(crate) struct Copied<'p> {
    pub(crate) vnet: VnetHeader,
    /// What the port took when the frame was fitted.
    pub(crate) offloads: Offloads,
    pub(crate) header: &'p [u8],
    pub(crate) payload: &'p [u8],
}

impl<'p> Copied<'p> {
    /// Returns the frame as an egress queue takes it; `payload` is [`Copied::payload`].
    #[allow(clippy::cast_possible_truncation, reason = "the room is 16 MiB")]
    pub(crate) fn outgoing(&self, payload: &'p [Slice<'p>]) -> Outgoing<'p> {
        let len = (self.header.len() + self.payload.len()) as u32;
        Outgoing { vnet: self.vnet, header: self.header, payload, len }
    }
}

/// Private copies of frames, in order: on their way into a pacer or out of it.
#[derive(Default)]
pub(crate) struct Copies {
    bytes: Vec<u8>,
    /// Virtio header, offloads as in [`Copied`], bytes of the header, and of the whole frame.
    frames: Vec<(VnetHeader, Offloads, usize, usize)>,
}

impl Copies {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    /// Copies frames that were fitted for these offloads, as far as they fit into so many bytes of
    /// a pacer's room.
    pub(crate) fn gather(&mut self, frames: &[Outgoing<'_>], offloads: Offloads, room: usize) {
        self.clear();
        let mut left = room;
        for frame in frames {
            let Some(rest) = left.checked_sub(room_of(frame.len as usize)) else { break };
            left = rest;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(frame.header);
            frame.payload.iter().for_each(|piece| piece.append_to(&mut self.bytes));
            let len = self.bytes.len() - start;
            self.frames.push((frame.vnet, offloads, frame.header.len(), len));
        }
    }

    fn push(&mut self, frame: &Copied<'_>) {
        let header = frame.header.len();
        self.frames.push((frame.vnet, frame.offloads, header, header + frame.payload.len()));
        self.bytes.extend_from_slice(frame.header);
        self.bytes.extend_from_slice(frame.payload);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Copied<'_>> {
        let mut rest = self.bytes.as_slice();
        self.frames.iter().map(move |(vnet, offloads, header, len)| {
            let (frame, others) = rest.split_at_checked(*len).unwrap_or_default();
            rest = others;
            let (header, payload) = frame.split_at_checked(*header).unwrap_or_default();
            Copied { vnet: *vnet, offloads: *offloads, header, payload }
        })
    }
}

/// A port at which a worker left frames waiting.
pub(crate) struct Paced {
    pub(crate) port: PortId,
    /// When to look at them.
    pub(crate) at: Nanos,
}

/// Limits what a port receives.
pub(crate) struct Pacer {
    bucket: Bucket,
    /// The room of those that wait, in bytes.
    room: usize,
    /// How much of it they take.
    taken: usize,
    /// Whether there is a rate.
    limits: bool,
    /// The number of the guest that they are for.
    guest: u64,
    waiting: VecDeque<Waiting>,
    /// Their bytes, those of each frame side by side: a ring, allocated when the first one waits.
    bytes: Vec<u8>,
    /// The end of the newest frame.
    tail: usize,
    /// Whether a worker is delivering the frames that it took out last: until it is done, no others
    /// leave, which would overtake them.
    is_leaving: bool,
    /// Frames discarded since a worker last counted them.
    discarded: usize,
    /// Whether this is a rehearsal's: nothing waits for its time.
    rehearses: bool,
}

impl Pacer {
    pub(crate) fn new(bits_per_second: u64) -> Pacer {
        let mut pacer = Pacer::empty(Bucket::new(0, 0));
        pacer.set_rate(Some(bits_per_second));
        pacer
    }

    /// Returns a pacer without room, at which nothing waits.
    fn empty(bucket: Bucket) -> Pacer {
        Pacer {
            bucket,
            room: 0,
            taken: 0,
            is_leaving: false,
            limits: true,
            guest: 0,
            waiting: VecDeque::new(),
            bytes: Vec::new(),
            tail: 0,
            discarded: 0,
            rehearses: false,
        }
    }

    /// Changes the rate, and with it the room: the newest frames are discarded that it has not.
    /// Without a rate, what waits leaves at once.
    pub(crate) fn set_rate(&mut self, bits_per_second: Option<u64>) {
        let bits = bits_per_second.unwrap_or(u64::MAX);
        let in_time = |time: Nanos| {
            let bits = u128::from(bits) * u128::from(time.0) / u128::from(Nanos::SECOND.0);
            u64::try_from(bits).unwrap_or(u64::MAX)
        };
        self.bucket = Bucket::new(bits, in_time(DEPTH).max(8 * LEAST));
        let room = (in_time(WAIT) / 8).clamp(*ROOM.start(), *ROOM.end());
        self.limits = bits_per_second.is_some();
        if self.limits {
            self.room = usize::try_from(room).unwrap_or(usize::MAX);
            self.fit();
        }
    }

    /// Copies what waits into a ring of the room that there is now.
    fn fit(&mut self) {
        if self.waiting.is_empty() || self.bytes.len() == self.room {
            return;
        }
        let old = std::mem::replace(&mut self.bytes, vec![0; self.room]);
        (self.tail, self.taken) = (0, 0);
        let (room, tail) = (&mut self.bytes, &mut self.tail);
        let fits = |frame: &mut Waiting| {
            let [from, to] = [frame.at, *tail].map(|at| at..at + frame.len);
            let end = *tail + frame.room();
            if end > room.len() {
                return false;
            }
            if let (Some(from), Some(to)) = (old.get(from), room.get_mut(to)) {
                to.copy_from_slice(from);
            }
            (frame.at, *tail) = (*tail, end);
            true
        };
        let keeping = self.waiting.iter_mut().map(fits).take_while(|fits| *fits).count();
        self.discarded += self.waiting.len() - keeping;
        self.waiting.truncate(keeping);
        self.taken = self.tail;
    }

    /// Returns an empty copy with the room that is left, for a rehearsal.
    pub(crate) fn rehearsal(&self) -> Pacer {
        Pacer {
            room: self.room.saturating_sub(self.taken),
            limits: self.limits,
            guest: self.guest,
            rehearses: true,
            ..Pacer::empty(self.bucket.clone())
        }
    }

    /// Adds the tokens earned since the last refill.
    pub(crate) fn refill(&mut self, now: Nanos) {
        self.bucket.refill(now);
    }

    /// Takes the tokens of frames that need not wait. Returns how many those are, the first ones.
    pub(crate) fn pass(&mut self, frames: &[Outgoing<'_>]) -> usize {
        if !self.waiting.is_empty() || self.is_leaving {
            return 0;
        }
        frames.iter().take_while(|frame| self.bucket.take(8 * u64::from(frame.len))).count()
    }

    /// Returns how many bytes of frames may wait beside those that do.
    pub(crate) fn free(&self) -> usize {
        self.room.saturating_sub(self.taken)
    }

    /// Lets a frame wait for the egress queue of this number. Returns `false` if there is no room.
    pub(crate) fn wait(&mut self, frame: &Copied<'_>, queue: usize) -> bool {
        let Copied { vnet, offloads, header, payload } = *frame;
        let (len, header_len) = (header.len() + payload.len(), header.len());
        let room_taken = room_of(len);
        let Some(at) = self.place(room_taken) else { return false };
        let room = self.bytes.get_mut(at..at + len).unwrap_or_default();
        if let Some((to_header, to_payload)) = room.split_at_mut_checked(header_len) {
            to_header.copy_from_slice(header);
            to_payload.copy_from_slice(payload);
        }
        self.tail = at + room_taken;
        self.taken += room_taken;
        self.waiting.push_back(Waiting { queue, vnet, offloads, at, len, header: header_len });
        true
    }

    /// Returns where so many bytes are free behind the newest frame.
    fn place(&mut self, len: usize) -> Option<usize> {
        let Some(oldest) = self.waiting.front() else {
            if self.bytes.len() != self.room {
                self.bytes = vec![0; self.room];
            }
            return (len <= self.room).then_some(0);
        };
        let (head, tail, end) = (oldest.at, self.tail, self.bytes.len());
        if tail <= head {
            return (tail + len <= head).then_some(tail);
        }
        let from_start = (len <= head).then_some(0);
        if tail + len <= end { Some(tail) } else { from_start }
    }

    /// Takes the oldest frames for one egress queue whose time has come, and their tokens. Returns
    /// that queue's number; the caller delivers the frames and calls [`Pacer::has_left`]. `None` if
    /// there are none, or others are leaving.
    pub(crate) fn take_due(&mut self, out: &mut Copies) -> Option<usize> {
        let (queue, count) = self.due()?;
        out.clear();
        self.oldest(count).for_each(|frame| out.push(&frame));
        self.remove(count);
        self.is_leaving = true;
        Some(queue)
    }

    /// Notes that the frames that were taken out last are delivered.
    pub(crate) fn has_left(&mut self) {
        self.is_leaving = false;
    }

    /// Takes the tokens of the oldest frames for one egress queue whose time has come. Returns that
    /// queue's number and how many they are.
    fn due(&mut self) -> Option<(usize, usize)> {
        if self.is_leaving {
            return None;
        }
        let Pacer { bucket, waiting, rehearses, .. } = self;
        let queue = waiting.front()?.queue;
        let (most, mut bytes) = (BATCH.1, 0);
        let is_due = |frame: &&Waiting| {
            let is_next = frame.queue == queue && bytes < BATCH.0;
            bytes += frame.len;
            is_next && (*rehearses || bucket.take(8 * frame.len as u64))
        };
        let count = waiting.iter().take(most).take_while(is_due).count();
        (count > 0).then_some((queue, count))
    }

    /// Returns the oldest frames.
    fn oldest(&self, count: usize) -> impl Iterator<Item = Copied<'_>> {
        self.waiting.iter().take(count).map(|frame| {
            let bytes = self.bytes.get(frame.at..frame.at + frame.len).unwrap_or_default();
            let (header, payload) = bytes.split_at_checked(frame.header).unwrap_or_default();
            Copied { vnet: frame.vnet, offloads: frame.offloads, header, payload }
        })
    }

    /// Removes the oldest frames.
    fn remove(&mut self, count: usize) {
        let gone = self.waiting.drain(..count.min(self.waiting.len()));
        self.taken -= gone.map(|frame| frame.room()).sum::<usize>();
        if self.waiting.is_empty() && !self.limits {
            (self.bytes, self.waiting) = Default::default();
        }
    }

    /// Returns how long to wait until the next look at the frames; `None` if none waits.
    pub(crate) fn pause(&self) -> Option<Nanos> {
        let next = self.waiting.front()?;
        if self.is_leaving {
            return Some(PAUSE);
        }
        Some(self.bucket.time_until(8 * next.len as u64).clamp(PAUSE, LONGEST))
    }

    /// Whether this is a rehearsal's, in which no time passes.
    pub(crate) fn rehearses(&self) -> bool {
        self.rehearses
    }

    /// Discards what waits: it passed by settings that are no longer in force.
    pub(crate) fn discard(&mut self) {
        self.discarded += self.waiting.len();
        self.waiting.clear();
        self.taken = 0;
    }

    /// Discards what waits for another guest than this.
    pub(crate) fn serve(&mut self, guest: u64) {
        if self.guest != guest {
            self.discard();
            self.guest = guest;
        }
    }

    /// Returns how many frames were discarded since the last call.
    pub(crate) fn take_discarded(&mut self) -> usize {
        std::mem::take(&mut self.discarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::Burst;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A sender, a pacer, and a worker that looks at it.
    struct Port {
        pacer: Pacer,
        looks_at: Option<u64>,
        /// When each frame of which number and length left.
        left: Vec<(u64, u32, usize)>,
        dropped: usize,
        sent: u32,
        looks: u64,
    }

    impl Port {
        fn new(bits: u64) -> Port {
            Port {
                pacer: Pacer::new(bits),
                looks_at: None,
                left: Vec::new(),
                dropped: 0,
                sent: 0,
                looks: 0,
            }
        }

        /// Sends frames of these lengths in one list.
        fn send(&mut self, now: u64, lengths: &[usize]) {
            let mut frames = Vec::new();
            for len in lengths {
                self.sent += 1;
                let mut bytes = self.sent.to_be_bytes().to_vec();
                bytes.resize(*len, 0);
                frames.push(bytes);
            }
            let payloads: Vec<_> = frames.iter().map(|frame| [Slice::from(&frame[20..])]).collect();
            let outgoing = frames.iter().zip(&payloads).map(|(frame, payload)| Outgoing {
                vnet: VnetHeader::default(),
                header: &frame[..20],
                payload,
                len: u32::try_from(frame.len()).unwrap(),
            });
            let outgoing: Vec<_> = outgoing.collect();
            self.pacer.refill(Nanos(now));
            let passing = self.pacer.pass(&outgoing);
            for frame in &outgoing[..passing] {
                self.leaves(now, frame.header, frame.len as usize);
            }
            let mut copies = Copies::default();
            copies.gather(&outgoing[passing..], Offloads::empty(), self.pacer.free());
            let waits = copies.iter().filter(|frame| self.pacer.wait(frame, 0)).count();
            self.dropped += outgoing.len() - passing - waits;
            if let Some(pause) = self.pacer.pause()
                && self.looks_at.is_none()
            {
                self.looks_at = Some(now + pause.0);
            }
        }

        fn leaves(&mut self, now: u64, header: &[u8], len: usize) {
            let number = u32::from_be_bytes(*header.first_chunk().unwrap());
            self.left.push((now, number, len));
        }

        fn look(&mut self, now: u64) {
            self.looks += 1;
            self.pacer.refill(Nanos(now));
            let mut copies = Copies::default();
            while self.pacer.take_due(&mut copies).is_some() {
                let size = |frame: &Copied<'_>| frame.header.len() + frame.payload.len();
                copies.iter().for_each(|frame| self.leaves(now, frame.header, size(&frame)));
                assert!(self.pacer.pass(&[]) == 0 && self.pacer.due().is_none());
                self.pacer.has_left();
            }
            self.looks_at = self.pacer.pause().map(|pause| now + pause.0);
        }

        /// Sends frames of these lengths in turn, at a part of the rate, until the time. The worker
        /// is as late as `late` says in turn.
        fn run(&mut self, until: u64, bits: u64, lengths: &[usize], late: &[u64]) {
            let (mut now, mut step) = (0, 0);
            while now < until {
                let len = lengths[step % lengths.len()];
                let late = late[step % late.len()];
                while let Some(at) = self.looks_at.filter(|at| at + late <= now) {
                    self.look(at + late);
                }
                self.send(now, &[len]);
                now += (len as u64 * 8_000_000_000 / bits).max(1);
                step += 1;
            }
        }

        /// Returns the most bytes that left within any second.
        fn most_in_a_second(&self) -> u64 {
            let (mut first, mut sum, mut most) = (0, 0, 0);
            for (at, _, len) in &self.left {
                sum += *len as u64;
                while self.left[first].0 + Nanos::SECOND.0 <= *at {
                    sum -= self.left[first].2 as u64;
                    first += 1;
                }
                most = most.max(sum);
            }
            most
        }

        fn is_in_order(&self) -> bool {
            self.left.is_sorted_by(|one, next| one.1 < next.1)
        }
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        vec(prop_oneof![Just(65_549usize), Just(1514), 600..65_549usize], 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Offered more, a port gets its rate, and in no second more than 102 % of it, in order,
        /// although the worker looks late.
        #[test]
        fn a_port_offered_more_gets_its_rate_and_no_more(
            mbit in prop_oneof![50..200u64, 200..10_000u64],
            lengths in lengths(),
            tenths in 12..40u64,
            late in vec(0..2_000_000u64, 1..20),
        ) {
            let bits = mbit * 1_000_000;
            let mut port = Port::new(bits);
            port.run(2 * Nanos::SECOND.0, bits * tenths / 10, &lengths, &late);
            let passed: u64 = port.left.iter().map(|(_, _, len)| *len as u64).sum();
            let (share, most) = (passed * 500 / (bits / 8), port.most_in_a_second() * 1000 / (bits / 8));
            prop_assert!((980..=1020).contains(&share), "{share} thousandths");
            prop_assert!(most <= 1020, "{most} thousandths in one second");
            prop_assert!(port.is_in_order());
            prop_assert!(port.looks <= 2 * Nanos::SECOND.0 / PAUSE.0 + 1);
        }

        /// A port below its rate loses nothing, trains included.
        #[test]
        fn a_port_below_its_rate_loses_nothing(
            mbit in 50..10_000u64,
            lengths in lengths(),
            late in vec(0..2_000_000u64, 1..20),
        ) {
            let bits = mbit * 1_000_000;
            let mut port = Port::new(bits);
            port.run(Nanos::SECOND.0, bits * 98 / 100, &lengths, &late);
            prop_assert_eq!(port.dropped, 0);
            prop_assert!(port.is_in_order());
        }

        /// However frames come and go, each leaves as it came, in order, or is dropped; the bytes
        /// that wait never exceed their room.
        #[test]
        fn what_waits_is_bounded_and_leaves_as_it_came(
            mbit in 1..2_000u64,
            steps in vec((0..30_000_000u64, vec(prop_oneof![24..100usize, 24..Burst::LARGEST_FRAME], 1..30)), 1..60),
        ) {
            let mut port = Port::new(mbit * 1_000_000);
            let (mut now, room) = (0, port.pacer.room);
            for (pause, lengths) in steps {
                now += pause;
                if port.looks_at.is_some_and(|at| at <= now) {
                    port.look(now);
                }
                port.send(now, &lengths);
                prop_assert!(port.pacer.bytes.len() <= room);
                prop_assert!(port.pacer.waiting.len() <= room / SMALLEST);
                let taken = port.pacer.waiting.iter().map(Waiting::room);
                prop_assert_eq!(port.pacer.taken, taken.sum::<usize>());
            }
            while let Some(at) = port.looks_at {
                port.look(at);
            }
            prop_assert_eq!(port.left.len() + port.dropped, port.sent as usize);
            prop_assert!(port.is_in_order());
        }
    }

    #[test]
    fn the_room_is_twenty_milliseconds_within_bounds() {
        let rooms =
            [1_000, 50_000_000, 1_000_000_000, 100_000_000_000].map(|bits| Pacer::new(bits).room);
        assert_eq!(rooms, [96 << 10, 125_000, 2_500_000, 16 << 20]);
    }

    #[test]
    fn without_a_rate_any_longer_what_waits_leaves_at_once() {
        let mut port = Port::new(50_000_000);
        port.send(1, &[1514; 80]);
        assert!(port.left.len() < 80 && port.dropped == 0);
        port.pacer.set_rate(None);
        port.look(2);
        assert_eq!(port.left.len(), 80);
        port.send(3, &[1514; 80]);
        assert_eq!((port.left.len(), port.pacer.pause()), (160, None));
        assert!(port.pacer.bytes.is_empty(), "the ring is given back");
    }

    /// What waited at 10 Gbit stayed before a port of 50 Mbit: seconds of it.
    #[test]
    fn a_lower_rate_has_less_room_and_keeps_what_came_first() {
        let mut port = Port::new(10_000_000_000);
        (0..80).for_each(|_| port.send(1, &[60_000; 10]));
        let waiting = port.pacer.waiting.len();
        port.pacer.set_rate(Some(50_000_000));
        assert_eq!((port.pacer.waiting.len(), port.pacer.bytes.len()), (2, 125_000));
        assert_eq!(port.pacer.take_discarded(), waiting - 2);
        let first = port.left.len();
        while let Some(at) = port.looks_at {
            port.look(at.max(1_000_000_000));
        }
        assert!(port.is_in_order() && port.left.len() == first + 2);
        port.send(2_000_000_000, &[1514; 80]);
        assert!(port.is_in_order() && port.pacer.discarded == 0);
    }

    #[test]
    fn what_waits_for_a_guest_is_for_no_other() {
        let mut port = Port::new(50_000_000);
        port.send(1, &[1514; 80]);
        port.pacer.serve(0);
        assert!(port.pacer.pause().is_some());
        port.pacer.serve(1);
        assert_eq!(port.pacer.pause(), None);
        assert!(port.pacer.take_discarded() > 0);
    }

    #[test]
    fn what_is_discarded_is_counted_once() {
        let mut port = Port::new(50_000_000);
        port.send(1, &[1514; 80]);
        let waited = port.pacer.waiting.len();
        port.pacer.discard();
        assert_eq!([port.pacer.take_discarded(), port.pacer.take_discarded()], [waited, 0]);
        assert_eq!(port.pacer.pause(), None);
    }
}
