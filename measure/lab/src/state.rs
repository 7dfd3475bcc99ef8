//! State of a campaign: the finished points, in a file beside its report, so that it can be
//! resumed.
//!
//! The file is replaced atomically after each point, and removed when the campaign is complete.

use crate::LabError;
use crate::host::Command;
use crate::options::Options;
use crate::plan::Ended;
use crate::report::{self, BenchFacts, Case, Check, SCHEMA};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
const FILE: &str = "state.json";

/// Finished points of a campaign, with the options and facts that its report needs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    schema: u32,
    campaign: String,
    pub(crate) options: Options,
    /// Date on which it began, UTC.
    pub(crate) date: String,
    pub(crate) bench: Option<BenchFacts>,
    pub(crate) checks: Vec<Check>,
    pub(crate) commands: Vec<Command>,
    pub(crate) notes: Vec<String>,
    finished: Vec<Finished>,
    /// The point that ended early. It is for the report alone, and is measured again on resume.
    #[serde(skip)]
    partial: Option<Finished>,
}

/// One point's figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finished {
    /// Index among the campaign's points.
    place: usize,
    case: Case,
}

impl State {
    pub(crate) fn new(campaign: &str, options: &Options, date: String) -> State {
        let (campaign, options) = (campaign.to_owned(), options.clone());
        State { schema: SCHEMA, campaign, options, date, ..State::default() }
    }

    /// Reads what an interrupted campaign of this name left in a directory.
    ///
    /// # Errors
    /// [`LabError::Resume`] if there is no state, or it is of another campaign.
    pub(crate) fn read(directory: &Path, campaign: &str) -> Result<State, LabError> {
        let path = directory.join(FILE);
        let refuse = |why: String| LabError::Resume { path: path.clone(), why };
        let state: State = report::read(&path).map_err(&refuse)?;
        if state.campaign != campaign {
            return Err(refuse(format!("it belongs to `{}`, not to `{campaign}`", state.campaign)));
        }
        Ok(state)
    }

    /// Writes the finished points to the directory.
    ///
    /// # Errors
    /// [`LabError::Report`] if the file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let path = directory.join(FILE);
        let failed = |source| LabError::Report { path: path.clone(), source };
        let text =
            serde_json::to_string(self).map_err(|error| failed(std::io::Error::other(error)))?;
        report::write_file(directory, FILE, &text)
    }

    /// Removes the file when there is nothing to resume.
    pub(crate) fn remove(directory: &Path) {
        // The file may never have been written; other errors have no remedy here.
        let _ = std::fs::remove_file(directory.join(FILE));
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        self.finished.iter().any(|point| point.place == place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.partial.is_none()
    }

    /// Whether the campaign runs in process, without hosts.
    pub(crate) fn is_in_process(&self) -> bool {
        self.bench.as_ref().is_some_and(|bench| bench.in_process)
    }

    /// Whether Ctrl-C ended a point early.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.partial.as_ref().is_some_and(|point| point.case.ended == Ended::Interrupted)
    }

    /// Keeps a point's figures. Returns whether the point ran to its end.
    pub(crate) fn keep(&mut self, place: usize, case: Case) -> bool {
        let whole = !matches!(case.ended, Ended::Interrupted | Ended::Failed(_));
        let point = Finished { place, case };
        if whole {
            self.finished.push(point);
        } else {
            self.partial = Some(point);
        }
        whole
    }

    /// Returns all figures, in the order of the campaign.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut found: Vec<&Finished> = self.finished.iter().chain(&self.partial).collect();
        found.sort_by_key(|point| point.place);
        found.into_iter().map(|point| point.case.clone()).collect()
    }

    /// Adds the facts of a site, and the note on numbers measured there.
    pub(crate) fn meet(&mut self, facts: BenchFacts, note: Option<&str>) {
        match &mut self.bench {
            None => self.bench = Some(facts),
            Some(bench) => {
                for sentence in facts.description.split_inclusive(". ") {
                    if !bench.description.contains(sentence.trim_end()) {
                        bench.description += &format!(" {}", sentence.trim_end());
                    }
                }
            }
        }
        if let Some(note) = note {
            self.note(note.to_owned());
        }
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds checks, in place of earlier ones of the same name.
    pub(crate) fn note_checks(&mut self, checks: Vec<Check>) {
        self.checks.retain(|known| !checks.iter().any(|check| check.name == known.name));
        self.checks.extend(checks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_or_of_another_experiment_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let missing = State::read(place.path(), "sweep").unwrap_err().to_string();
        assert!(missing.contains("state.json"), "{missing}");
        let options = Options::new("millrace".into());
        State::new("ladder", &options, "today".into()).write(place.path()).unwrap();
        let other = State::read(place.path(), "sweep").unwrap_err().to_string();
        assert!(other.contains("`ladder`, not to `sweep`"), "{other}");
        let same = State::read(place.path(), "ladder").unwrap();
        assert_eq!(same.options.connections, options.connections);
        State::remove(place.path());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
