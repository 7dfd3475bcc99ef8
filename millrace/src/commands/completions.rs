//! `millrace completions`: shell completions. The shell calls `millrace`, so it completes port
//! names too.

use crate::output::{self, Failure, Outcome};
use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;
use problem::Problem;
use std::process::ExitCode;

/// The environment variable by which the shell requests completions.
pub(crate) const VARIABLE: &str = "MILLRACE_COMPLETE";

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace completions bash > /usr/share/bash-completion/completions/millrace
  source <(millrace completions zsh)

The shell then completes commands, options, keys and the names of the running switch's ports.")]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let shells = Shells::builtins();
    let shell = arguments.shell.to_string();
    let completer = shells.completer(&shell).ok_or_else(|| unknown(&shell))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "millrace", "millrace", "millrace", &mut script)?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(shell: &str) -> Failure {
    Failure::Usage(Problem::new(format!("there are no completions for shell {shell}")))
}
