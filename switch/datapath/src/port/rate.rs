//! The rate of a port: how much its queues may take now, and when to ask again.
//!
//! A source in debt is not taken from. Its frames wait in its own queue, where its network stack
//! sees them and sends no faster; a policer that drops whole trains of 64 KiB leaves a TCP stream a
//! quarter of the rate and less. A burst may exceed the tokens by a part of its last frame, which
//! is the debt.

use crate::port::bucket::Bucket;
use crate::settings::RateLimit;
use ports::Nanos;

/// The parts of the bucket by which queues are staggered, and the most that a queue waits for.
const PARTS: u32 = 64;
const LAST: u32 = 16;
/// The level at which any queue may take: those whose turn it is do not come.
const ENOUGH: u32 = 32;

/// The least that a refused queue waits for.
const LEAST_WAIT: Nanos = Nanos(20_000);

/// The token bucket that all queues of a port share, in bits.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    bucket: Bucket,
    /// The number of the queue that paid last.
    last: usize,
    /// The queues that were refused since they last might take, by the bit of their number; those
    /// beyond 64 are not waited for.
    refused: u64,
}

impl Rate {
    pub(crate) fn new(limit: RateLimit) -> Rate {
        let size = limit.burst_bytes.saturating_mul(8).max(1);
        Rate { bucket: Bucket::new(limit.bits_per_second, size), last: 0, refused: 0 }
    }

    /// Returns the bytes that a queue may take now, of the `queues` that the port has.
    ///
    /// While tokens are short, the queues that were refused take turns, the one behind the last payer
    /// first: which of them a worker that wakes late looks at first does not matter. A lone queue
    /// takes a 64th of the bucket at a time instead of waking for every frame.
    ///
    /// # Errors
    ///
    /// Returns how long it takes until it may take some.
    pub(crate) fn allowance(
        &mut self,
        queue: usize,
        queues: usize,
        now: Nanos,
    ) -> Result<usize, Nanos> {
        self.bucket.refill(now);
        let queues = queues.max(1);
        let behind = (queue + queues - self.last % queues + queues - 1) % queues;
        let before = (0..behind).map(|place| bit((self.last + 1 + place) % queues));
        let is_next = self.refused == 0 || before.fold(0, |all, bit| all | bit) & self.refused == 0;
        let level = self.bucket.level(PARTS);
        if level < i128::from(if is_next { 1 } else { ENOUGH }) {
            self.refused |= bit(queue);
            let place = u32::try_from(behind + 1).unwrap_or(LAST).min(LAST);
            let next = u32::try_from(level + 1).map_or(place, |next| next.max(place));
            return Err(self.bucket.time_to(next, PARTS).max(LEAST_WAIT));
        }
        self.refused &= !bit(queue);
        // Queues that wake late find what all are to have: none takes it alone.
        let share = self.bucket.left() / 8 / queues as u64;
        Ok(usize::try_from(share).unwrap_or(usize::MAX).max(1))
    }

    /// Charges a queue for a burst.
    pub(crate) fn pay(&mut self, queue: usize, bytes: usize) {
        self.last = queue;
        self.bucket.pay((bytes as u64).saturating_mul(8));
    }
}

