//! Waiting in tests and benches until a state has come about, by polling with one generous limit.
//!
//! [`until`] panics with the name of the awaited state, and with what was seen last if the question
//! returns `Err`. [`eventually`] leaves the message to its caller.
//!
//! ```
//! let thread = std::thread::spawn(|| {});
//! waiting::until("the thread has ended", || thread.is_finished());
//! let text = waiting::until("there is a word", || "a word".split(' ').next());
//! assert_eq!(text, "a");
//! ```
#![allow(clippy::panic, reason = "a test that waits in vain has failed")]

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest wait for one state: far longer than it takes on a busy machine, so that only a state
/// that never comes about fails.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The pauses between two questions, from the first to the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// The answer to one question: the state has come about, or what was seen instead.
pub trait Answer {
    /// What is known once the state has come about.
    type Value;

    /// Returns the value, or what was seen instead; that may be empty.
    ///
    /// # Errors
    /// The state has not come about yet.
    fn value(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Answer for Result<T, E> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.map_err(|seen| seen.to_string())
    }
}

/// Asks until `what` has come about, and returns the value.
///
/// # Panics
/// It has not come about within [`LIMIT`].
#[track_caller]
pub fn until<A: Answer>(what: &str, ask: impl FnMut() -> A) -> A::Value {
    until_within(LIMIT, what, ask)
}

/// Asks until `what` has come about, and returns the value, for states that take a multiple of the
/// product's own times: its retries, its leases.
///
/// # Panics
/// It has not come about within `limit`.
#[track_caller]
pub fn until_within<A: Answer>(limit: Duration, what: &str, ask: impl FnMut() -> A) -> A::Value {
    match within(limit, ask) {
        Ok(value) => value,
        Err(seen) if seen.is_empty() => panic!("waited in vain until {what}"),
        Err(seen) => panic!("waited in vain until {what}: {seen}"),
    }
}

/// Asks for at most [`LIMIT`]. Returns the value, or `None` if the state did not come about.
pub fn eventually<A: Answer>(ask: impl FnMut() -> A) -> Option<A::Value> {
    within(LIMIT, ask).ok()
}

/// Asks until `what` has come about, for as long as bytes move: the wait is in vain only when less
/// than a MiB moved in a whole [`LIMIT`], as pings and acknowledgements do. `moved` returns the
/// bytes so far.
///
/// # Panics
/// Nothing moved for a while, and it has not come about.
#[track_caller]
pub fn until_all_moved<A: Answer>(
    what: &str,
    mut ask: impl FnMut() -> A,
    mut moved: impl FnMut() -> u64,
) -> A::Value {
    loop {
        let before = moved();
        match eventually(&mut ask) {
            Some(value) => return value,
            None => assert!(moved() >= before + (1 << 20), "waited in vain until {what}"),
        }
    }
}

/// Asks for at most `limit`, and at least once.
///
/// # Errors
/// The state did not come about; the text is what was seen last.
pub fn within<A: Answer>(limit: Duration, mut ask: impl FnMut() -> A) -> Result<A::Value, String> {
    let (start, [mut pause, longest]) = (Instant::now(), PAUSES);
    loop {
        match ask().value() {
            Ok(value) => return Ok(value),
            Err(seen) if start.elapsed() >= limit => return Err(seen),
            Err(_) => std::thread::sleep(pause),
        }
        pause = (2 * pause).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_until_the_state_has_come_about_and_returns_what_is_known_then() {
        let mut asked = 0;
        until("the third question", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
        assert_eq!(until("a number", || Some(7)), 7);
        assert_eq!(eventually(|| Ok::<_, String>("a word")), Some("a word"));
    }

    #[test]
    fn it_ends_at_the_limit_with_what_was_seen_last_and_asks_at_least_once() {
        let mut asked = 0;
        let seen: Result<(), String> = within(Duration::ZERO, || {
            asked += 1;
            Err(format!("seen {asked}"))
        });
        assert_eq!(seen, Err("seen 1".to_owned()));
    }
}
