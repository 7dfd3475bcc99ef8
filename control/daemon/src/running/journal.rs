//! What the daemon says about its past: events, rereads of the file, the fleet's revision, and
//! sections that it could not serve.

use crate::event_log::EventLog;
use crate::state::Found;
use api::body::{EventBody, StepBody, StepOutcome};
use config::Section;
use problem::Problem;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use tracing::Level;

/// What happened since the switch started.
pub(crate) struct Journal {
    events: EventLog,
    started: SystemTime,
    /// Why `[metrics]` or `[web]` is not served.
    listener_troubles: BTreeMap<Section, Problem>,
    /// Listeners that other hosts cannot reach, each with the reason.
    filtered: Vec<Problem>,
    /// What is with the state on the disk.
    state: Found,
    reloads: Reloads,
    /// The revision of the fleet that was applied in full last; none since the start, or after a
    /// failed step.
    fleet_revision: Option<u64>,
}

/// Results of rereading the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reloads {
    /// Times that it succeeded in full.
    pub(crate) done: u64,
    /// Times that the file was refused or a step failed.
    pub(crate) failed: u64,
    /// Whether the last time succeeded in full. The start counts as a success.
    pub(crate) last_succeeded: bool,
    /// When it last succeeded in full.
    pub(crate) success_at: SystemTime,
}

impl Journal {
    /// Begins at the start of the switch, by both clocks.
    pub(super) fn new(now: Instant, started: SystemTime) -> Journal {
        Journal {
            events: EventLog::new(now),
            started,
            listener_troubles: BTreeMap::new(),
            filtered: Vec::new(),
            state: Found::default(),
            reloads: Reloads { done: 0, failed: 0, last_succeeded: true, success_at: started },
            fleet_revision: None,
        }
    }

    /// Keeps an event for `status` and the log.
    pub(crate) fn note(&mut self, level: Level, now: Instant, text: impl Into<String>) {
        self.events.note(level, now, text);
    }

    /// Keeps an event that a port's peer caused, within the port's limit.
    pub(super) fn note_of(&mut self, level: Level, port: &str, now: Instant, text: String) {
        self.events.note_of(level, port, now, text);
    }

    /// Keeps a step of a guest's migration.
    pub(super) fn note_step(&mut self, port: &str, now: Instant, text: String) {
        self.events.note_step(port, now, text);
    }

    /// Forgets the limits of a removed port.
    pub(super) fn forget(&mut self, port: &str) {
        self.events.forget(port);
    }

    /// Returns the last events, oldest first.
    pub(super) fn events(&self) -> Vec<EventBody> {
        self.events.events()
    }

    /// Returns the events after the one with this number, oldest first.
    pub(crate) fn events_after(&self, id: u64) -> Vec<EventBody> {
        self.events().into_iter().filter(|event| event.id > id).collect()
    }

    /// Returns when the switch started.
    pub(crate) fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns for how long the switch has run.
    pub(super) fn uptime(&self, now: Instant) -> Duration {
        self.events.uptime(now)
    }

    /// Counts the result of rereading the file.
    pub(crate) fn note_reload(&mut self, succeeded: bool) {
        self.reloads.last_succeeded = succeeded;
        if succeeded {
            self.reloads.done += 1;
            self.reloads.success_at = SystemTime::now();
        } else {
            self.reloads.failed += 1;
        }
    }

    /// Returns the results of rereading the file.
    pub(crate) fn reloads(&self) -> Reloads {
        self.reloads
    }

    /// Records whether a section is served. The first failure is an event.
    pub(crate) fn note_listener(
        &mut self,
        section: Section,
        trouble: Option<Problem>,
        now: Instant,
    ) {
        let before = self.listener_troubles.remove(&section);
        match (&trouble, before) {
            (Some(problem), None) => self.note(Level::WARN, now, problem.to_string()),
            (None, Some(_)) => self.note(Level::INFO, now, section.served(true)),
            _ => {}
        }
        self.listener_troubles.extend(trouble.map(|problem| (section, problem)));
    }

    /// Records that packets to what is served are filtered.
    pub(crate) fn note_filtered(&mut self, problem: Problem, now: Instant) {
        self.note(Level::WARN, now, problem.to_string());
        self.filtered.push(problem);
    }

    /// Records what is with the state on the disk. It is an event when it is not written any more,
    /// and when it is again.
    pub(crate) fn note_state(&mut self, found: Found, now: Instant) {
        match (&found.trouble, &self.state.trouble) {
            (Some(problem), None) => self.note(Level::ERROR, now, problem.to_string()),
            (None, Some(_)) => self.note(Level::INFO, now, "the state is on the disk again"),
            _ => {}
        }
        self.state = found;
    }

    /// Returns what is with the state on the disk.
    pub(crate) fn state(&self) -> &Found {
        &self.state
    }

    /// Returns the listeners that other hosts cannot reach, each with the reason.
    pub(super) fn filtered(&self) -> &[Problem] {
        &self.filtered
    }

    /// Returns why sections are not served.
    pub(super) fn listener_troubles(&self) -> impl Iterator<Item = &Problem> {
        self.listener_troubles.values()
    }

    /// Makes an event of a revision of the fleet that is in force now, or of its steps that failed.
    pub(crate) fn note_fleet(&mut self, revision: u64, steps: &[StepBody], now: Instant) {
        let failed = steps.iter().filter(|step| step.outcome == StepOutcome::Failed);
        let reasons: Vec<&str> = failed.map(|step| step.reason.as_str()).collect();
        let count = steps.len();
        if !reasons.is_empty() {
            self.fleet_revision = None;
            let (failed, reasons) = (reasons.len(), reasons.join("; "));
            let text =
                format!("fleet revision {revision}: {failed} of {count} steps failed: {reasons}");
            self.note(Level::WARN, now, text);
        } else if self.fleet_revision.replace(revision) != Some(revision) {
            let steps = if count == 1 { "step" } else { "steps" };
            let text = format!("fleet revision {revision} applied: {count} {steps}");
            self.note(Level::INFO, now, text);
        }
    }
}
