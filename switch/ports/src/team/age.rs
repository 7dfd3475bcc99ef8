//! Ages in milliseconds, by workers' clocks that differ slightly.

/// Milliseconds by which the clock of a worker may be ahead of another's.
pub(super) const AHEAD_MS: u32 = 1000;

/// Whether an age is `for_ms` or more. The clock of the worker that noted the time may be ahead,
/// and then the age wraps. (Once in 50 days, for a second, a real age is mistaken for that of a
/// clock ahead.)
#[inline]
pub(super) fn has_passed(age_ms: u32, for_ms: u32) -> bool {
    (for_ms..=u32::MAX - AHEAD_MS).contains(&age_ms)
}
