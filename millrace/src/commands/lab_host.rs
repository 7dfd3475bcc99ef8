//! `millrace lab-host`: a host of `validate`'s topology. Started by `validate` alone, and hidden.

use crate::output::Outcome;
use std::process::ExitCode;

pub(crate) fn run() -> Outcome {
    lab::host::serve()?;
    Ok(ExitCode::SUCCESS)
}
