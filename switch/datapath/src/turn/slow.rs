//! The time that the kernel takes for a guest's memory, and which port pays for it.
//!
//! A page that a guest has never touched, or has given back, costs the worker that touches it a page
//! fault: half a microsecond, and a hundred times that if the page is huge. Guests choose when.
//!
//! * A **sender** pays for its own memory: taking touches all of it, so the CPU time of a slow take
//!   is charged to the sender's account, several times.
//! * A **receiver** pays for its own: the CPU time of a slow delivery is its debt at this worker.
//!   Debts are paid like those of accounts, a quantum a round. Beyond a credit its frames are dropped
//!   as `work_limit`. Its senders pay what other receivers would have cost them, unless they were
//!   slow themselves lately.
//!
//! Clocks are read where a burst is long enough not to notice. If a turn was slow and the part that
//! was is not known, the worker is *alert* for a while and measures each part of each turn. Taking
//! and delivering end when their time is over. The time of a port that was found slow is *watched* for
//! a while: looked at before every frame and piece instead of every 32nd.
//!
//! A worker that is alert also counts page faults. A guest that uses its memory costs one for each
//! page, once. A part of a turn with more than its frames explain ends at once, and the port whose
//! memory it was **rests**: it is neither taken from nor delivered to, however idle the worker is.

use crate::settings::PortId;
use crate::turn::work::{self, QUANTUM, TURN_TARGET};
use crate::turn::{Carried, Turn};
use ports::{Nanos, Stopwatch, TimeLimit, time_of_faults};

/// How long a worker is alert after a turn, and a port is watched after a part of a turn, that was
/// slow.
const ALERT: Nanos = Nanos::SECOND;

/// Work and frames from which on a part of a turn is measured although the worker is not alert.
/// Reading the clock costs a hundredth of it.
const MEASURED_WORK: u64 = 2048;
const MEASURED_FRAMES: usize = 32;

/// CPU time that each part of a turn may take whatever its work: some twenty page faults.
const SLACK: u64 = 16_384;
/// How many times its work a part of a turn may take, beyond the slack and the page faults.
const TRUST: u64 = 4;

/// How many times the CPU time of a slow take, or of a slow delivery, is charged. A guest that uses
/// its memory pays it once for each page. One that has the kernel find its pages again and again
/// would otherwise get a full share of the worker for nothing that anybody receives.
const DEARNESS: u64 = 4;

/// How many times the CPU time of a part with too many page faults its port rests at first, how long
/// at most then, and how long at most after many of them. A guest that uses its memory has hardly any
/// such part, so nothing is spared, also if nobody else waits for the worker: a frame that comes
/// during the next one waits for all of it.
///
/// One part proves little. The faults of our own code and the kernel's search for free memory count
/// as well, and on a loaded host both are long: an honest guest lost pings for a large part of a
/// second. Only who goes on rests for long.
const REST: u64 = 32;
const FIRST_REST: Nanos = Nanos(8 * Nanos::MILLISECOND.0);
const LONGEST_REST: Nanos = Nanos::SECOND;

/// The debt that a receiver may have before its frames are dropped: a millisecond of the kernel's, so
/// that a guest that has just started, or whose memory was mapped anew, loses none.
const CREDIT: u64 = 4_000_000;

/// A part of a turn: taking a burst, or delivering a list.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) work: u64,
    pub(crate) frames: usize,
    pub(crate) bytes: u64,
}

impl Part {
    /// Returns the CPU time for finding its pages, if each is full.
    fn faults(&self) -> u64 {
        time_of_faults(self.bytes, 0).0
    }

    /// Returns the CPU time beyond which it is slow.
    fn allowed(&self) -> u64 {
        self.work.saturating_mul(TRUST) + self.faults() + SLACK
    }

    /// Returns the CPU time that it took beyond its work and faults if it was slow.
    #[inline]
    pub(crate) fn excess(&self, stopwatch: &Stopwatch) -> Option<u64> {
        let used = stopwatch.used_beyond(Nanos(self.allowed()))?;
        Some(used.0.saturating_sub(self.work + self.faults()))
    }
}

/// What a worker knows of slow ports.
#[derive(Default)]
pub(crate) struct SlowPorts {
    alert_until: Nanos,
    ports: Vec<SlowPort>,
}

