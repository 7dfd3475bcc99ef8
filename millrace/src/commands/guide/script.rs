//! What a guide consists of: activities with tasks, as in the documents. Guides are data; the walk
//! ([`super::walk`]) is the same for all.
//!
//! `C` is what tasks look at: the running switch, or in tests whatever answers.

use super::document::{Document, Measurement, Status, Table};
use crate::output::Failure;
use api::client::ClientError;
use lab::LabError;
use problem::Problem;

/// A guide.
pub(super) struct Guide<C: 'static> {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Title of the document that it follows.
    pub(super) title: &'static str,
    /// Whether it is about one vNIC.
    pub(super) is_of_one_vnic: bool,
    /// Its activities, in order: first the prerequisites, then those of the document.
    pub(super) activities: &'static [Activity<C>],
}

/// An activity: tasks that belong together. A person confirms each activity but the first.
pub(super) struct Activity<C: 'static> {
    /// Its title, unique in the guide.
    pub(super) title: &'static str,
    /// Its tasks, in order.
    pub(super) tasks: &'static [Task<C>],
}

/// A task.
pub(super) struct Task<C: 'static> {
    /// Its title, unique in the activity.
    pub(super) title: &'static str,
    /// The command in the document; empty if it has none.
    pub(super) windows: &'static str,
    /// The command here; empty if there is none. `PORT` stands for the vNIC's port.
    pub(super) here: &'static str,
    /// Whether it is looked at in each run, because it may have changed since the last. All that
    /// look without waiting, changing or measuring are.
    pub(super) repeats: bool,
    /// Looks. May change the switch and may take minutes.
    pub(super) look: Look<C>,
}

/// Looks at something, with what was seen before.
pub(super) type Look<C> = fn(&mut C, &Document) -> Result<Sight, End>;

/// What a task found.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Whether it is as wanted.
    pub(super) status: Option<Status>,
    /// The value seen.
    pub(super) seen: String,
    /// The value wanted.
    pub(super) wanted: String,
    /// What to do about it.
    pub(super) remedy: String,
    /// Whether the rest of the guide would prove nothing.
    pub(super) stops: bool,
    /// What was measured.
    pub(super) measured: Vec<Measurement>,
    /// The document's table.
    pub(super) table: Option<Table>,
}

impl Sight {
    /// Returns what is as wanted.
    pub(super) fn passed(seen: impl Into<String>) -> Sight {
        Sight { status: Some(Status::Passed), seen: seen.into(), ..Sight::default() }
    }

    /// Returns something to do or to decide elsewhere, which stands until a later look passes. A
    /// fact that asks nothing of a person is `passed`.
    pub(super) fn noted(seen: impl Into<String>) -> Sight {
        Sight { status: Some(Status::Noted), seen: seen.into(), ..Sight::default() }
    }

    /// Returns what is not as wanted.
    pub(super) fn problem(
        seen: impl Into<String>,
        wanted: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Sight {
        Sight {
            status: Some(Status::Problem),
            seen: seen.into(),
            wanted: wanted.into(),
            remedy: remedy.into(),
            ..Sight::default()
        }
    }

    /// Returns a problem of the switch or of a network, the first of several. The value seen is
    /// repeated only where the sentence before lacks it.
    pub(super) fn of_problem(problem: &Problem, more: usize) -> Sight {
        let Problem { error, seen, wanted, remedy } = problem;
        let is_said = error.split([' ', ',']).any(|word| word == seen) || seen.is_empty();
        let mut said = if is_said { error.clone() } else { format!("{error}; {seen}") };
        if more > 0 {
            said += &format!(" ({more} more)");
        }
        Sight::problem(said, wanted, remedy)
    }

    /// Returns `passed` if so, otherwise a problem with the same value seen.
    pub(super) fn check(
        passed: bool,
        seen: impl Into<String>,
        wanted: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Sight {
        if passed { Sight::passed(seen) } else { Sight::problem(seen, wanted, remedy) }
    }

    /// Ends the guide here.
    pub(super) fn stop(self) -> Sight {
        Sight { stops: true, ..self }
    }

    /// Adds what was measured.
    pub(super) fn with(mut self, measured: impl IntoIterator<Item = Measurement>) -> Sight {
        self.measured.extend(measured);
        self
    }

    /// Adds a hint to what passed.
    pub(super) fn hint(self, hint: &str) -> Sight {
        if self.status == Some(Status::Passed) { self.remedy(hint) } else { self }
    }

    /// Sets the remedy, for notes.
    pub(super) fn remedy(self, remedy: impl Into<String>) -> Sight {
        Sight { remedy: remedy.into(), ..self }
    }
}

/// Why a guide ended before its last task.
pub(super) enum End {
    /// Ctrl-C, or another signal to end.
    Interrupted,
    /// A request failed, or a file could not be written.
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

impl From<ClientError> for End {
    fn from(error: ClientError) -> End {
        End::Failed(error.into())
    }
}

impl From<Problem> for End {
    fn from(problem: Problem) -> End {
        End::Failed(problem.into())
    }
}

impl From<LabError> for End {
    fn from(error: LabError) -> End {
        match error {
            LabError::Interrupted => End::Interrupted,
            LabError::NoDaemon(problem) => End::Failed(Failure::Unreachable(*problem)),
            other => Problem::new(other.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It read "eth0 has MTU 1500, the path has 9000: 1500".
    #[test]
    fn a_value_that_the_sentence_has_is_not_repeated() {
        let seen = |problem: Problem, more| Sight::of_problem(&problem, more).seen;
        let device = Problem::new("storage: b: eth0 has MTU 1500, not 9000").seen(1500);
        assert_eq!(seen(device, 2), "storage: b: eth0 has MTU 1500, not 9000 (2 more)");
        let silent = Problem::new("the path from a to b carries nothing").seen("no packet");
        assert_eq!(seen(silent, 0), "the path from a to b carries nothing; no packet");
    }
}
