//! `millrace completions`: for the shell.

use crate::cli::Cli;
use crate::output::{self, Outcome};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Example:\n  millrace completions bash > /usr/share/bash-completion/completions/millrace"
)]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "millrace", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