struct SlowPort {
    port: PortId,
    /// CPU time that it has not paid for.
    debt: u64,
    watched_until: Nanos,
    /// The length of its last rest, and the end.
    rest: Nanos,
    rests_until: Nanos,
}

impl SlowPorts {
    /// Returns whether a part of a turn is to be measured.
    #[inline]
    pub(crate) fn measures(&self, part: Part, now: Nanos) -> bool {
        part.work >= MEASURED_WORK || part.frames >= MEASURED_FRAMES || now < self.alert_until
    }

    /// Measures each part of each turn for a while.
    #[cold]
    pub(crate) fn alert(&mut self, now: Nanos) {
        self.alert_until = self.alert_until.max(now + ALERT);
    }

    /// Watches a port, and adds CPU time to its debt.
    #[cold]
    pub(crate) fn watch(&mut self, port: PortId, time: u64, now: Nanos) {
        let debt = time.saturating_mul(DEARNESS);
        self.change(port, now, |slow| slow.debt = slow.debt.saturating_add(debt));
    }

    /// Lets a port rest whose pages were absent more often than its frames explain: for many times as
    /// long as the kernel took, but shortly at first, and for twice as long each time.
    #[cold]
    pub(crate) fn rest(&mut self, port: PortId, time: u64, now: Nanos) {
        let mut end = now;
        self.change(port, now, |slow| {
            // Several parts of one turn are once.
            if now >= slow.rests_until {
                let first = Nanos(time.saturating_mul(REST)).min(FIRST_REST);
                slow.rest = first.max(Nanos(2 * slow.rest.0)).min(LONGEST_REST);
                slow.rests_until = now + slow.rest;
                slow.watched_until = slow.rests_until + ALERT;
            }
            end = slow.rests_until;
        });
        self.alert(end);
    }

    /// Changes what is known of a port, which is watched from now on.
    fn change(&mut self, port: PortId, now: Nanos, change: impl FnOnce(&mut SlowPort)) {
        self.alert(now);
        let place = self.ports.iter().position(|slow| slow.port == port);
        let place = place.unwrap_or_else(|| {
            let (debt, watched_until, rest, rests_until) = Default::default();
            self.ports.push(SlowPort { port, debt, watched_until, rest, rests_until });
            self.ports.len() - 1
        });
        if let Some(slow) = self.ports.get_mut(place) {
            slow.watched_until = slow.watched_until.max(now + ALERT);
            change(slow);
        }
    }

    /// Finds out who pays the CPU time of a slow delivery: a sender that was slow lately, because it
    /// may take its pages away again between take and delivery, else the receiver. Returns whether it
    /// is the receiver.
    #[cold]
    pub(crate) fn blame(
        &mut self,
        sender: Option<PortId>,
        receiver: PortId,
        time: u64,
        now: Nanos,
    ) -> bool {
        if let Some(sender) = sender.filter(|sender| self.is_watched(*sender)) {
            self.watch(sender, 0, now);
            return false;
        }
        self.watch(receiver, time, now);
        true
    }

    #[inline]
    fn find(&self, port: PortId) -> Option<&SlowPort> {
        self.ports.iter().find(|slow| slow.port == port)
    }

    /// Returns whether a port is watched.
    #[inline]
    pub(crate) fn is_watched(&self, port: PortId) -> bool {
        self.find(port).is_some()
    }

    /// Returns whether a port gets no frames: it has a debt beyond its credit, or rests.
    #[inline]
    pub(crate) fn is_shut(&self, port: PortId, now: Nanos) -> bool {
        self.find(port).is_some_and(|slow| slow.debt > CREDIT || now < slow.rests_until)
    }

    /// Returns the end of a port's rest.
    #[inline]
    pub(crate) fn end_of_rest(&self, port: PortId, now: Nanos) -> Option<Nanos> {
        self.find(port).map(|slow| slow.rests_until).filter(|until| now < *until)
    }

    /// Returns the time that taking a burst of a port may take.
    #[inline]
    pub(crate) fn time_of_taking(&self, turn: &Turn<'_>) -> TimeLimit {
        let is_close = self.is_watched(turn.from.shared.id);
        self.counted(TimeLimit::new(turn.stopwatch, Nanos(TURN_TARGET), is_close), turn.now)
    }

