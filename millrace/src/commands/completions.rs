//! `millrace completions`: for the shell. The shell asks `millrace` itself, so ports' names are completed too.

use crate::output::{self, Failure, Outcome};
use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;
use control::Problem;
use std::process::ExitCode;

/// The variable by which the shell asks.
pub(crate) const VARIABLE: &str = "MILLRACE_COMPLETE";

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace completions bash > /usr/share/bash-completion/completions/millrace
  source <(millrace completions zsh)

The shell then asks `millrace` for what may follow: commands, options, keys, and the ports of the
running switch by name.")]
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
    Failure::Usage(Problem::new("no completions for this shell").seen(shell))
}
