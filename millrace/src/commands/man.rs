//! `millrace man`: the manual, made from the same definitions as the help.

use crate::cli::Cli;
use crate::output::{self, Failure, Outcome};
use clap::{Args, CommandFactory};
use control::Problem;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  millrace man | man -l -\n  millrace man /usr/share/man/man1")]
pub(crate) struct Arguments {
    /// Write one page per command to this directory [default: print the main page].
    directory: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.directory {
        Some(directory) => {
            clap_mangen::generate_to(Cli::command(), directory).map_err(|error| {
                let problem =
                    Problem::new(format!("writing manual pages to {}", directory.display()));
                Failure::Failed(
                    problem
                        .seen(error)
                        .wanted("a directory that can be written")
                        .remedy("create it first, or name another"),
                )
            })?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
