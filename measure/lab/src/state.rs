//! What a campaign has finished so far, in a file beside its report, so that it can be taken up
//! again.
//!
//! The file is written after each point, whole or not at all, and taken away when the campaign is
//! complete.

use crate::LabError;
use crate::options::Options;
use crate::plan::Ended;
use crate::report::{self, BenchFacts, Case, Check, Command, SCHEMA};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
const FILE: &str = "state.json";

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    schema: u32,
    campaign: String,
    pub(crate) options: Options,
    /// When it began, UTC.
    pub(crate) date: String,
    pub(crate) bench: Option<BenchFacts>,
    pub(crate) checks: Vec<Check>,
    pub(crate) commands: Vec<Command>,
    pub(crate) notes: Vec<String>,
    finished: Vec<Finished>,
    /// The point that was cut short, for the report alone: it is measured again.
    #[serde(skip)]
    partial: Option<Finished>,
}

/// One point's figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finished {
    /// Its place among the campaign's points.
    place: usize,
    case: Case,
}

impl State {
    pub(crate) fn new(campaign: &str, options: &Options, date: String) -> State {
        let (campaign, options) = (campaign.to_owned(), options.clone());
        State { schema: SCHEMA, campaign, options, date, ..State::default() }
    }

    /// What an interrupted campaign of this name left in a directory.
    pub(crate) fn read(directory: &Path, campaign: &str) -> Result<State, LabError> {
        let path = directory.join(FILE);
        let refuse = |why: String| LabError::Resume { path: path.clone(), why };
        let state: State = report::read(&path).map_err(&refuse)?;
        if state.campaign != campaign {
            return Err(refuse(format!("it belongs to `{}`, not to `{campaign}`", state.campaign)));
        }
        Ok(state)
    }

    /// Writes what is finished.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let path = directory.join(FILE);
        let failed = |source| LabError::Report { path: path.clone(), source };
        let text =
            serde_json::to_string(self).map_err(|error| failed(std::io::Error::other(error)))?;
        report::put(directory, FILE, &text)
    }

    /// Takes the file away: there is nothing to resume.
    pub(crate) fn remove(directory: &Path) {
        // It may never have been written.
        let _ = std::fs::remove_file(directory.join(FILE));
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        self.finished.iter().any(|point| point.place == place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.partial.is_none()
    }

    /// Whether it runs without hosts.
    pub(crate) fn is_in_process(&self) -> bool {
        self.bench.as_ref().is_some_and(|bench| bench.in_process)
    }

    /// Whether a point was cut short by someone.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.partial.as_ref().is_some_and(|point| point.case.ended == Ended::Interrupted)
    }

    /// Keeps a point's figures. Whether it ran to its end.
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

    /// All figures, in the order of the campaign.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut found: Vec<&Finished> = self.finished.iter().chain(&self.partial).collect();
        found.sort_by_key(|point| point.place);
        found.into_iter().map(|point| point.case.clone()).collect()
    }

    /// A bench and what is to be known of the numbers made there.
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

    /// Adds checks; those of an earlier try give way.
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
