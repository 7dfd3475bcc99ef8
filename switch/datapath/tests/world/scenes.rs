//! Attacks that take more than a frame: what each measures stands beside it.

use super::accounting::sleeps;
use super::attack::{Paced, nothing, train};
use super::frames::{From, Segment, Tag, To, clean, mac};
use super::hostile::{Hostile, Range};
use super::{
    GUARDED, GUEST, HOSTILE, MEMORY_64K, MEMORY_9000, RATE, RATED, RECEIVER, RESTARTING, TO_ABSENT,
    TRUNK, TRUNK_GUEST, VLAN_10, World, modern,
};
use datapath::DropReason;
use ports::Nanos;
use ports::vhost::{Features, State};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use rustix::thread::gettid;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Tries until a bound of processor time holds, each held to the best so far: what others do to the
/// caches passes, a fault stays.
const TRIES: usize = 12;

/// How much dearer a burst to a receiver of small pieces may be than one to a victim.
const DEARER: u32 = 25;
const SPARE: Duration = Duration::from_micros(300);

/// How much dearer a burst of trains in many pieces may be than of trains in one.
const SCATTERED: u32 = 4;
const SPARE_OF_TRAINS: Duration = Duration::from_micros(500);
/// Time that may be spent on each piece: also those of refused frames are read once.
const PIECE: Duration = Duration::from_nanos(250);

/// Commands of a control queue that may be served while one status or answer is waited for.
const MOST_COMMANDS: u64 = 10_000;
/// A lock that two threads keep taking may hold up a call so long by chance, but not several
/// of 220.
const HELD_UP: u64 = 4;

impl World {
    /// Returns an attacker that has sent a frame: front ends that come and go without one have to
    /// wait.
    pub(crate) fn attacker(&mut self, number: usize, features: Features) -> Hostile {
        let mut attacker = Hostile::new(self.connect(number, features));
        let hello = clean([0xff; 6], mac(number as u8), None, 0, 60);
        let range = attacker.place(&[&[0; 12][..], &hello].concat());
        attacker.send(&[range], false);
        let _ = self.step();
        attacker
    }

    /// Checks that a receiver of small pieces costs its senders little more than another one.
    pub(crate) fn slow_receiver(&mut self, pieces: u16, bytes: u8) {
        let running = |world: &World| world.sessions[&RECEIVER].status().state == State::Running;
        if self.receiver.is_none() || !running(self) {
            self.receiver = None;
            self.receiver = Some(self.attacker(RECEIVER, modern()));
        }
        let mut best = [Duration::MAX; 2];
        let mut holds = false;
        for _ in 0..TRIES {
            if let Some(receiver) = &mut self.receiver {
                receiver.receive_in_pieces(pieces, bytes);
            }
            for (best, to) in best.iter_mut().zip([RECEIVER, MEMORY_9000]) {
                *best = self.cost_of_burst(to).min(*best);
            }
            holds = best[0] <= best[1] * DEARER + SPARE;
            if holds {
                break;
            }
        }
        let [slow, usual] = best;
        assert!(
            holds,
            "FINDING (receiver): a burst to it takes {slow:?}, to a victim {usual:?}: {}",
            self.doing
        );
    }

    /// Checks that a burst of a train in many pieces costs little more than in one piece.
    pub(crate) fn scattered(&mut self, pieces: &[Range], whole: Range, hostile: &mut Hostile) {
        const TRAINS: u32 = 8;
        let visits = TRAINS * u32::try_from(pieces.len()).unwrap();
        let mut best = [Duration::MAX; 2];
        let mut holds = false;
        for _ in 0..TRIES {
            for (best, ranges) in best.iter_mut().zip([pieces, &[whole]]) {
                self.run_dry();
                (0..TRAINS).for_each(|_| hostile.send(ranges, true));
                *best = (0..4).map(|_| self.step().cpu).sum::<Duration>().min(*best);
            }
            holds = best[0] <= best[1] * SCATTERED + SPARE_OF_TRAINS + PIECE * visits;
            if holds {
                break;
            }
        }
        let [scattered, usual] = best;
        assert!(
            holds,
            "FINDING (pieces): {} of them take {scattered:?}, one {usual:?}: {}",
            pieces.len(),
            self.doing
        );
    }

    fn cost_of_burst(&mut self, to: usize) -> Duration {
        for _ in 0..64 {
            let _ = self.send_clean(MEMORY_64K, to, 1514);
        }
        (0..4).map(|_| self.step().cpu).sum()
    }

