//! `millrace namespace-helper`: enters network namespaces for a daemon. Started by `run` alone, and
//! hidden.

use crate::output::{Failure, Outcome};
use clap::Args;
use daemon::server;
use problem::Problem;
use std::path::PathBuf;
use std::process::ExitCode;

/// The command that `run` starts.
pub(crate) const COMMAND: &str = "namespace-helper";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directories in which it may open namespaces; none: any that its user may.
    directories: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let ended = server::run_helper(&arguments.directories);
    ended.map_err(|error| {
        Failure::Failed(Problem::new("namespaces cannot be entered").seen(error))
    })?;
    Ok(ExitCode::SUCCESS)
}
