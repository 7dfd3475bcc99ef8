//! `millrace openapi`: the API's OpenAPI document, from which clients are generated.

use crate::output::{self, Outcome};
use clap::Args;
use problem::Problem;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace openapi > millrace.json     # needs no daemon

A daemon of the same version serves the same document at /v1/openapi.json.")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Outcome {
    let document = daemon::handlers::document()
        .to_pretty_json()
        .map_err(|error| Problem::new("writing JSON").seen(error))?;
    output::print(&document)?;
    Ok(ExitCode::SUCCESS)
}