fn bit(queue: usize) -> u64 {
    u32::try_from(queue).ok().and_then(|queue| 1u64.checked_shl(queue)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRAIN: u64 = 65_549;

    /// Queues that always have frames, and a worker that looks at them.
    struct Port {
        rate: Rate,
        /// The length of each queue's frames.
        lengths: Vec<u64>,
        resting_until: Vec<u64>,
        /// When each queue took how much.
        taken: Vec<Vec<(u64, u64)>>,
        /// Turns that were refused.
        refused: u64,
    }

    impl Port {
        fn new(bits: u64, burst: u64, lengths: Vec<u64>) -> Port {
            let limit = RateLimit { bits_per_second: bits, burst_bytes: burst };
            let (resting_until, taken) = (vec![0; lengths.len()], vec![Vec::new(); lengths.len()]);
            Port { rate: Rate::new(limit), lengths, resting_until, taken, refused: 0 }
        }

        /// A round at this time. Returns whether a queue took frames.
        fn round(&mut self, now: u64) -> bool {
            let (queues, mut took) = (self.lengths.len(), false);
            for queue in (0..queues).filter(|queue| self.lengths[*queue] > 0) {
                if now < self.resting_until[queue] {
                    continue;
                }
                match self.rate.allowance(queue, queues, Nanos(now)) {
                    Err(wait) => {
                        self.resting_until[queue] = now + wait.0;
                        self.refused += 1;
                    }
                    Ok(allowed) => {
                        let most = (allowed as u64).min(512 * 1024);
                        let bytes = most.div_ceil(self.lengths[queue]) * self.lengths[queue];
                        self.rate.pay(queue, usize::try_from(bytes).unwrap());
                        self.taken[queue].push((now, bytes));
                        took = true;
                    }
                }
            }
            took
        }

        /// Rounds until the time, a worker's wake-ups as late as `late` says in turn.
        fn run(&mut self, until: u64, late: &[u64]) {
            let (mut now, mut wakes) = (1, 0);
            while now < until {
                if self.round(now) {
                    now += 1_000;
                } else {
                    let resting = self.lengths.iter().zip(&self.resting_until);
                    let next = resting.filter(|(len, _)| **len > 0).map(|(_, at)| *at).min();
                    now = next.unwrap().max(now) + late[wakes % late.len()];
                    wakes += 1;
                }
            }
        }

        fn bytes(&self, queue: usize) -> u64 {
            self.taken[queue].iter().map(|(_, bytes)| bytes).sum()
        }

        /// Returns the most bytes that passed within any window.
        fn most_in(&self, window: u64) -> u64 {
            let mut all: Vec<_> = self.taken.iter().flatten().copied().collect();
            all.sort_unstable();
            let (mut first, mut sum, mut most) = (0, 0, 0);
            for (at, bytes) in &all {
                sum += bytes;
                while all[first].0 + window <= *at {
                    sum -= all[first].1;
                    first += 1;
                }
                most = most.max(sum);
            }
            most
        }
    }

    /// Rates from 50 Mbit to 10 Gbit, in Mbit, more of the small ones.
    fn rates() -> impl Strategy<Value = u64> {
        prop_oneof![50..200u64, 200..2_000u64, 2_000..=10_000u64].prop_map(|mbit| mbit * 1_000_000)
    }

    fn queues() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![Just(TRAIN), Just(1514), 60..TRAIN], 1..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// A port that always has frames gets its rate, and in no second more than 102 % of it,
        /// whatever its frames and queues are and however late the worker wakes.
        #[test]
        fn a_busy_port_gets_its_rate_and_no_more(
            bits in rates(),
            lengths in queues(),
            late in prop::collection::vec(0..400_000u64, 1..20),
        ) {
            let mut port = Port::new(bits, RateLimit::default_burst(bits), lengths);
            let second = Nanos::SECOND.0;
            port.run(3 * second, &late);
            let passed: u64 = (0..port.lengths.len()).map(|queue| port.bytes(queue)).sum();
            let (earned, most) = (3 * bits / 8, port.most_in(second));
            prop_assert!(passed * 100 >= earned * 98, "{passed} of {earned} bytes");
            prop_assert!(most * 100 <= bits / 8 * 102, "{most} of {} bytes in one second", bits / 8);
        }

        /// Holds for any bucket: clocks of workers differ, and frames may be larger than it.
        #[test]
        fn never_more_than_rate_and_burst_and_one_frame(
            bits in 1_000..10_000_000_000u64,
            burst in 1_000..1_000_000u64,
            steps in prop::collection::vec((0..10_000_000u64, 0..2_000_000u64, 60..70_000usize), 1..300),
        ) {
            let mut rate = Rate::new(RateLimit { bits_per_second: bits, burst_bytes: burst });
            let (mut now, mut passed, mut largest) = (0u64, 0u64, 0);
            for (pause, behind, frame) in steps {
                now += pause;
                if let Ok(most) = rate.allowance(0, 1, Nanos(now.saturating_sub(behind))) {
                    let bytes = most.div_ceil(frame) * frame;
                    rate.pay(0, bytes);
                    passed += bytes as u64;
                    largest = largest.max(frame as u64);
                }
            }
            let earned = u128::from(now) * u128::from(bits) / 8_000_000_000;
            let allowed = u128::from(burst + largest) + earned + 1;
            prop_assert!(u128::from(passed) <= allowed, "{passed} passed, {allowed} allowed");
        }

        /// Busy queues of a port share its rate, although a worker that wakes late looks at them in
        /// the same order each time; others take nothing from them.
        #[test]
        fn busy_queues_of_a_port_share_its_rate(
            bits in rates(),
            (queues, busy) in (2usize..9).prop_flat_map(|queues| (Just(queues), 2..=queues)),
            length in prop_oneof![Just(TRAIN), Just(1514u64)],
            late in prop::collection::vec(0..200_000u64, 1..20),
        ) {
            share(bits, (queues, busy), length, &late)?;
        }
    }

    fn share(
        bits: u64,
        (queues, busy): (usize, usize),
        length: u64,
        late: &[u64],
    ) -> Result<(), TestCaseError> {
        let lengths = (0..queues).map(|queue| if queue < busy { length } else { 0 }).collect();
        let mut port = Port::new(bits, RateLimit::default_burst(bits), lengths);
        port.run(4 * Nanos::SECOND.0, late);
        let all: u64 = (0..busy).map(|queue| port.bytes(queue)).sum();
        for queue in 0..busy {
            let share = port.bytes(queue) * busy as u64 * 100 / all;
            prop_assert!(
                (50..=175).contains(&share),
                "queue {queue} has {share} % of an even share"
            );
        }
        Ok(())
    }

    /// The worker came whenever the bucket had what the first queue waits for, and the other had
    /// nothing.
    #[test]
    fn a_worker_that_is_always_as_late_lets_no_queue_starve() {
        share(50_000_000, (2, 2), TRAIN, &[125_000]).unwrap();
    }

    /// A worker wakes for a port in debt some thousand times a second, not for each frame.
    #[test]
    fn a_port_in_debt_costs_few_turns_whatever_its_frames_are() {
        for length in [60, 1514, TRAIN] {
            let bits = 1_000_000_000;
            let mut port = Port::new(bits, RateLimit::default_burst(bits), vec![length; 8]);
            port.run(Nanos::SECOND.0, &[0]);
            assert!(port.refused < 8 * 16_000, "{} refusals with frames of {length}", port.refused);
        }
    }
}
