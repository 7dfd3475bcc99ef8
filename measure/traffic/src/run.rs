//! Carries out a plan: the crate's main function.

use crate::plan::{Plan, Role};
use crate::progress::Progress;
use crate::{Report, TrafficError, receiver, sender};

/// Carries out a plan on the calling thread, plus one thread for each of the plan's threads.
///
/// A run that was cut short (`plan.stop`, a peer that went away) returns a report of what was
/// measured until then; see [`Report::ending`].
///
/// # Errors
/// [`TrafficError`] if nothing was measured.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, TrafficError> {
    plan.check()?;
    match plan.role {
        Role::Sender => sender::run(plan, progress),
        Role::Receiver => receiver::run(plan, progress),
    }
}
