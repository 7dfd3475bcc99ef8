//! Tasks of this tree beyond cargo's own commands: `cargo xtask`. `make` and CI call them.
//!
//! It is compiled before anything else, where only Rust and a C compiler may be, so it has few
//! dependencies. `setup` brings what the other tasks need.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "people and CI read it")]

mod book;
mod fresh;
mod guests;
mod junit;
mod log;
mod mirror;
mod packages;
mod program;
mod setup;
mod stamp;
mod step;
mod tally;
mod test;
mod tree;

use anyhow::Result;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask TASK [WORD...]

  cargo xtask setup     check what building and testing need, and install what is missing
  cargo xtask test      run all checks and tests, or some of them
  cargo xtask fresh     run README's commands in a bare root
  cargo xtask book      make the book of the documents
  cargo xtask packages  make a .deb and an .rpm
  cargo xtask guests    bring the guests of the stories

`cargo xtask TASK --help` says more, with examples.";

/// A task: a word of the command line.
struct Task {
    name: &'static str,
    help: &'static str,
    /// Does the task with the words after its name. Returns `None` if they are wrong.
    run: fn(&[&str]) -> Result<Option<ExitCode>>,
}

const TASKS: [Task; 6] = [
    Task { name: "setup", help: setup::HELP, run: setup::run },
    Task { name: "test", help: test::HELP, run: test::run },
    Task { name: "fresh", help: fresh::HELP, run: fresh::run },
    Task { name: "book", help: book::HELP, run: book::run },
    Task { name: "packages", help: packages::HELP, run: packages::run },
    Task { name: "guests", help: guests::HELP, run: guests::run },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let task = words.first().and_then(|name| TASKS.iter().find(|task| task.name == *name));
    match (task, words.as_slice()) {
        (Some(task), [_, "--help" | "-h"]) => help(task.help),
        (Some(task), [_, rest @ ..]) => perform(task, rest),
        (None, ["--help" | "-h" | "help"]) => help(HELP),
        _ => wrong(HELP),
    }
}

fn perform(task: &Task, words: &[&str]) -> ExitCode {
    match (task.run)(words) {
        Ok(Some(code)) => code,
        Ok(None) => wrong(task.help),
        Err(error) => {
            eprintln!("{}: {error:#}", task.name);
            ExitCode::FAILURE
        }
    }
}

fn help(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

fn wrong(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_help_with_an_example_and_a_line_in_the_overview() {
        for task in TASKS {
            let call = format!("cargo xtask {}", task.name);
            assert!(task.help.starts_with(&format!("Usage: {call} [")), "{call}");
            assert!(task.help.contains(&format!("\n  {call} ")), "{call}");
            assert!(HELP.contains(&format!("\n  {call} ")), "{call}");
        }
    }
}
