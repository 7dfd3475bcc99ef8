//! Brings a whole configuration into force: the API's, the file's, or that of the fleet's ports.

use super::Running;
use super::origin::{Merged, merge};
use super::ports::Ports;
use crate::peer::Groups;
use crate::state::Added;
use api::body::{StepBody, StepOutcome};
use config::{Config, PortConfig};
use problem::Problem;
use std::time::Instant;
use tracing::Level;

impl Running {
    /// Makes the API's wanted configuration the running one. Ports that do not differ are not
    /// touched; added ones belong to the API.
    ///
    /// # Errors
    ///
    /// Fails if a worker does not answer, before anything changes, or if a step of the plan fails.
    pub fn reload(&mut self, wanted: Config, now: Instant) -> Result<Vec<StepBody>, Problem> {
        self.all_answer()?;
        let added = self.desired.origins_of(&wanted);
        self.enforce(wanted, added, now)
    }

    /// Changes the configuration for the API.
    ///
    /// # Errors
    /// `change` or a rule refuses; then nothing has changed. Or a step failed.
    pub(crate) fn change(
        &mut self,
        now: Instant,
        change: impl FnOnce(&Ports, &mut Config) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut wanted = self.config().clone();
        change(&self.ports, &mut wanted)?;
        self.reload(wanted, now).and_then(|steps| all_done(&steps))
    }

    /// Replaces the fleet's ports with these. Ports of the file stay, and so do ports of the API
    /// unless the fleet wants their names or devices.
    pub(crate) fn replace_fleet(
        &mut self,
        ports: Vec<PortConfig>,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        self.all_answer()?;
        let merged = self.desired.with_fleet(ports);
        self.enforce_merged(merged, now)
    }

    /// Makes the file's configuration the running one, and leaves the other ports.
    ///
    /// # Errors
    ///
    /// Fails as [`Running::reload`] does.
    pub fn reload_file(&mut self, file: Config, now: Instant) -> Result<Vec<StepBody>, Problem> {
        self.reload_with(file, self.added_ports(), now)
    }

    /// Makes the file's configuration the running one, with `added` as the other ports.
    ///
    /// # Errors
    ///
    /// Fails as [`Running::reload`] does, and if the file breaks a rule.
    pub(super) fn reload_with(
        &mut self,
        file: Config,
        added: Added,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        file.check()?;
        self.all_answer()?;
        self.enforce_merged(merge(file, added), now)
    }

    fn enforce_merged(&mut self, merged: Merged, now: Instant) -> Result<Vec<StepBody>, Problem> {
        let steps = self.enforce(merged.config, merged.added, now)?;
        for note in merged.notes {
            self.journal.note(Level::WARN, now, note);
        }
        Ok(steps)
    }

    /// Ends the keys of the page of those who are no admins any more, by the configuration and the
    /// host's files of accounts. If the group cannot be looked
    /// up, none of its members counts as one.
    pub(crate) fn end_keys_of_former_admins(&mut self, now: Instant) {
        let groups = Groups::of(&self.config().switch).unwrap_or_default();
        let ended = self.page_keys.end_of_others(|user| groups.has_admin(user));
        if ended > 0 {
            let told = "keys of the page were ended, whose users are not named as admins any more";
            self.journal.note(Level::INFO, now, format!("{told}: {ended}"));
        }
    }

    /// The ports that are not the file's.
    pub(super) fn added_ports(&self) -> Added {
        self.desired.added_ports()
    }

    /// The text of the state file.
    ///
    /// # Errors
    ///
    /// Fails if the ports cannot be written as text.
    pub(crate) fn state_text(&self) -> Result<String, Problem> {
        self.desired.state_text()
    }
}

/// The first failed step as a problem.
pub(super) fn all_done(steps: &[StepBody]) -> Result<(), Problem> {
    let failed = steps.iter().find(|step| step.outcome == StepOutcome::Failed);
    failed.map_or(Ok(()), |step| {
        Err(Problem::new("the change is configured but could not be carried out")
            .seen(&step.reason)
            .wanted("a device and a switch that accept it")
            .remedy("fix the cause, or undo the change; `millrace check` shows the cause"))
    })
}
