//! Keeps events for `status` and writes them to the log. A repeated event is one line with a count.
//!
//! A port's peer decides how often the port's events occur and what some of them say. So they are
//! logged [`Sparing`]ly. When the list is full, the port with most entries loses its oldest, so
//! that one port displaces no other's events. Steps of migrations have their own list: evacuating a
//! host makes several per guest.

use api::body::EventBody;
use ports::vhost::Sparing;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tracing::Level;

/// Most events kept, and most steps of migrations.
const MAX_EVENTS: usize = 64;
/// After this time a repeated event is logged again.
const QUIET: Duration = Duration::from_secs(60);

struct Entry {
    /// The port that caused the event, if any.
    port: Option<String>,
    kind: Kind,
    text: String,
    /// The number of the last occurrence.
    id: u64,
    count: u64,
    last: Instant,
    logged: Instant,
}

impl Entry {
    /// Returns whether a repetition is logged.
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.logged) >= QUIET
    }
}

/// The list that an entry belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Event,
    /// A step of a migration.
    Step,
}

/// The last events, oldest first.
pub(crate) struct EventLog {
    started: Instant,
    entries: VecDeque<Entry>,
    /// Number of events so far, repetitions included.
    noted: u64,
    /// What was logged about each port, by name.
    told: BTreeMap<String, Told>,
}

/// Limits on what is logged about one port.
#[derive(Default)]
struct Told {
    new: Sparing,
    /// Limits repeated events in the log.
    again: Sparing,
    steps: Sparing,
}

impl EventLog {
    pub(crate) fn new(now: Instant) -> EventLog {
        EventLog { started: now, entries: VecDeque::new(), noted: 0, told: BTreeMap::new() }
    }

    /// Keeps an event that a port's peer caused, unless the port has had too many new ones; then
    /// repetitions are not logged either. Returns whether the event was logged.
    pub(crate) fn note_of(&mut self, level: Level, port: &str, now: Instant, text: String) -> bool {
        self.note_as((Kind::Event, level), port, now, text)
    }

    /// Keeps a step of a migration, with limits like those of [`note_of`](Self::note_of). Steps do
    /// not count against the port's limit for other events.
    pub(crate) fn note_step(&mut self, port: &str, now: Instant, text: String) -> bool {
        self.note_as((Kind::Step, Level::INFO), port, now, text)
    }

    fn note_as(
        &mut self,
        (kind, level): (Kind, Level),
        port: &str,
        now: Instant,
        mut text: String,
    ) -> bool {
        let told = self.told.entry(port.to_owned()).or_default();
        let new = if kind == Kind::Step { &mut told.steps } else { &mut told.new };
        let known = self.entries.iter().find(|entry| entry.text == text);
        let log = match known {
            Some(entry) => entry.is_due(now) && told.again.next(now).is_some(),
            None => match new.next(now) {
                None => return false,
                Some(0) => true,
                Some(untold) => {
                    text.push_str(&format!(" (and {untold} more on this port)"));
                    true
                }
            },
        };
        self.keep((kind, Some(port)), now, text, log.then_some(level));
        log
    }

    /// Forgets a removed port.
    pub(crate) fn forget(&mut self, port: &str) {
        self.told.remove(port);
    }

    /// Keeps an event, and logs it if it is new or was last logged a minute ago. Returns whether it
    /// was logged.
    pub(crate) fn note(&mut self, level: Level, now: Instant, text: impl Into<String>) -> bool {
        let text = text.into();
        let known = self.entries.iter().find(|entry| entry.text == text);
        let log = known.is_none_or(|entry| entry.is_due(now));
        self.keep((Kind::Event, None), now, text, log.then_some(level));
        log
    }

    /// Keeps an event, and logs it at level `log`, if any.
    fn keep(
        &mut self,
        (kind, port): (Kind, Option<&str>),
        now: Instant,
        text: String,
        log: Option<Level>,
    ) {
        let known = self.entries.iter().position(|entry| entry.text == text);
        let mut entry = known.and_then(|place| self.entries.remove(place)).unwrap_or_else(|| {
            let port = port.map(str::to_owned);
            Entry { port, kind, text, id: 0, count: 0, last: now, logged: now }
        });
        self.noted += 1;
        entry.id = self.noted;
        entry.count += 1;
        entry.last = now;
        if let Some(level) = log {
            entry.logged = now;
            tell(level, entry.count, &entry.text);
        }
        self.entries.push_back(entry);
        if self.entries.iter().filter(|entry| entry.kind == kind).count() > MAX_EVENTS {
            self.evict(kind);
        }
    }

    /// Removes the oldest entry of the port with most of this kind; among several, of the port with
    /// the oldest entry. Entries without a port count as those of one.
    fn evict(&mut self, kind: Kind) {
        let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.kind == kind) {
            *counts.entry(entry.port.as_deref()).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let is_of_most = |entry: &Entry| {
            entry.kind == kind && counts.get(&entry.port.as_deref()).copied() == most
        };
        if let Some(oldest) = self.entries.iter().position(is_of_most) {
            self.entries.remove(oldest);
        }
    }

