//! Ages in milliseconds, by clocks of workers that are not quite the same.

/// Milliseconds by which the clock of a worker may be ahead of another's.
pub(super) const AHEAD_MS: u32 = 1000;

/// Whether something is `for_ms` or more in the past. The clock of the worker that noted it may be
/// ahead, and then its age wraps. (Once in 50 days an age is taken for one of a clock that is
/// ahead: for a second.)
#[inline]
pub(super) fn has_passed(age_ms: u32, for_ms: u32) -> bool {
    (for_ms..=u32::MAX - AHEAD_MS).contains(&age_ms)
}
