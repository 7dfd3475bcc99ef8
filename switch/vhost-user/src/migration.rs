//! Steps of a guest's migration, for people, as far as a back end can tell from the front end's
//! messages.
//!
//! Nothing is known of the rounds in which pages are copied: the front end reads the log from
//! shared memory and sends no message.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// A step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Logging of writes to guest memory has begun: the guest is about to migrate away.
    Logged,
    /// Logging has ended and the guest still runs here: the migration was cancelled.
    Cancelled,
    /// The guest's rings were stopped, this long after logging had begun.
    Stopped(Duration),
    /// The rings run again in the same connection, this long after they were stopped: the driver
    /// was loaded anew, or the migration failed.
    Returned(Duration),
    /// A guest runs here that another back end served before.
    Arrived,
    /// A guest comes whose memory follows it (post-copy).
    Awaited,
    /// All of its memory is here.
    Complete,
}

/// A step with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// When it happened, by the wall clock, so that hosts can be compared.
    pub at: SystemTime,
    /// The step.
    pub step: Step,
}

/// The latest milestones that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct Milestones(VecDeque<Milestone>);

impl Milestones {
    const KEPT: usize = 16;

    pub(crate) fn push(&mut self, step: Step) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Milestone { at: SystemTime::now(), step });
    }

    pub(crate) fn take(&mut self) -> Vec<Milestone> {
        self.0.drain(..).collect()
    }
}

/// How far the migration of one front end's guest is.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    /// Whether a ring has run in this connection.
    has_run: bool,
    /// When logging of writes began, if it is on.
    logged: Option<Instant>,
    /// When the last ring was stopped, if that was while writes were logged.
    stopped: Option<Instant>,
}

impl Migration {
    /// Returns the state of a session that another process has served before.
    pub(crate) fn going_on(has_run: bool, is_logged: bool) -> Migration {
        Migration { has_run, logged: is_logged.then(Instant::now), stopped: None }
    }

    /// Whether a ring has run in this connection.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Notes whether writes are logged now. A front end repeats it when the guest's driver is
    /// loaded anew. Returns the step that this is, if any.
    pub(crate) fn log(&mut self, is_logged: bool) -> Option<Step> {
        match (self.logged, is_logged) {
            (None, true) => {
                self.logged = Some(Instant::now());
                Some(Step::Logged)
            }
            (Some(_), false) => {
                self.logged = None;
                self.stopped.is_none().then_some(Step::Cancelled)
            }
            _ => None,
        }
    }

    /// Notes that the last running ring was stopped. Returns the step that this is, if any.
    pub(crate) fn stop(&mut self) -> Option<Step> {
        let since = self.logged.filter(|_| self.stopped.is_none())?;
        self.stopped = Some(Instant::now());
        Some(Step::Stopped(since.elapsed()))
    }

    /// Notes that the guest's first pair is ready. `is_resumed` says whether its rings were used
    /// before. Returns the step that this is, if any.
    pub(crate) fn run(&mut self, is_resumed: bool) -> Option<Step> {
        let is_first = !std::mem::replace(&mut self.has_run, true);
        if let Some(stopped) = self.stopped.take() {
            return Some(Step::Returned(stopped.elapsed()));
        }
        (is_first && is_resumed).then_some(Step::Arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_away_is_told_once_and_a_cancelled_one_as_such() {
        let mut migration = Migration::default();
        assert_eq!((migration.run(false), migration.stop()), (None, None), "no migration");
        assert_eq!(migration.log(true), Some(Step::Logged));
        assert_eq!(migration.log(true), None, "with each ring");
        assert_eq!(migration.log(false), Some(Step::Cancelled));
        migration.log(true);
        assert!(matches!(migration.stop(), Some(Step::Stopped(_))));
        assert_eq!(migration.stop(), None, "once");
        assert_eq!(migration.log(false), None, "it was stopped before");
        assert!(matches!(migration.run(true), Some(Step::Returned(_))), "it did not go");
        assert_eq!(migration.run(true), None, "it ran before");
        assert_eq!(migration.log(true), Some(Step::Logged), "another try");
    }

    /// It was told as a move away, a return and another migration.
    #[test]
    fn a_driver_that_is_loaded_anew_ends_no_migration() {
        let mut migration = Migration::default();
        (migration.run(false), migration.log(true)).1.unwrap();
        for _ in 0..2 {
            assert!(matches!(migration.stop(), Some(Step::Stopped(_))));
            assert_eq!(migration.log(true), None, "as before");
            assert!(matches!(migration.run(true), Some(Step::Returned(_))));
        }
        assert_eq!(migration.log(false), Some(Step::Cancelled));
    }

    #[test]
    fn a_guest_whose_rings_were_used_before_has_arrived() {
        assert_eq!(Migration::default().run(true), Some(Step::Arrived));
        assert_eq!(Migration::default().run(false), None, "a guest that boots");
    }

    #[test]
    fn the_last_milestones_are_kept() {
        let mut milestones = Milestones::default();
        (0..20).for_each(|ms| milestones.push(Step::Stopped(Duration::from_millis(ms))));
        let kept = milestones.take();
        assert_eq!(kept.len(), Milestones::KEPT);
        assert_eq!(kept[15].step, Step::Stopped(Duration::from_millis(19)));
        assert_eq!(milestones.take(), []);
    }
}