    pub(crate) fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    pub(crate) fn events(&self) -> Vec<EventBody> {
        self.entries
            .iter()
            .map(|entry| EventBody {
                id: entry.id,
                at_s: self.uptime(entry.last).as_secs(),
                count: entry.count,
                text: entry.text.clone(),
            })
            .collect()
    }
}

/// Logs an event. `tracing` fixes a level per call site.
fn tell(level: Level, count: u64, text: &str) {
    match level {
        Level::ERROR => tracing::error!(target: "control::event_log", count, "{text}"),
        Level::WARN => tracing::warn!(target: "control::event_log", count, "{text}"),
        _ => tracing::info!(target: "control::event_log", count, "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_repeats_is_one_line_and_logged_once_a_minute() {
        let start = Instant::now();
        let mut journal = EventLog::new(start);
        assert!(journal.note(Level::INFO, start, "vm1 is down"));
        for second in 1..60 {
            assert!(!journal.note(Level::INFO, start + Duration::from_secs(second), "vm1 is down"));
        }
        assert!(journal.note(Level::INFO, start + QUIET, "vm1 is down"));
        let events = journal.events();
        assert_eq!((events.len(), events[0].count, events[0].at_s), (1, 61, 60));
    }

    /// A front end violated the protocol differently in each connection, and its events displaced
    /// all others.
    #[test]
    fn a_port_whose_events_are_always_new_leaves_room_for_others() {
        let start = Instant::now();
        let mut journal = EventLog::new(start);
        journal.note(Level::INFO, start, "vm1 is removed");
        let at = |second| start + Duration::from_secs(second);
        let logged = |journal: &mut EventLog, second| {
            journal.note_of(
                Level::INFO,
                "vm2",
                at(second),
                format!("vm2: features {second:#x} were taken"),
            )
        };
        let count = (0..600).filter(|second| logged(&mut journal, *second)).count();
        assert_eq!(count, 10 + 9);
        assert!(journal.note_of(Level::INFO, "vm3", at(600), "vm3 is up".into()));
        let events = journal.events();
        assert_eq!(events[0].text, "vm1 is removed");
        let told = |text: &str| events.iter().any(|event| event.text.contains(text));
        assert!(told("(and 59 more on this port)") && told("vm3 is up"));
        // A repeated event is counted, as those of other ports are.
        assert!(!journal.note_of(Level::INFO, "vm3", at(601), "vm3 is up".into()));
        assert_eq!(journal.events().last().unwrap().count, 2);
    }

    /// A port's repeated events stayed the youngest and were logged each minute. In an hour all
    /// events were that port's.
    #[test]
    fn a_port_that_repeats_its_events_leaves_room_for_others() {
        let start = Instant::now();
        let mut journal = EventLog::new(start);
        journal.note(Level::INFO, start, "vm1 is removed");
        journal.note_of(Level::INFO, "vm3", start, "vm3 is up".into());
        let (mut lines, mut own) = (0, Vec::new());
        for minute in 1..=200 {
            let now = start + QUIET * minute;
            own.push(format!("vm2: features {minute:#x} were taken"));
            let told =
                own.iter().filter(|text| journal.note_of(Level::INFO, "vm2", now, (*text).clone()));
            lines += told.count();
            let known = |text: &String| journal.entries.iter().any(|entry| entry.text == *text);
            own.retain(known);
        }
        let events = journal.events();
        assert_eq!(events.len(), MAX_EVENTS);
        assert_eq!(
            (events[0].text.as_str(), events[1].text.as_str()),
            ("vm1 is removed", "vm3 is up")
        );
        assert!(lines <= 2 * (10 + 200), "{lines} lines");
    }

    /// The migration steps of an evacuated host displaced all other events.
    #[test]
    fn guests_that_move_leave_room_for_other_events_and_a_port_for_its_own() {
        let start = Instant::now();
        let mut journal = EventLog::new(start);
        journal.note(Level::INFO, start, "the configuration was reloaded");
        for guest in 0..200 {
            let name = format!("vm{guest}");
            for step in ["a migration begins", "the guest was stopped"] {
                assert!(journal.note_step(&name, start, format!("{name}: {step}")));
            }
        }
        // One guest moves without end.
        for step in 0..100 {
            journal.note_step("vm1", start, format!("vm1: step {step}"));
        }
        assert!(journal.note_of(Level::INFO, "vm1", start, "port vm1 is broken".into()));
        let texts: Vec<String> = journal.events().into_iter().map(|event| event.text).collect();
        assert_eq!(texts.len(), MAX_EVENTS + 2);
        assert_eq!(texts[0], "the configuration was reloaded");
        assert_eq!(texts[MAX_EVENTS + 1], "port vm1 is broken");
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let now = Instant::now();
        let mut journal = EventLog::new(now);
        for number in 0..MAX_EVENTS + 10 {
            journal.note(Level::INFO, now, format!("event {number}"));
        }
        let events = journal.events();
        assert_eq!((events.len(), events[0].text.as_str()), (MAX_EVENTS, "event 10"));
    }
}
