//! The clocks by which a turn notices that the kernel works for a guest: a page that a guest has
//! never touched, or has given back, is made by the worker that touches it next.
//!
//! The clock tells that something took long. The CPU time of the thread tells whether the thread
//! itself worked, or another thread had its core. It takes a system call, so it is read only when
//! the clock has given cause.

use crate::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The clock and the CPU time of the calling thread. Tests invent both.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    now: fn() -> Nanos,
    used: fn() -> Nanos,
}

impl Clock {
    /// The kernel's clocks.
    pub const KERNEL: Clock =
        Clock { now: || read(ClockId::Monotonic), used: || read(ClockId::ThreadCPUTime) };

    /// Clocks that stand still, for virtual time.
    pub const STILL: Clock = Clock { now: || Nanos(0), used: || Nanos(0) };

    /// Makes a pair of clocks.
    pub const fn new(now: fn() -> Nanos, used: fn() -> Nanos) -> Clock {
        Clock { now, used }
    }

    /// Returns the time.
    #[inline]
    pub fn now(self) -> Nanos {
        (self.now)()
    }

    /// Returns how far the CPU time is behind the clock. It grows while the thread does not run.
    pub fn lag(self) -> Nanos {
        // In this order a thread that is interrupted in between is believed to have used less.
        let now = self.now();
        now.since((self.used)())
    }
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec.unsigned_abs() * Nanos::SECOND.0 + time.tv_nsec.unsigned_abs())
}

/// The time since a moment at which the thread was working.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    clock: Clock,
    start: Nanos,
    /// [`Clock::lag`] at the start, or shortly before.
    lag: Nanos,
}

impl Stopwatch {
    /// A stopwatch that stands still.
    pub const STILL: Stopwatch = Stopwatch { clock: Clock::STILL, start: Nanos(0), lag: Nanos(0) };

    /// Makes a stopwatch that was started then.
    pub fn started(clock: Clock, start: Nanos, lag: Nanos) -> Stopwatch {
        Stopwatch { clock, start, lag }
    }

    /// Returns a stopwatch that starts now.
    #[inline]
    pub fn restarted(self) -> Stopwatch {
        Stopwatch { start: self.clock.now(), ..self }
    }

    /// Returns the CPU time since the start if it is longer than `limit`. It is underestimated by
    /// the time for which the thread did not run between the reading of the lag and the start.
    #[inline]
    pub fn used_beyond(&self, limit: Nanos) -> Option<Nanos> {
        if self.clock.now().since(self.start) <= limit { None } else { self.used(limit) }
    }

    #[cold]
    fn used(&self, limit: Nanos) -> Option<Nanos> {
        let used = (self.clock.used)().since(self.start.since(self.lag));
        (used > limit).then_some(used)
    }
}

/// The CPU time that taking a burst, or delivering a list of frames, may take. What is left of it
/// then waits, or is dropped as [`Late`](crate::EgressDrop::Late).
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    /// The time so far.
    pub stopwatch: Stopwatch,
    /// The limit.
    pub limit: Nanos,
    /// Whether to look at the stopwatch at every frame and piece: one page may take very long.
    pub is_close: bool,
}

impl Default for TimeLimit {
    fn default() -> TimeLimit {
        TimeLimit::NONE
    }
}

impl TimeLimit {
    /// Frames or pieces between two looks: a power of two.
    pub(crate) const EVERY: usize = 32;

    /// No limit.
    pub const NONE: TimeLimit =
        TimeLimit { stopwatch: Stopwatch::STILL, limit: Nanos(u64::MAX), is_close: false };

    /// Returns whether the time is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stopwatch.used_beyond(self.limit).is_some()
    }

    /// Returns twice the time.
    pub(crate) fn doubled(self) -> TimeLimit {
        TimeLimit { limit: Nanos(self.limit.0.saturating_mul(2)), ..self }
    }

    /// Looks at the stopwatch before some of the frames, or pieces, that are counted from 0: never
    /// before the first. Returns whether the time is over.
    #[inline]
    pub(crate) fn is_over_before(&self, number: usize) -> bool {
        let mask = if self.is_close { 0 } else { TimeLimit::EVERY - 1 };
        number > 0 && number & mask == 0 && self.is_over()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
        static USED: Cell<u64> = const { Cell::new(0) };
    }

    const MOCK: Clock = Clock::new(|| Nanos(NOW.get()), || Nanos(USED.get()));

    fn set(now: u64, used: u64) {
        NOW.set(now);
        USED.set(used);
    }

    /// Returns a limit that is over from this look at the clock on.
    pub(crate) fn over_at(look: u64, is_close: bool) -> TimeLimit {
        NOW.set(0);
        let read = || Nanos(NOW.replace(NOW.get() + 1) + 1);
        let clock = Clock::new(read, || Nanos(NOW.get()));
        let stopwatch = Stopwatch::started(clock, Nanos(0), Nanos(0));
        TimeLimit { stopwatch, limit: Nanos(look - 1), is_close }
    }

    #[test]
    fn time_of_others_is_not_used() {
        set(5_000, 1_000);
        let stopwatch = Stopwatch::started(MOCK, MOCK.now(), MOCK.lag());
        assert_eq!(stopwatch.used_beyond(Nanos(0)), None);
        set(5_900, 1_100);
        assert_eq!(stopwatch.used_beyond(Nanos(99)), Some(Nanos(100)), "800 were another's");
        assert_eq!(stopwatch.used_beyond(Nanos(100)), None);
        let later = stopwatch.restarted();
        set(6_900, 2_100);
        assert_eq!(stopwatch.used_beyond(Nanos(0)), Some(Nanos(1_100)));
        assert_eq!(later.used_beyond(Nanos(0)), Some(Nanos(200)), "at least: it lags by 800");
    }

    #[test]
    fn the_kernel_counts_a_busy_thread() {
        let stopwatch = Stopwatch::started(Clock::KERNEL, Clock::KERNEL.now(), Clock::KERNEL.lag());
        let busy = || (0..1000).map(std::hint::black_box).sum::<u64>();
        while stopwatch.used_beyond(Nanos(1_000)).is_none() {
            busy();
        }
        assert_eq!(Stopwatch::STILL.used_beyond(Nanos(0)), None);
    }
}
