//! Waiting for what must come.

use std::time::{Duration, Instant};

/// Longest a story waits for one thing: far more than it takes, so that only what never comes
/// fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until there is an answer.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    patiently(ask).unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// The same for what takes as long as the machine needs: in vain only when nothing has moved for a
/// while. `moved` says how many bytes were so far; less than a MiB between two looks is no
/// progress, for there are pings and acknowledgements as well.
pub(crate) fn until_all_moved<T>(
    what: &str,
    mut ask: impl FnMut() -> Option<T>,
    mut moved: impl FnMut() -> u64,
) -> T {
    loop {
        let before = moved();
        match patiently(&mut ask) {
            Some(answer) => return answer,
            None => assert!(moved() >= before + (1 << 20), "waited in vain until {what}"),
        }
    }
}

/// The same for who can say more than that it was in vain.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let answer = ask();
        if answer.is_some() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}
