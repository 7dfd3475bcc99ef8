//! The stopwatches of a worker's turns.

use ports::{Clock, Nanos, Past, Stopwatch};

/// How long a thread's past is used before it is read again.
const FRESH: Nanos = Nanos::MILLISECOND;

/// The clocks of a worker's thread.
pub(crate) struct KernelTime {
    clock: Clock,
    watch: Watch,
    /// When the past was read, by the worker's clock.
    read_at: Nanos,
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
        KernelTime { clock, watch: Watch { clock, epoch, past: clock.past() }, read_at: now }
    }

    /// Has the past read anew: its lag has grown by as much as the worker has slept.
    pub(crate) fn has_slept(&mut self) {
        self.read_at = Nanos::default();
    }

    /// Returns the parameters of the stopwatches of a round that begins now.
    #[inline]
    pub(crate) fn watch(&mut self, now: Nanos) -> Watch {
        if now.since(self.read_at) >= FRESH {
            (self.watch.past, self.read_at) = (self.clock.past(), now);
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
