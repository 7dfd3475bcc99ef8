//! The stopwatches of a worker's turns, and the time for which it waited for its processor.

use crate::counters::Counter;
use ports::{Clock, Nanos, Past, Stopwatch};

/// How long a thread's past is used before it is read again.
const FRESH: Nanos = Nanos::MILLISECOND;

/// The clocks of a worker's thread.
pub(crate) struct KernelTime {
    clock: Clock,
    watch: Watch,
    /// When the past was read, by the worker's clock; `None` if the thread has slept since.
    read_at: Option<Nanos>,
}

/// The parameters of a stopwatch.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    clock: Clock,
    /// The clock at the worker's time 0.
    epoch: u64,
    past: Past,
}

impl KernelTime {
    /// Makes the clocks of a worker without a thread: they stand still.
    pub(crate) fn still() -> KernelTime {
        KernelTime::new(Clock::STILL, Nanos::default())
    }

    /// Makes the clocks of a worker whose own clock shows `now`.
    pub(crate) fn new(clock: Clock, now: Nanos) -> KernelTime {
        let epoch = clock.now().0.wrapping_sub(now.0);
        KernelTime { clock, watch: Watch { clock, epoch, past: clock.past() }, read_at: Some(now) }
    }

    /// Has the past read anew: its lag has grown by as much as the worker has slept.
    pub(crate) fn has_slept(&mut self) {
        self.read_at = None;
    }

    /// Returns the parameters of the stopwatches of a round that begins now. Adds to `waited` for how
    /// long the thread had no processor since they were last read, unless it slept meanwhile.
    #[inline]
    pub(crate) fn watch(&mut self, now: Nanos, waited: &Counter) -> Watch {
        if self.read_at.is_none_or(|at| now.since(at) >= FRESH) {
            let past = self.clock.past();
            if self.read_at.is_some() {
                waited.add(past.paused_since(self.watch.past).0);
            }
            (self.watch.past, self.read_at) = (past, Some(now));
        }
        self.watch
    }
}

impl Watch {
    /// Returns a stopwatch that was started at a time of the worker's clock.
    #[inline]
    pub(crate) fn since(&self, start: Nanos) -> Stopwatch {
        Stopwatch::started(self.clock, Nanos(start.0.wrapping_add(self.epoch)), self.past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
        static USED: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_worker_waits_while_it_neither_runs_nor_sleeps() {
        let clock = Clock::new(|| Nanos(NOW.get()), || Nanos(USED.get()), || 0);
        let (mut time, waited) = (KernelTime::new(clock, Nanos(0)), Counter::default());
        let mut pass = |used: u64, others: u64, slept: bool| {
            USED.set(USED.get() + used);
            NOW.set(NOW.get() + used + others);
            if slept {
                time.has_slept();
            }
            time.watch(Nanos(NOW.get()), &waited);
            waited.get()
        };
        let ms = FRESH.0;
        assert_eq!(pass(ms, 0, false), 0);
        assert_eq!(pass(ms, 3 * ms, false), 3 * ms, "another program ran");
        assert_eq!(pass(ms, 90 * ms, true), 3 * ms);
        assert_eq!(pass(ms / 4, ms / 4, false), 3 * ms, "not read yet");
        assert_eq!(pass(ms / 4, ms / 4, false), 3 * ms + ms / 2);
    }
}
