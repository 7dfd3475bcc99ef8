//! `millrace lab-host`: a host of `validate`. Started by `validate` alone, and hidden.

use crate::output::Outcome;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Enters the network namespace at this path instead of making one; `-`: it stays where it is.
    #[arg(long = "in")]
    namespace: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.namespace {
        None => lab::host::serve()?,
        Some(path) if path == Path::new(lab::host::HERE) => lab::host::serve_in(None)?,
        Some(path) => lab::host::serve_in(Some(path))?,
    }
    Ok(ExitCode::SUCCESS)
}
