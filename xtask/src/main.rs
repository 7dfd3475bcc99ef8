//! Tasks of this tree beyond cargo's own commands: `cargo xtask test`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "people and CI read it")]

mod junit;
mod log;
mod step;
mod tally;
mod test;

use anyhow::Result;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask test [STEP...]

  cargo xtask test            all of it, cheapest first; what `make test` and CI run
  cargo xtask test lint       format, spelling, licences, unused dependencies, lints, documents
  cargo xtask test workspace  the OpenAPI document, unit tests, properties, examples and links in documents, stories
  cargo xtask test user       the stories once more, as an ordinary user
  cargo xtask test loom       all interleavings where threads or guests meet without a lock
  cargo xtask test asan       the crates with unsafe code under the address sanitizer

A step's output is shown where it fails. The last line is `N passed, N failed, N skipped`, summed over all steps; above
it stand the slowest tests, and what was skipped with the reason. Exits with 1 where anything failed.";

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", steps @ ..] if steps.iter().all(|step| test::STEPS.contains(step)) => {
            test::run(if steps.is_empty() { &test::STEPS } else { steps })
        }
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}