    /// An access port may send untagged and priority-tagged frames with nothing behind the tag;
    /// each other one is refused, whatever came before it.
    pub(crate) fn run_of_tags(
        &mut self,
        to: u8,
        tags: &[(Option<Tag>, Option<Tag>)],
        hostile: &mut Hostile,
    ) {
        let refused = |(outer, inner): &(Option<Tag>, Option<Tag>)| match (outer, inner) {
            (Some(outer), inner) => outer.is_old() || outer.vlan() != 0 || inner.is_some(),
            (None, inner) => inner.is_some_and(|inner| inner.is_old() || inner.vlan() != 0),
        };
        let tags = tags.get(..64).unwrap_or(tags);
        self.run_dry();
        let before = self.switch.counters(self.ports[HOSTILE]).unwrap();
        for (outer, inner) in tags {
            let addresses = [&[0; 12][..], &To::Victim(to).mac(), &mac(HOSTILE as u8)].concat();
            let both = [*outer, *inner].into_iter().flatten().flat_map(Tag::any_bytes).collect();
            let range = hostile.place(&[addresses, both, vec![0x88, 0xb6], vec![0; 46]].concat());
            hostile.send(&[range], false);
        }
        self.run_dry();
        let after = self.switch.counters(self.ports[HOSTILE]).unwrap();
        if self.sent.unknown || after.ingress_frames - before.ingress_frames != tags.len() as u64 {
            return;
        }
        let place = DropReason::VlanNotAllowed as usize;
        let seen = after.drops[place] - before.drops[place];
        let wanted = tags.iter().filter(|tags| refused(tags)).count() as u64;
        assert!(seen == wanted, "FINDING (VLAN): {seen} refused of {wanted}: {}", self.doing);
    }

