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

/// The times that one thread has recorded.
pub(crate) struct Stopwatch {
    times: Histogram<u64>,
}

impl Stopwatch {
    /// Makes a stopwatch without times.
    ///
    /// # Errors
    /// Fails if there is no memory for a histogram.
    pub(crate) fn new() -> Result<Stopwatch, TrafficError> {
        Ok(Stopwatch { times: histogram()? })
    }

    /// Makes a stopwatch if the plan times requests.
    ///
    /// # Errors
    /// Fails if there is no memory for a histogram.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Stopwatch>, TrafficError> {
        plan.request_times.then(Stopwatch::new).transpose()
    }

    /// Records the request that began at `since`, and begins the connection's next one. It counts
    /// only in the measured interval. A connection's first request is never counted: it waited for
    /// the begin.
    pub(crate) fn lap(&mut self, shared: &Shared, since: &mut Option<Instant>) {
        let now = Instant::now();
        let Some(then) = since.replace(now) else { return };
        if shared.measuring.load(Ordering::Relaxed) {
            let nanoseconds = now.duration_since(then).as_nanos();
            self.times.saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }

    /// Stores the times in the thread's state, at its end.
    pub(crate) fn store(self, thread: &ThreadState) {
        *lock(&thread.times) = Some(self.times);
    }
}

/// Returns the times of all threads, in nanoseconds.
///
/// # Errors
/// Fails if there is no memory for a histogram.
pub(crate) fn times(shared: &Shared) -> Result<Histogram<u64>, TrafficError> {
    let mut all = histogram()?;
    for thread in &shared.threads {
        // Adding cannot fail: all histograms have the same bounds.
        let _ = lock(&thread.times).as_ref().map(|times| all.add(times));
    }
    Ok(all)
}

/// Makes an empty histogram of nanoseconds, exact to three digits.
fn histogram() -> Result<Histogram<u64>, TrafficError> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3)
        .map_err(|error| TrafficError::Plan(format!("cannot make a histogram: {error}")))
}
