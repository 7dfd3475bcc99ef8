//! The date of a report.

use chrono::{DateTime, Utc};
use std::time::SystemTime;

/// Returns the current time in UTC, as `2026-11-21T21:40:00Z`.
pub fn now_utc() -> String {
    DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_as_it_is_read() {
        let now = DateTime::parse_from_rfc3339(&now_utc()).unwrap();
        let off = Utc::now() - now.to_utc();
        assert!((0..60).contains(&off.num_seconds()), "{off}");
    }
}