    /// Checks that the session reports its status, and answers its front end, while the guest
    /// refills a control queue.
    pub(crate) fn refill_control(&mut self, hostile: &mut Hostile) {
        self.status_beside_a_turn();
        let asleep = self.watch.probe();
        let Some(refill) = hostile.start_control() else { return };
        let (stop, served) = (refill.stop.clone(), refill.served.clone());
        let pause = refill.pause.clone();
        let held_up = Arc::new(AtomicU64::new(0));
        // Calls that have returned.
        let calls = Arc::new(AtomicU64::new(0));
        let (noted, returned) = (held_up.clone(), calls.clone());
        let observer = std::thread::spawn(move || {
            // Seen asleep in a call, and still in it so many commands later.
            let (mut start, mut call) = (0, None);
            while !stop.load(Ordering::Acquire) {
                let before = returned.load(Ordering::Acquire);
                let now = served.load(Ordering::Acquire);
                let same_call = || returned.load(Ordering::Acquire) == before;
                let sleeping = (asleep() && same_call()).then_some(before);
                if sleeping.is_none() || sleeping != call {
                    start = now;
                }
                call = sleeping;
                if now - start > MOST_COMMANDS && !pause.swap(true, Ordering::AcqRel) {
                    noted.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        for number in 0..220 {
            match number % 11 {
                10 => hostile.settle(),
                _ => drop(self.sessions[&HOSTILE].status()),
            }
            calls.fetch_add(1, Ordering::AcqRel);
            refill.pause.store(false, Ordering::Release);
        }
        drop(refill);
        let _ = observer.join();
        let held_up = held_up.load(Ordering::Acquire);
        assert!(
            held_up < HELD_UP,
            "FINDING (control queue): {held_up} calls waited while {MOST_COMMANDS} commands were served"
        );
    }

    /// Checks that a status is available while a worker uses a ring, for as long as a guest likes.
    fn status_beside_a_turn(&self) {
        let session = &self.sessions[&GUEST];
        let (receiving, _) = session.pair(0).unwrap();
        let asker_id = AtomicI32::new(0);
        std::thread::scope(|scope| {
            receiving.with(|_| {
                let asker = scope.spawn(|| {
                    asker_id.store(gettid().as_raw_nonzero().get(), Ordering::Release);
                    session.status();
                });
                let mut asleep = 0;
                while !asker.is_finished() && asleep < 100 {
                    std::thread::sleep(Duration::from_millis(1));
                    let thread = asker_id.load(Ordering::Acquire);
                    asleep = if thread > 0 && sleeps(thread) { asleep + 1 } else { 0 };
                }
                let finished = asker.is_finished();
                assert!(finished, "FINDING (status): it waits for a ring that is in use");
            })
        });
    }

    /// Checks that a rate limit passes its rate, its burst, and one frame of any size.
    pub(crate) fn rated(&mut self, frames: &[Paced]) {
        self.rated_bytes = 0;
        let start = self.now;
        self.now = self.now + Nanos(1_000_000);
        for paced in frames.iter().take(40) {
            self.now = self.now + Nanos(1_000 * u64::from(paced.gap));
            let (vnet, bytes) = match paced.train {
                true => train(MEMORY_64K, 19_999).build(RATED as u8, 0),
                false => (nothing(), clean(mac(MEMORY_64K as u8), mac(RATED as u8), None, 0, 1000)),
            };
            let _ = self.peers[&RATED].send(vnet, &bytes);
            let _ = self.step_at(self.now);
            let back = Nanos(self.now.0 - 10_000 * u64::from(paced.back));
            let _ = self.peers[&RATED]
                .send(nothing(), &clean(mac(MEMORY_64K as u8), mac(RATED as u8), None, 0, 60));
            let _ = self.step_at(back);
        }
        let elapsed = self.now.since(start).0;
        let allowed =
            RATE.burst_bytes + elapsed * (RATE.bits_per_second / 8) / 1_000_000_000 + 21_000;
        let passed = self.rated_bytes;
        assert!(
            passed <= allowed,
            "FINDING (rate): {passed} bytes passed, {allowed} may: {}",
            self.doing
        );
        // The frames that wait for the rate must not arrive in another scene.
        for _ in 0..100 {
            self.now = self.now + Nanos(2_000_000);
            let _ = self.step_at(self.now);
        }
    }

    /// Segments of one flow in VLAN 10; see `judge`.
    pub(crate) fn outside(&mut self, tagged: bool, segments: &[Segment]) {
        let to = if tagged { TRUNK_GUEST } else { VLAN_10 };
        let mut sequence = 1000;
        for segment in segments.iter().take(16) {
            self.sent.segments.push((sequence, *segment));
            let _ = self.peers[&TRUNK].send(nothing(), &segment.build(sequence, to));
            sequence += segment.len();
        }
        let _ = self.step();
        self.sent.segments.clear();
    }

    /// What a guarded port sends from other addresses than the first is held against the table.
    pub(crate) fn guarded(&mut self, sources: &[u16]) {
        for source in sources.iter().take(64) {
            let source = From::Random(*source).mac(0);
            let frame = clean(mac(MEMORY_64K as u8), source, None, 0, 60);
            let _ = self.peers[&GUARDED].send(nothing(), &frame);
        }
        self.steps(2);
        self.check_addresses();
    }

    /// Checks that frames to an absent address cost no allocation after the first ones, neither per
    /// frame nor per burst.
    pub(crate) fn absent(&mut self, count: u8) {
        for burst in [usize::from(count) + 1, 1] {
            let mut allocations = 0;
            for round in 0..16 {
                for _ in 0..burst {
                    let _ = self.send_clean(TO_ABSENT, super::ABSENT, 60);
                }
                let cost = self.step();
                allocations += if round > 2 { cost.allocations } else { 0 };
            }
            assert!(
                allocations <= 8,
                "FINDING (absent guest): {allocations} allocations for bursts of {burst} frames"
            );
        }
    }

    /// Checks that a ring that is stopped and started again, or kicked by another descriptor,
    /// resumes where it was.
    pub(crate) fn restart(
        &mut self,
        (packed, in_order): (bool, bool),
        count: usize,
        pieces: u8,
        stop: bool,
    ) {
        let mut features = Features::VERSION_1 | Features::MRG_RXBUF;
        features.set(Features::RING_PACKED, packed);
        features.set(Features::IN_ORDER, in_order);
        let guest = self.connect(RESTARTING, features);
        self.guests.insert(RESTARTING, guest);
        let len = 60 + 4096 * usize::from(pieces % 3);
        for _ in 0..count {
            self.must_arrive(len);
        }
        let guest = self.guests.get_mut(&RESTARTING).unwrap();
        let mut told = Vec::new();
        if stop {
            let base = guest.stop(1).unwrap();
            told = [1, base].map(u32::to_le_bytes).concat();
        }
        let mut guest = Hostile::new(self.guests.remove(&RESTARTING).unwrap());
        if stop {
            guest.say(10, false, &told, &[]);
        }
        let kick = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        guest.say(12, false, &1_u64.to_le_bytes(), &[kick.as_fd()]);
        guest.settle();
        self.guests.insert(RESTARTING, guest.guest);
        (0..2).for_each(|_| self.must_arrive(60));
        self.guests.remove(&RESTARTING);
    }

    fn must_arrive(&mut self, len: usize) {
        let round = self.send_clean(RESTARTING, MEMORY_64K, len);
        self.until_arrived(&[(RESTARTING, MEMORY_64K, round)]);
        let numbered = |arrived: &(usize, u32)| arrived.0 == MEMORY_64K && arrived.1 > 0;
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.retain(numbered);
        assert!(
            arrived == [(MEMORY_64K, round)],
            "FINDING (restart): {arrived:?} instead of round {round}: {}",
            self.doing
        );
    }
}
