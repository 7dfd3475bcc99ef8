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
  millrace check /etc/millrace/millrace.toml   # needs no daemon
  millrace check                               # asks the running daemon

Exits with 0 when nothing is found, and with 1 when something is found or the file is refused.")]
pub(crate) struct Arguments {
    /// Check this configuration file without a daemon.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same as FILE.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let health = match arguments.file.as_ref().or(arguments.config.as_ref()) {
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