    /// Limits page faults too while the worker is alert: counting them takes a system call.
    #[inline]
    fn counted(&self, time: TimeLimit, now: Nanos) -> TimeLimit {
        if now < self.alert_until { time.with_faults() } else { time }
    }

    /// Returns the time that delivering may take: besides its own what the receiver's credit covers.
    #[inline]
    pub(crate) fn time_of_delivering(
        &self,
        sender: Option<PortId>,
        receiver: PortId,
        part: Part,
        (now, stopwatch): (Nanos, Stopwatch),
    ) -> TimeLimit {
        let slow = self.find(receiver);
        let is_close = slow.is_some() || sender.is_some_and(|sender| self.is_watched(sender));
        let credit = CREDIT.saturating_sub(slow.map_or(0, |slow| slow.debt)) / DEARNESS;
        let limit = Nanos(part.allowed() + TURN_TARGET + credit);
        self.counted(TimeLimit::new(stopwatch, limit, is_close), now)
    }

    /// Lets rounds pass: each debt is less by a quantum for each. After a round without a frame no
    /// debt is left, since nobody waits for the worker.
    #[inline]
    pub(crate) fn pass(&mut self, rounds: i64, is_idle: bool, now: Nanos) {
        if self.ports.is_empty() {
            return;
        }
        let paid = if is_idle { u64::MAX } else { rounds.saturating_mul(QUANTUM).unsigned_abs() };
        self.ports.retain_mut(|slow| {
            slow.debt = slow.debt.saturating_sub(paid);
            slow.debt > 0 || now < slow.watched_until
        });
    }
}

/// What the sender of a turn is charged.
pub(crate) struct Charge {
    /// Its work as far as the time bears that out, and all of a slow take.
    pub(crate) total: u64,
    /// Time that neither the sender nor a receiver is charged for, as far as known.
    pub(crate) left_over: bool,
    /// Time that is accounted for.
    pub(crate) known: Nanos,
}

