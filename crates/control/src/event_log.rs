//! What happened, for `status` and for the log: the same event is one line with a count, however often it comes. New events of
//! a port are noted [`Sparing`]ly, since what is behind the port decides how often they come and what some of them say.

use crate::body::EventBody;
use ports::vhost::Sparing;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Events kept.
const MAX_EVENTS: usize = 64;
/// A repeated event is logged again after this time.
const QUIET: Duration = Duration::from_secs(60);

struct Entry {
    text: String,
    count: u64,
    last: Instant,
    logged: Instant,
}

/// The last events, oldest first.
pub(crate) struct EventLog {
    started: Instant,
    entries: VecDeque<Entry>,
    /// By the name of a port.
    told: BTreeMap<String, Sparing>,
}

impl EventLog {
    pub(crate) fn new(now: Instant) -> EventLog {
        EventLog { started: now, entries: VecDeque::new(), told: BTreeMap::new() }
    }

    /// Keeps an event that something behind a port has caused, unless there were too many new ones of that port. Says whether
    /// it was logged.
    pub(crate) fn note_of(&mut self, port: &str, now: Instant, text: String) -> bool {
        if self.entries.iter().any(|entry| entry.text == text) {
            return self.note(now, text);
        }
        match self.told.entry(port.to_owned()).or_default().next(now) {
            None => false,
            Some(0) => self.note(now, text),
            Some(untold) => self.note(now, format!("{text} (and {untold} more of this port)")),
        }
    }

    /// A port is removed.
    pub(crate) fn forget(&mut self, port: &str) {
        self.told.remove(port);
    }

    /// Keeps an event, and logs it if it is new or was last logged a minute ago. Returns whether it was logged.
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
        if self.entries.len() >= MAX_EVENTS {
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
        let mut journal = EventLog::new(start);
        assert!(journal.note(start, "vm1 is down"));
        for second in 1..60 {
            assert!(!journal.note(start + Duration::from_secs(second), "vm1 is down"));
        }
        assert!(journal.note(start + QUIET, "vm1 is down"));
        let events = journal.events();
        assert_eq!((events.len(), events[0].count, events[0].at_s), (1, 61, 60));
    }

    /// A front end says in each connection something else that it may not, and pushed all other events out.
    #[test]
    fn a_port_whose_events_are_always_new_leaves_room_for_others() {
        let start = Instant::now();
        let mut journal = EventLog::new(start);
        journal.note(start, "vm1 is removed");
        let at = |second| start + Duration::from_secs(second);
        let logged = |journal: &mut EventLog, second| {
            journal.note_of("vm2", at(second), format!("vm2: features {second:#x} were taken"))
        };
        let count = (0..600).filter(|second| logged(&mut journal, *second)).count();
        assert_eq!(count, 10 + 9);
        assert!(journal.note_of("vm3", at(600), "vm3 is up".into()));
        let events = journal.events();
        assert_eq!(events[0].text, "vm1 is removed");
        let told = |text: &str| events.iter().any(|event| event.text.contains(text));
        assert!(told("(and 59 more of this port)") && told("vm3 is up"));
        // What is known is counted, as that of others.
        assert!(!journal.note_of("vm3", at(601), "vm3 is up".into()));
        assert_eq!(journal.events().last().unwrap().count, 2);
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let now = Instant::now();
        let mut journal = EventLog::new(now);
        for number in 0..MAX_EVENTS + 10 {
            journal.note(now, format!("event {number}"));
        }
        let events = journal.events();
        assert_eq!((events.len(), events[0].text.as_str()), (MAX_EVENTS, "event 10"));
    }
}
