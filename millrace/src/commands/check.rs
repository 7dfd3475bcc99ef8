//! `millrace check`: a configuration file before it runs, or the health of what runs.

use crate::cli::Global;
use crate::output::{self, Outcome};
use clap::Args;
use control::body::HealthBody;
use control::{daemon, health};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace check -c /etc/millrace/millrace.toml   # needs no daemon
  millrace check                                  # asks the one that runs

Exits with 1 when something is found.")]
pub(crate) struct Arguments {
    /// Check this file; no daemon is asked.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let health = match &arguments.config {
        Some(path) => {
            let findings = health::offline(&daemon::read_file(path)?);
            HealthBody { healthy: findings.is_empty(), findings }
        }
        None => global.client()?.health()?,
    };
    output::show(global, &health, text)?;
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(health: &HealthBody) -> String {
    if health.healthy {
        return "nothing found".to_owned();
    }
    let findings: Vec<String> = health.findings.iter().map(ToString::to_string).collect();
    findings.join("\n")
}
