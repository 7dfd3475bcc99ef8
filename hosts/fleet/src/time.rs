//! Wall-clock time in documents: seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time; 0 if the clock is set before 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the time since `then` as text: `5 s ago`, `3 min ago`.
pub fn ago(then: u64, now: u64) -> String {
    match now.saturating_sub(then) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_that_fits_twice() {
        let told = [0, 119, 120, 7199, 7200, 172_800].map(|past| ago(0, past));
        assert_eq!(
            told,
            ["0 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "2 days ago"]
        );
        assert_eq!(ago(10, 5), "0 s ago");
    }
}
