// UNSAFETY: getrusage(2), which no library that we use offers for one thread.
//! The clocks by which a turn notices that the kernel works for a guest: a page that a guest has
//! never touched, or has given back, is made by the worker that touches it next.
//!
//! The clock tells that something took long. The CPU time of the thread tells whether another thread
//! had its core; but it counts interrupts too, and what a hypervisor took of the core. The page
//! faults of the thread tell whether it was a guest's memory at all. Both take a system call, so
//! they are read only when the clock has given cause.
#![allow(unsafe_code)]

use crate::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The clock, the CPU time and the page faults of the calling thread. Tests invent all three.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    now: fn() -> Nanos,
    used: fn() -> Nanos,
    faults: fn() -> u64,
}

/// What a thread has behind it at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// How far the CPU time is behind the clock. It grows while the thread does not run.
    lag: Nanos,
    /// Page faults so far.
    faults: u64,
}

impl Past {
    /// Returns for how long the thread has not run since an earlier moment.
    pub fn paused_since(self, earlier: Past) -> Nanos {
        self.lag.since(earlier.lag)
    }
}

impl Clock {
    /// The kernel's clocks.
    pub const KERNEL: Clock = Clock {
        now: || read(ClockId::Monotonic),
        used: || read(ClockId::ThreadCPUTime),
        faults: page_faults,
    };

    /// Clocks that stand still, for virtual time.
    pub const STILL: Clock = Clock { now: || Nanos(0), used: || Nanos(0), faults: || 0 };

    /// Makes such clocks.
    pub const fn new(now: fn() -> Nanos, used: fn() -> Nanos, faults: fn() -> u64) -> Clock {
        Clock { now, used, faults }
    }

    /// Returns the time.
    #[inline]
    pub fn now(self) -> Nanos {
        (self.now)()
    }

    /// Returns what the thread has behind it.
    pub fn past(self) -> Past {
        let faults = (self.faults)();
        // In this order a thread that is interrupted in between is believed to have used less.
        let now = self.now();
        Past { lag: now.since((self.used)()), faults }
    }
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec.unsigned_abs() * Nanos::SECOND.0 + time.tv_nsec.unsigned_abs())
}

/// Returns the page faults of the calling thread so far.
fn page_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for what is written; the thread is the calling one.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeros are a usage too.
    let usage = unsafe { usage.assume_init() };
    usage.ru_minflt.unsigned_abs() + usage.ru_majflt.unsigned_abs()
}

/// The time since a moment at which the thread was working.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    clock: Clock,
    start: Nanos,
    /// At the start, or shortly before.
    past: Past,
}

impl Stopwatch {
    /// A stopwatch that stands still.
    pub const STILL: Stopwatch =
        Stopwatch { clock: Clock::STILL, start: Nanos(0), past: Past { lag: Nanos(0), faults: 0 } };

    /// Makes a stopwatch that was started then.
    pub fn started(clock: Clock, start: Nanos, past: Past) -> Stopwatch {
        Stopwatch { clock, start, past }
    }

    /// Returns a stopwatch that starts now.
    #[inline]
    pub fn restarted(self) -> Stopwatch {
        Stopwatch { start: self.clock.now(), ..self }
    }

    /// Returns the CPU time since the start if it is longer than `limit` and some of it may have gone
    /// into page faults. It is underestimated by the time for which the thread did not run between
    /// the moment of its [`Past`] and the start.
    #[inline]
    pub fn used_beyond(&self, limit: Nanos) -> Option<Nanos> {
        if self.clock.now().since(self.start) <= limit { None } else { self.used(limit) }
    }

    #[cold]
    fn used(&self, limit: Nanos) -> Option<Nanos> {
        let used = (self.clock.used)().since(self.start.since(self.past.lag));
        (used > limit && self.faults() > 0).then_some(used)
    }

    /// Returns the stopwatch with the page faults counted from now on. Without it they are counted
    /// from the moment of its [`Past`].
    #[cold]
    fn counting(self) -> Stopwatch {
        let past = Past { faults: (self.clock.faults)(), ..self.past };
        Stopwatch { past, ..self }
    }

    /// Returns the page faults so far.
    fn faults(&self) -> u64 {
        (self.clock.faults)().saturating_sub(self.past.faults)
    }
}

