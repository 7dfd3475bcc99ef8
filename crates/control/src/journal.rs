//! What happened, for `status` and for the log: the same event is one line with a count, however often it comes.

use crate::body::EventBody;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Events kept.
const MOST: usize = 64;
/// An event that comes again is logged again after this time.
const QUIET: Duration = Duration::from_secs(60);

struct Entry {
    text: String,
    count: u64,
    last: Instant,
    logged: Instant,
}

/// The last events, oldest first.
pub(crate) struct Journal {
    started: Instant,
    entries: VecDeque<Entry>,
}

impl Journal {
    pub(crate) fn new(now: Instant) -> Journal {
        Journal { started: now, entries: VecDeque::new() }
    }

    /// Keeps an event, and logs it where it is new or was silent for a minute. Says whether it was logged.
    pub(crate) fn note(&mut self, now: Instant, text: impl Into<String>) -> bool {
        let text = text.into();
        let known = self.entries.iter().position(|entry| entry.text == text);
        let mut entry = match known.and_then(|place| self.entries.remove(place)) {
            Some(entry) => entry,
            None => Entry { text, count: 0, last: now, logged: now },
        };
        let log = entry.count == 0 || now.saturating_duration_since(entry.logged) >= QUIET;
        entry.count += 1;
        entry.last = now;
        if log {
            entry.logged = now;
            tracing::info!(count = entry.count, "{}", entry.text);
        }
        if self.entries.len() >= MOST {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        log
    }

    pub(crate) fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    pub(crate) fn events(&self) -> Vec<EventBody> {
        self.entries
            .iter()
            .map(|entry| EventBody {
                at_s: self.uptime(entry.last).as_secs(),
                count: entry.count,
                text: entry.text.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_repeats_is_one_line_and_logged_once_a_minute() {
        let start = Instant::now();
        let mut journal = Journal::new(start);
        assert!(journal.note(start, "vm1 is down"));
        for second in 1..60 {
            assert!(!journal.note(start + Duration::from_secs(second), "vm1 is down"));
        }
        assert!(journal.note(start + QUIET, "vm1 is down"));
        let events = journal.events();
        assert_eq!((events.len(), events[0].count, events[0].at_s), (1, 61, 60));
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        for number in 0..MOST + 10 {
            journal.note(now, format!("event {number}"));
        }
        let events = journal.events();
        assert_eq!((events.len(), events[0].text.as_str()), (MOST, "event 10"));
    }
}
