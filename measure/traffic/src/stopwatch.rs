//! Times of round trips and requests, in one histogram a thread.

use crate::TrafficError;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::thread::{ThreadState, lock};
use hdrhistogram::Histogram;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The longest time that is told apart: one minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// What a thread has timed.
pub(crate) struct Stopwatch {
    times: Histogram<u64>,
}

impl Stopwatch {
    /// # Errors
    /// No memory for a histogram.
    pub(crate) fn new() -> Result<Stopwatch, TrafficError> {
        Ok(Stopwatch { times: histogram()? })
    }

    /// The stopwatch of a thread whose requests are timed.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Stopwatch>, TrafficError> {
        plan.request_times.then(Stopwatch::new).transpose()
    }

    /// A request is done that was made at `since`; the connection's next one is made at once.
    /// Counts in the measured interval only, and not a connection's first request, which waited for
    /// the begin.
    pub(crate) fn lap(&mut self, shared: &Shared, since: &mut Option<Instant>) {
        let now = Instant::now();
        let Some(then) = since.replace(now) else { return };
        if shared.measuring.load(Ordering::Relaxed) {
            let nanoseconds = now.duration_since(then).as_nanos();
            self.times.saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }

    /// Gives the thread its times, at the end.
    pub(crate) fn hand_over(self, thread: &ThreadState) {
        *lock(&thread.times) = Some(self.times);
    }
}

/// What all threads have timed, in nanoseconds.
pub(crate) fn times(shared: &Shared) -> Result<Histogram<u64>, TrafficError> {
    let mut all = histogram()?;
    for thread in &shared.threads {
        // All have the same bounds.
        let _ = lock(&thread.times).as_ref().map(|times| all.add(times));
    }
    Ok(all)
}

/// An empty histogram of nanoseconds, three digits exact.
fn histogram() -> Result<Histogram<u64>, TrafficError> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3)
        .map_err(|error| TrafficError::Plan(format!("cannot make a histogram: {error}")))
}
