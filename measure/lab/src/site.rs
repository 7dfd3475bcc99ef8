//! Where a whole validation runs: new hosts in namespaces, everything in this process, or hosts
//! that exist already ([`between`](crate::between)).
//!
//! A site sets up a fresh bench for each load, so that one connection count leaves nothing to the
//! next.

pub(crate) mod memory_guests;
pub(crate) mod new_hosts;

use crate::LabError;
use crate::host::{Command, become_root, is_root};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::plan::{Plan, Run, Step};
use crate::report::{Account, BenchFacts, Case, Check};

/// Called with each step of a run.
pub(crate) type Tell<'t> = &'t mut dyn FnMut(&Step<'_>);
/// A run, and what sender, receiver and switch counted over it.
pub(crate) type RunResult = Result<(Run, Option<Account>), LabError>;

/// The hosts of an experiment, on which its plan is run under one load after the other.
pub(crate) trait Site {
    /// Returns for the report what the hosts are.
    fn facts(&self) -> BenchFacts;

    /// Runs the checks that precede measuring.
    fn checks(&mut self, _interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        Ok(Vec::new())
    }

    /// Runs a plan under a load on a fresh bench, and adds up what was counted.
    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult;

    /// Returns the arms that could not be measured, with the reasons.
    fn left_out(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns what iperf3 measured beside a case; `None` if it has no opinion on it.
    fn second_opinion(&self, _case: &Case) -> Option<String> {
        None
    }

    /// Returns every command so far.
    fn commands(&self) -> Vec<Command> {
        Vec::new()
    }

    /// Restores a switch that goes on running, and returns the check of it; `None` if the site has
    /// no such switch.
    fn leave(&mut self) -> Option<Check> {
        None
    }
}

/// Readies this process for hosts of its own, while it has one thread: it becomes root, and watches
/// signals.
///
/// # Errors
/// The kernel refuses namespaces, or the handlers of signals.
pub(crate) fn prepare_process(interrupt: &Interrupt) -> Result<(), LabError> {
    if !is_root() {
        become_root()?;
    }
    interrupt.watch_signals()
}

/// Readies this process for hosts of its own, and returns a directory for their files.
///
/// # Errors
/// As [`prepare_process`], or the directory cannot be made.
pub(crate) fn prepare(interrupt: &Interrupt) -> Result<tempfile::TempDir, LabError> {
    prepare_process(interrupt)?;
    let directory = tempfile::Builder::new().prefix("millrace-lab-").tempdir();
    directory.map_err(LabError::io("making a private directory"))
}