/// Returns the charge of a turn that took so long.
#[inline]
pub(crate) fn charge(carried: &Carried, took: Nanos) -> Charge {
    let Carried { work, later, taking, receivers, .. } = *carried;
    let measured = taking + receivers;
    let rest = Nanos(took.0.saturating_sub(measured));
    let charged = work::charged(work, rest);
    let left_over = rest.0 > charged;
    let total = charged + taking.saturating_mul(DEARNESS) + later;
    Charge { total, left_over, known: Nanos(charged + measured) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: PortId = PortId(1);

    #[test]
    fn a_sender_pays_all_of_a_slow_take_and_nothing_of_a_slow_receiver() {
        let carried =
            |taking, receivers| Carried { taken: 1, work: 1_000, later: 10, taking, receivers };
        let total = |carried, took| charge(&carried, Nanos(took)).total;
        assert_eq!(total(carried(0, 0), 2_000), 2_010);
        assert_eq!(total(carried(5_000_000, 0), 5_002_000), DEARNESS * 5_000_000 + 2_010);
        assert_eq!(total(carried(0, 5_000_000), 5_002_000), 2_010);
        let unknown = charge(&carried(0, 0), Nanos(5_000_000));
        assert_eq!((unknown.total, unknown.left_over), (TURN_TARGET + 10, true));
    }

    #[test]
    fn a_port_is_watched_for_a_while_and_frames_reach_it_within_its_credit() {
        let (mut slow, start) = (SlowPorts::default(), Nanos::SECOND);
        let part = |work, frames| Part { work, frames, bytes: 0 };
        assert!(!slow.measures(part(MEASURED_WORK - 1, MEASURED_FRAMES - 1), start));
        assert!(slow.measures(part(MEASURED_WORK, 1), start));
        assert!(slow.measures(part(0, MEASURED_FRAMES), start));
        slow.watch(ONE, (CREDIT + 2 * QUANTUM.unsigned_abs()) / DEARNESS, start);
        assert!(
            slow.measures(part(0, 1), start)
                && slow.is_watched(ONE)
                && !slow.is_shut(PortId(2), start)
        );
        slow.pass(1, false, start);
        assert!(slow.is_shut(ONE, start));
        slow.pass(1, false, start);
        assert!(!slow.is_shut(ONE, start) && slow.is_watched(ONE));
        slow.watch(ONE, u64::MAX, start);
        slow.pass(1, true, start + ALERT);
        assert!(
            !slow.is_watched(ONE) && !slow.measures(part(0, 1), start + ALERT),
            "nobody waited"
        );
    }

    /// While nobody else had frames, a receiver whose pages were always absent had a turn of a
    /// millisecond each time, and what came meanwhile waited for it.
    #[test]
    fn a_port_rests_twice_as_long_each_time_and_idle_rounds_change_nothing() {
        let (mut slow, mut now) = (SlowPorts::default(), Nanos::SECOND);
        let mut last = Nanos(0);
        for _ in 0..20 {
            slow.rest(ONE, 100_000, now);
            slow.pass(1, true, now);
            let end = slow.end_of_rest(ONE, now).expect("it rests");
            assert!(slow.is_shut(ONE, now) && !slow.is_shut(PortId(2), now));
            let rest = end.since(now);
            assert_eq!(rest, Nanos(REST * 100_000).max(Nanos(2 * last.0)).min(LONGEST_REST));
            (last, now) = (rest, end);
            slow.pass(1, true, now);
            assert!(!slow.is_shut(ONE, now) && slow.end_of_rest(ONE, now).is_none());
            assert!(
                slow.is_watched(ONE) && slow.measures(Part { work: 0, frames: 1, bytes: 0 }, now)
            );
        }
        assert_eq!(last, LONGEST_REST);
        slow.pass(1, false, now + ALERT);
        slow.rest(ONE, 1_000, now + ALERT);
        let end = slow.end_of_rest(ONE, now + ALERT).expect("it rests");
        assert_eq!(end.since(now + ALERT), Nanos(REST * 1_000), "forgotten");
    }

    /// On a loaded host the kernel took 10 ms to find a page. The guest rested for a third of a second
    /// and lost what was sent to it meanwhile.
    #[test]
    fn a_port_that_was_slow_once_rests_shortly_however_long_it_took() {
        for time in [1_000, 250_000, 10_000_000, u64::MAX] {
            let (mut slow, mut now) = (SlowPorts::default(), Nanos::SECOND);
            for often in 0..3 {
                slow.rest(ONE, time, now);
                slow.rest(ONE, time, now);
                let end = slow.end_of_rest(ONE, now).expect("it rests");
                let most = Nanos(FIRST_REST.0 << often);
                assert!(end.since(now) <= most, "{time}: {often} times before");
                now = end;
            }
        }
    }

    /// A sender could take its pages away after take had touched them.
    #[test]
    fn a_sender_that_was_slow_pays_for_slow_deliveries_too() {
        let (sender, now) = (PortId(2), Nanos::SECOND);
        let mut slow = SlowPorts::default();
        slow.watch(sender, 0, now);
        assert!(!slow.blame(Some(sender), ONE, 2 * CREDIT, now) && !slow.is_shut(ONE, now));
        assert!(slow.blame(None, ONE, 2 * CREDIT, now) && slow.is_shut(ONE, now));
        assert!(slow.blame(Some(PortId(3)), ONE, 0, now));
    }

    proptest! {
        /// Beside senders that always have frames, a receiver whose deliveries are slow gets one part
        /// in `DEARNESS` of a sender's share of the worker, but for its credit and one delivery.
        #[test]
        fn a_slow_receiver_gets_a_part_of_a_share(
            deliveries in proptest::collection::vec(20_000u64..5_000_000, 1..50),
            rounds in 100i64..5_000,
        ) {
            let (mut slow, mut next) = (SlowPorts::default(), deliveries.iter().cycle());
            let mut spent = 0;
            for round in 0..rounds {
                if !slow.is_shut(ONE, Nanos(0)) {
                    let time = *next.next().unwrap();
                    spent += time;
                    slow.watch(ONE, time, Nanos(0));
                }
                slow.pass(1, false, Nanos(round.unsigned_abs()));
            }
            let share = (rounds * QUANTUM).unsigned_abs();
            let largest = deliveries.iter().max().unwrap();
            prop_assert!(spent <= (share + CREDIT) / DEARNESS + largest, "{spent} of {share}");
        }
    }
}
