//! `millrace ferry-dock`: starts the processes that wait for pages of guests whose memory is still
//! on its way. Started by `run` alone, and hidden.

use crate::output::{Failure, Outcome};
use daemon::server;
use problem::Problem;
use std::process::ExitCode;

/// The command that `run` starts.
pub(crate) const COMMAND: &str = "ferry-dock";

pub(crate) fn run() -> Outcome {
    server::run_dock().map_err(|error| {
        Failure::Failed(Problem::new("pages of guests cannot be waited for").seen(error))
    })?;
    Ok(ExitCode::SUCCESS)
}
