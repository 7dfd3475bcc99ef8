//! `millrace check`: checks a configuration file, or the health of the running switch.

use crate::global::Global;
use crate::output::{self, Outcome};
use api::body::{FindingBody, HealthBody, Severity};
use clap::Args;
use daemon::health;
use daemon::server;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace check /etc/millrace/millrace.toml   # needs no daemon
  millrace check                               # asks the running daemon
  millrace check --strict                      # warnings count as errors

error: traffic that the configuration calls for does not flow. warning: frames are lost, slowed or
unprotected. info: worth knowing, no action needed, such as a guest that is off.
A drop stays a finding for 10 minutes.

Exits with 1 on an error (with --strict: or a warning) or if the file is refused, otherwise with 0.")]
pub(crate) struct Arguments {
    /// Check this configuration file without a daemon.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same as FILE.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Exit with 1 on warnings too.
    #[arg(long)]
    strict: bool,
    /// Exit with 1 only if the daemon would refuse FILE; ignore other findings.
    #[arg(long, conflicts_with = "strict")]
    only_refusal: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let health = match arguments.file.as_ref().or(arguments.config.as_ref()) {
        Some(path) => health::offline(&server::read_file(path)?),
        None => global.client()?.health()?,
    };
    output::show(global, &health, text)?;
    let least = if arguments.strict { Severity::Warning } else { Severity::Error };
    let fails =
        !arguments.only_refusal && health.findings.iter().any(|found| found.severity >= least);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(health: &HealthBody) -> String {
    if health.findings.is_empty() {
        return "nothing found".to_owned();
    }
    let line = |found: &FindingBody| format!("{}: {}", found.severity.name(), found.problem);
    let mut lines: Vec<String> = health.findings.iter().map(line).collect();
    lines.push(summary(health));
    lines.join("\n")
}

/// Returns a text such as `1 error, 2 warnings, 1 info`.
pub(crate) fn summary(health: &HealthBody) -> String {
    let of = |severity: Severity| match (severity, health.count(severity)) {
        (_, 0) => None,
        (Severity::Info, count) => Some(format!("{count} info")),
        (severity, count) => {
            let name = severity.name();
            Some(output::pluralized(count, name, &format!("{name}s")))
        }
    };
    Severity::ALL.into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
}
