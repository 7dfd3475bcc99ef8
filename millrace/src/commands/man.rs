//! `millrace man`: the manual, made from the same definitions as the help.

use crate::cli::Cli;
use crate::output::{self, Failure, Outcome};
use clap::{Args, CommandFactory};
use problem::Problem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  millrace man | man -l -\n  millrace man /usr/share/man/man1\n  millrace man --toml /usr/share/man/man5"
)]
pub(crate) struct Arguments {
    /// Write one page per command to this directory [default: print the main page].
    directory: Option<PathBuf>,
    /// Use the manual page of the configuration file, millrace.toml(5), instead.
    #[arg(long)]
    toml: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.directory {
        Some(directory) => {
            write(directory, arguments.toml).map_err(|error| {
                let problem =
                    Problem::new(format!("writing manual pages to {}", directory.display()));
                Failure::Failed(
                    problem
                        .seen(error)
                        .wanted("an existing directory that you may write to")
                        .remedy("create the directory, or name another"),
                )
            })?;
        }
        None if arguments.toml => output::print(&daemon::reference::manual())?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, toml: bool) -> io::Result<()> {
    if toml {
        return fs::write(directory.join("millrace.toml.5"), daemon::reference::manual());
    }
    clap_mangen::generate_to(Cli::command(), directory)
}