/// CPU time for finding a page on a busy host. The pages of a guest that has just started, or whose
/// memory was mapped anew, are found once.
const FAULT: u64 = 4096;

/// Returns the CPU time for finding the pages of so many bytes, in so many pieces.
#[inline]
pub fn time_of_faults(bytes: u64, pieces: u64) -> Nanos {
    Nanos((bytes / 4096 + pieces) * FAULT)
}

/// Page faults that frames may cost for each of their pages, if each begins in a page of its own; for
/// each further piece, which may lie in two; and besides, for rings and tables. If all pages of a
/// guest are new to the switch, a frame costs one for each 4 KiB, or 2 KiB if its buffers are so
/// small, and one for its table.
const FAULTS_A_PAGE: u64 = 2;
const FAULTS_A_PIECE: u64 = 2;
const FAULTS_BESIDE: u64 = 16;

/// Time from which on page faults are counted: reading them takes a system call.
const SUSPICIOUS: Nanos = Nanos(16_384);

/// The CPU time that taking a burst, or delivering a list of frames, may take, and the page faults.
/// What is left of it then waits, or is dropped as [`Late`](crate::EgressDrop::Late).
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    /// The time so far.
    pub stopwatch: Stopwatch,
    /// The limit.
    pub limit: Nanos,
    /// Whether to look at the stopwatch at every frame and piece: one page may take very long.
    pub is_close: bool,
    /// Most page faults; [`TimeLimit::UNCOUNTED`] if they are not counted.
    faults: u64,
}

impl Default for TimeLimit {
    fn default() -> TimeLimit {
        TimeLimit::NONE
    }
}

impl TimeLimit {
    /// Frames or pieces between two looks: a power of two.
    pub(crate) const EVERY: usize = 32;

    const UNCOUNTED: u64 = u64::MAX;

    /// No limit.
    pub const NONE: TimeLimit = TimeLimit::new(Stopwatch::STILL, Nanos(u64::MAX), false);

    /// Makes a limit of time alone.
    pub const fn new(stopwatch: Stopwatch, limit: Nanos, is_close: bool) -> TimeLimit {
        TimeLimit { stopwatch, limit, is_close, faults: TimeLimit::UNCOUNTED }
    }

    /// Returns the limit with one of page faults, which the port counts from its first frame on.
    #[must_use]
    pub fn with_faults(self) -> TimeLimit {
        TimeLimit { faults: FAULTS_BESIDE, ..self }
    }

    /// Counts page faults from now on, if they are limited.
    #[inline]
    pub(crate) fn start_counting(&mut self) {
        if self.counts() {
            self.stopwatch = self.stopwatch.counting();
        }
    }

