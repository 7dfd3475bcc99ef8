//! Time as an argument: nanoseconds on a monotonic clock that the caller reads, or invents in
//! tests.

/// Nanoseconds since a start that the caller defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);
    /// A second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// Returns `self - earlier`, 0 if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns whole seconds.
    pub const fn as_secs(self) -> u64 {
        self.0 / Self::SECOND.0
    }
}

impl From<std::time::Duration> for Nanos {
    /// Converts a duration; one longer than 584 years becomes the largest value.
    fn from(duration: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}
