//! `millrace check`: checks a configuration file, or the health of the running switch.

use crate::fold;
use crate::global::Global;
use crate::output::{self, Outcome};
use api::body::{FindingBody, HealthBody, Severity};
use clap::Args;
use config::{Config, Fault};
use daemon::health;
use daemon::server;
use problem::Problem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace check /etc/millrace/millrace.toml   # needs no daemon
  millrace check                               # asks the running daemon
  millrace check --strict                      # warnings count as errors
  millrace check --all                         # each finding, however many are alike

error: traffic that the configuration calls for does not flow. warning: frames are lost, slowed or
unprotected. info: worth knowing, no action needed, such as a guest that is off.
A drop stays a finding for 10 minutes.

A file with errors is refused with all of them, each with its line.

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
    /// Show each finding, also those that say the same of many ports.
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let health = match arguments.file.as_ref().or(arguments.config.as_ref()) {
        Some(path) => match read(path, global)? {
            Ok(config) => health::offline(&config),
            Err(code) => return Ok(code),
        },
        None => global.client()?.health()?,
    };
    output::show(global, &health, |health| text(health, arguments.all, output::width()))?;
    let least = if arguments.strict { Severity::Warning } else { Severity::Error };
    let fails =
        !arguments.only_refusal && health.findings.iter().any(|found| found.severity >= least);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads a file for the daemon. If it has errors, all are reported, and the exit code is returned.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(file: &Path, global: &Global) -> Result<Result<Config, ExitCode>, Problem> {
    Ok(server::check_file(file)?.map_err(|faults| refuse(&faults, global)))
}

/// Reports all errors of a file, each with its line.
fn refuse(faults: &[Fault], global: &Global) -> ExitCode {
    let told = |fault: &Fault| {
        let problem = fault.problem.clone();
        if global.json || fault.excerpt.is_empty() {
            return problem;
        }
        // Below the label that a problem is printed with.
        problem.seen(fault.excerpt.replace('\n', "\n          "))
    };
    faults.iter().for_each(|fault| _ = output::exit_with(told(fault), 1, global.json));
    ExitCode::FAILURE
}

fn text(health: &HealthBody, all: bool, width: Option<usize>) -> String {
    if health.findings.is_empty() {
        return "nothing found".to_owned();
    }
    let mut lines = Vec::new();
    for group in alike(&health.findings, all) {
        let Some(first) = group.first() else { continue };
        let mut told = format!("{}: {}", first.severity.name(), first.problem);
        if group.len() > 1 {
            told.push_str(&format!("\n  also:   {}", others(&group)));
        }
        lines.push(output::fitted(&told, width));
    }
    lines.push(summary(health));
    lines.join("\n")
}

/// Groups findings that say the same of many ports; with `all` each is a group.
pub(super) fn alike(findings: &[FindingBody], all: bool) -> Vec<Vec<&FindingBody>> {
    if all {
        return findings.iter().map(|finding| vec![finding]).collect();
    }
    let said = |finding: &FindingBody| {
        (finding.severity, finding.kind.clone(), fold::template(&finding.problem.error).0)
    };
    fold::groups(findings, said)
}

/// Returns a text such as `vm2, vm3, vm4 and 496 more, `--all` shows each`.
pub(super) fn others(group: &[&FindingBody]) -> String {
    let name = |finding: &&FindingBody| {
        fold::template(&finding.problem.error).1.unwrap_or_default().to_owned()
    };
    let names: Vec<String> = group.iter().skip(1).map(name).collect();
    format!("{}; `--all` shows each", fold::names(names.iter().map(String::as_str)))
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