    /// Returns whether page faults are counted.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.faults != TimeLimit::UNCOUNTED
    }

    /// Returns whether the time is over, or there were too many page faults.
    #[inline]
    pub fn is_over(&self) -> bool {
        if self.counts() {
            return self.has_faulted() || self.stopwatch.used_beyond(self.limit).is_some();
        }
        self.stopwatch.used_beyond(self.limit).is_some()
    }

    /// Returns whether there were more page faults than the frames explain.
    #[inline]
    pub(crate) fn has_faulted(&self) -> bool {
        let passed = self.stopwatch.clock.now().since(self.stopwatch.start);
        self.counts() && passed > SUSPICIOUS && self.stopwatch.faults() > self.faults
    }

    /// Returns the limit with what so many frames may cost in page faults, and each further piece.
    #[inline]
    #[must_use]
    pub(crate) fn for_pages(self, frames: usize, bytes: usize, pieces: usize) -> TimeLimit {
        let pages = (frames + bytes / 4096) as u64;
        let faults = pages * FAULTS_A_PAGE + pieces as u64 * FAULTS_A_PIECE;
        TimeLimit { faults: self.faults.saturating_add(faults), ..self }
    }

    /// Returns twice the time, and what it takes to find the pages of a frame.
    pub(crate) fn for_frame(self, bytes: usize, pieces: usize) -> TimeLimit {
        let faults = time_of_faults(bytes as u64, pieces as u64);
        let limit = self.limit.0.saturating_mul(2).saturating_add(faults.0);
        TimeLimit { limit: Nanos(limit), ..self }
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
        static FAULTS: Cell<u64> = const { Cell::new(0) };
        static EACH: Cell<u64> = const { Cell::new(0) };
    }

    const MOCK: Clock = Clock::new(|| Nanos(NOW.get()), || Nanos(USED.get()), || FAULTS.get());

    fn set(now: u64, used: u64) {
        NOW.set(now);
        USED.set(used);
    }

    /// Returns a limit that is over from this look at the clock on.
    pub(crate) fn over_at(look: u64, is_close: bool) -> TimeLimit {
        // More than the pages of a frame take.
        const STEP: u64 = Nanos::MILLISECOND.0;
        NOW.set(0);
        let read = || Nanos(NOW.replace(NOW.get() + STEP) + STEP);
        let clock = Clock::new(read, || Nanos(NOW.get()), || 1);
        let stopwatch = Stopwatch { clock, ..Stopwatch::STILL };
        TimeLimit::new(stopwatch, Nanos((look - 1) * STEP), is_close)
    }

    #[test]
    fn time_of_others_is_not_used() {
        set(5_000, 1_000);
        let stopwatch = Stopwatch::started(MOCK, MOCK.now(), MOCK.past());
        assert_eq!(stopwatch.used_beyond(Nanos(0)), None);
        set(5_900, 1_100);
        assert_eq!(stopwatch.used_beyond(Nanos(99)), None, "an interrupt's: no page fault");
        FAULTS.set(1);
        assert_eq!(stopwatch.used_beyond(Nanos(99)), Some(Nanos(100)), "800 were another's");
        assert_eq!(stopwatch.used_beyond(Nanos(100)), None);
        let later = stopwatch.restarted();
        set(6_900, 2_100);
        assert_eq!(stopwatch.used_beyond(Nanos(0)), Some(Nanos(1_100)));
        assert_eq!(later.used_beyond(Nanos(0)), Some(Nanos(200)), "at least: it lags by 800");
    }

    /// Returns a limit of page faults alone: each look finds so many more.
    pub(crate) fn faulting(each: u64) -> TimeLimit {
        FAULTS.set(0);
        EACH.set(each);
        let faults = || FAULTS.replace(FAULTS.get() + EACH.get());
        let clock = Clock::new(|| Nanos(SUSPICIOUS.0 + 1), || Nanos(0), faults);
        let stopwatch = Stopwatch { clock, ..Stopwatch::STILL };
        TimeLimit::new(stopwatch, Nanos(u64::MAX), true).with_faults()
    }

    #[test]
    fn page_faults_that_frames_explain_are_no_reason_to_end() {
        set(0, 0);
        FAULTS.set(7);
        let stopwatch = Stopwatch::started(MOCK, Nanos(0), MOCK.past());
        let time = TimeLimit::new(stopwatch, Nanos::MILLISECOND, false);
        let mut counted = time.with_faults().for_pages(2, 8192, 3);
        FAULTS.set(1_000);
        counted.start_counting();
        let most = 2 * 2 + 2 * 2 + 3 * 2 + FAULTS_BESIDE;
        set(SUSPICIOUS.0 + 1, 0);
        for (faults, is_over) in [(most, false), (most + 1, true)] {
            FAULTS.set(1_000 + faults);
            assert_eq!((counted.is_over(), counted.has_faulted()), (is_over, is_over), "{faults}");
        }
        assert!(!time.is_over() && !time.has_faulted(), "they are not counted");
        set(SUSPICIOUS.0, 0);
        assert!(!counted.is_over(), "nothing took long");
        set(Nanos::MILLISECOND.0 + 1, Nanos::MILLISECOND.0 + 1);
        FAULTS.set(1_001);
        assert!(counted.is_over() && time.is_over(), "a huge page");
    }

    #[test]
    fn the_kernel_counts_a_busy_thread() {
        let clock = Clock::KERNEL;
        let stopwatch = Stopwatch::started(clock, clock.now(), clock.past());
        while stopwatch.used_beyond(Nanos(1_000)).is_none() {
            // Pages of its own.
            std::hint::black_box(vec![1u8; 1 << 20]);
        }
        assert_eq!(Stopwatch::STILL.used_beyond(Nanos(0)), None);
    }
}
