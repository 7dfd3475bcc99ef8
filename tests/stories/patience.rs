//! Waiting for what must come.

use std::time::{Duration, Instant};

/// Longest a story waits for one thing: far more than it takes, so that only what never comes fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
