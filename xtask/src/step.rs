//! Runs one step: prints its line, runs its command, and shows the output if it fails.

use crate::junit::{Outcome, Test, read};
use crate::log::{doctests, left_out};
use crate::program::{has_on, tools_path};
use crate::tally::{Counts, Tally};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs steps one after the other.
pub(crate) struct Steps {
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// A directory that is removed at the end of the run.
    pub(crate) scratch: PathBuf,
    /// The counts of all steps.
    pub(crate) tally: Tally,
}

/// The result of a command.
struct Ended {
    log: String,
    has_succeeded: bool,
    seconds: u64,
}

/// Where the results of a command's tests are found.
pub(crate) enum Told {
    /// In nextest's report.
    Report,
    /// In nextest's report; tests that the step's filter leaves out are not counted.
    Filtered,
    /// In the text of `cargo test --doc`.
    Text,
}

impl Steps {
    /// Runs a step that passes or fails as one. Returns what the command printed.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn check(&mut self, step: &str, command: &mut Command) -> Result<String> {
        let ended = self.run(step, command)?;
        self.tally.check(ended.has_succeeded);
        let word = if ended.has_succeeded { "passed" } else { "FAILED" };
        println!("{word} ({} s)", ended.seconds);
        if !ended.has_succeeded {
            show(&ended.log);
        }
        Ok(ended.log)
    }

    /// Runs a step with a program that is not part of the toolchain. Skips the step if the program
    /// is not installed.
    ///
    /// # Errors
    /// The program exists and cannot be started.
    pub(crate) fn tool(&mut self, step: &str, command: &mut Command) -> Result<()> {
        let program = command.get_program().to_owned();
        if has_on(&self.path(), &program) {
            self.check(step, command)?;
        } else {
            let reason = format!("needs {} (cargo xtask setup lint)", program.display());
            self.skip(step, &reason);
        }
        Ok(())
    }

    /// Skips a step that cannot run here.
    pub(crate) fn skip(&mut self, step: &str, reason: &str) {
        println!("{step:<36}skipped");
        self.tally.skip(step, reason);
    }

    /// Runs a step of test programs, each test of which counts.
    ///
    /// # Errors
    /// The command cannot be started, or its report cannot be read.
    pub(crate) fn tests(&mut self, step: &str, told: &Told, command: &mut Command) -> Result<()> {
        // An old report must not be taken for this run's.
        ended_or_absent(fs::remove_file(REPORT))?;
        let ended = self.run(step, command)?;
        let (tests, others) = match told {
            Told::Report => {
                (reported()?, Counts { skipped: left_out(&ended.log), ..Counts::default() })
            }
            Told::Filtered => (reported()?, Counts::default()),
            Told::Text => (Vec::new(), written(&ended.log)),
        };
        let counts = self.tally.tests(step, &tests, others, ended.has_succeeded);
        let Counts { passed, failed, skipped } = counts;
        println!("{passed} passed, {failed} failed, {skipped} skipped ({} s)", ended.seconds);
        let has_told = show_failed(&tests);
        if failed > 0 && !has_told {
            show(&ended.log);
        }
        Ok(())
    }

    /// Returns the search path of programs, with the checkers of `cargo xtask setup`.
    pub(crate) fn path(&self) -> String {
        tools_path(&self.target)
    }

    fn run(&self, step: &str, command: &mut Command) -> Result<Ended> {
        print!("{step:<36}");
        std::io::stdout().flush()?;
        let path = self.scratch.join("log");
        let log = File::create(&path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let start = Instant::now();
        let status = command.status().with_context(|| format!("{command:?} cannot be started"))?;
        let seconds = start.elapsed().as_secs();
        let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        Ok(Ended { log, has_succeeded: status.success(), seconds })
    }
}

/// Path of nextest's report, below the root of the workspace. The configuration determines it,
/// whatever target directory cargo has.
const REPORT: &str = "target/nextest/default/junit.xml";

/// Reads the report. Returns no tests if there is none, because nothing was built.
fn reported() -> Result<Vec<Test>> {
    match fs::read_to_string(REPORT) {
        Ok(text) => read(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("nextest's report cannot be read"),
    }
}

fn written(log: &str) -> Counts {
    let counts = doctests(log);
    Counts { passed: counts.passed, failed: counts.failed, skipped: counts.ignored }
}

fn ended_or_absent(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Shows what failed tests printed. Returns whether any test failed.
fn show_failed(tests: &[Test]) -> bool {
    let mut has_told = false;
    for test in tests {
        if let Outcome::Failed(printed) = &test.outcome {
            show(&format!("FAILED {}\n{printed}\n", test.name));
            has_told = true;
        }
    }
    has_told
}

/// Shows text, indented as part of a step.
pub(crate) fn show(text: &str) {
    text.lines().for_each(|line| println!("    {line}"));
}
